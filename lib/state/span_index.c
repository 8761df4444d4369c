#include "state/span_index.h"

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

static int range_cmp(const struct span_entry *a, const struct span_entry *b)
{
        int c = bytes_cmp(a->span.from.p, a->span.from.len, b->span.from.p, b->span.from.len);

        return c != 0 ? c : end_cmp(&a->span, &b->span);
}

static struct span_entry *later(struct span_entry *a, struct span_entry *b)
{
        return !a || (b && end_cmp(&a->span, &b->span) < 0) ? b : a;
}

static void look_again(struct span_entry *r)
{
        struct span_entry *left = RB_LEFT(r, by_span), *right = RB_RIGHT(r, by_span),
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

TREE_GENERATE(span_index, span_entry, by_span, range_cmp)

static void look_again_up(struct span_entry *r)
{
        for (; r; r = RB_PARENT(r, by_span))
                look_again(r);
}

void span_index_init(struct span_index *ix)
{
        RB_INIT(ix);
}

struct span_entry *span_index_find(const struct span_index *ix, const struct kv_span *span)
{
        struct span_entry key = {.span = *span};

        return RB_FIND(span_index, (struct span_index *) (uintptr_t) ix, &key);
}

void span_index_add(struct span_index *ix, struct span_entry *r)
{
        struct span_entry *same;

        r->leaves = false;
        r->last = r;
        same = RB_INSERT(span_index, ix, r);
        assert(!same);
        (void) same;
        look_again_up(r);
}

void span_index_remove(struct span_index *ix, struct span_entry *r)
{
        /* Ancestors must forget it before the tree is rebalanced. */
        r->leaves = true;
        look_again_up(r);
        RB_REMOVE(span_index, ix, r);
}

struct span_entry *span_index_any(const struct span_index *ix)
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

static void each(struct span_entry *r, struct view key,
                 void (*fn)(struct span_entry *r, void *arg), void *arg)
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

void span_index_each(const struct span_index *ix, struct view key,
                     void (*fn)(struct span_entry *r, void *arg), void *arg)
{
        each(RB_ROOT(ix), key, fn, arg);
}
