#include "etcd/watch_index.h"

/* Compares the ends of ranges. A single key ends right behind itself. */
static int end_cmp(const struct kv_span *a, const struct kv_span *b)
{
        struct view x = a->single ? a->from : a->end, y = b->single ? b->from : b->end;
        int c;

        if (a->to_end || b->to_end)
                return (int) a->to_end - (int) b->to_end;
        c = bytes_cmp(x.p, x.len, y.p, y.len);
        return c != 0 ? c : (int) a->single - (int) b->single;
}

static int range_cmp(const struct watch_range *a, const struct watch_range *b)
{
        int c = bytes_cmp(a->span.from.p, a->span.from.len, b->span.from.p, b->span.from.len);

        return c != 0 ? c : end_cmp(&a->span, &b->span);
}

static struct watch_range *later(struct watch_range *a, struct watch_range *b)
{
        return !a || (b && end_cmp(&a->span, &b->span) < 0) ? b : a;
}

static void look_again(struct watch_range *r)
{
        struct watch_range *left = RB_LEFT(r, by_span), *right = RB_RIGHT(r, by_span),
                           *last = r->leaves ? NULL : r;

        if (left)
                last = later(last, left->last);
        if (right)
                last = later(last, right->last);
        r->last = last;
}

/* tree(3bsd) calls this for nodes whose children have changed, but not for all ancestors of a
 * new or removed node. */
#undef RB_AUGMENT
#define RB_AUGMENT(r) look_again(r)

TREE_GENERATE(watch_index, watch_range, by_span, range_cmp)

static void look_again_up(struct watch_range *r)
{
        for (; r; r = RB_PARENT(r, by_span))
                look_again(r);
}

void watch_index_init(struct watch_index *ix)
{
        RB_INIT(ix);
}

struct watch_range *watch_index_find(const struct watch_index *ix, const struct kv_span *span)
{
        struct watch_range key = {.span = *span};

        return RB_FIND(watch_index, (struct watch_index *) (uintptr_t) ix, &key);
}

void watch_index_add(struct watch_index *ix, struct watch_range *r)
{
        struct watch_range *same;

        r->leaves = false;
        r->last = r;
        same = RB_INSERT(watch_index, ix, r);
        assert(!same);
        (void) same;
        look_again_up(r);
}

void watch_index_remove(struct watch_index *ix, struct watch_range *r)
{
        /* Ancestors must forget it before the tree is rebalanced. */
        r->leaves = true;
        look_again_up(r);
        RB_REMOVE(watch_index, ix, r);
}

struct watch_range *watch_index_any(const struct watch_index *ix)
{
        return RB_ROOT(ix);
}

/* Whether @key is before the end of @span. */
static bool reaches(const struct kv_span *span, struct view key)
{
        if (span->to_end)
                return true;
        if (span->single)
                return bytes_cmp(key.p, key.len, span->from.p, span->from.len) <= 0;
        return bytes_cmp(key.p, key.len, span->end.p, span->end.len) < 0;
}

static void each(struct watch_range *r, struct view key,
                 void (*fn)(struct watch_range *r, void *arg), void *arg)
{
        while (r && reaches(&r->last->span, key)) {
                each(RB_LEFT(r, by_span), key, fn, arg);
                if (bytes_cmp(key.p, key.len, r->span.from.p, r->span.from.len) < 0)
                        return;
                if (reaches(&r->span, key))
                        fn(r, arg);
                r = RB_RIGHT(r, by_span);
        }
}

void watch_index_each(const struct watch_index *ix, struct view key,
                      void (*fn)(struct watch_range *r, void *arg), void *arg)
{
        each(RB_ROOT(ix), key, fn, arg);
}
