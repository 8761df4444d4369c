#include "lease/kept.h"

#include "lease/kv.h"

struct kept_version {
        RB_ENTRY(kept_version) by_key;
        struct kv_version *v; /* owned, as its key is */
        int64_t until;        /* the revision from which on it could not be seen any more */
};

static int pin_cmp(const struct kept_pin *a, const struct kept_pin *b)
{
        if (a->revision != b->revision)
                return a->revision < b->revision ? -1 : 1;
        return (uintptr_t) a < (uintptr_t) b ? -1 : a != b;
}

static int version_cmp(const struct kept_version *a, const struct kept_version *b)
{
        const struct kv_version *x = a->v, *y = b->v;
        int c = bytes_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len);

        if (c != 0 || x->mod_revision == y->mod_revision)
                return c;
        return x->mod_revision < y->mod_revision ? -1 : 1;
}

TREE_GENERATE(kept_pins, kept_pin, by_revision, pin_cmp)
TREE_GENERATE(kept_versions, kept_version, by_key, version_cmp)

static size_t cost(const struct kv_version *v)
{
        return sizeof(struct kept_version) + sizeof(*v) + v->value_len + sizeof(*v->key) +
               v->key->len;
}

void kept_init(struct kept *k)
{
        *k = (struct kept){.max = KEPT_MAX};
}

static void lose(struct kept_pin *p)
{
        RB_REMOVE(kept_pins, &p->of->pins, p);
        p->of->unpinned = p->of->unpinned || !RB_EMPTY(&p->of->versions);
        p->of = NULL;
}

void kept_pin(struct kept *k, struct kept_pin *p, int64_t revision)
{
        *p = (struct kept_pin){.of = k, .revision = revision};
        RB_INSERT(kept_pins, &k->pins, p);
}

void kept_unpin(struct kept_pin *p)
{
        if (p->of)
                lose(p);
}

static void drop(struct kept *k, struct kept_version *e)
{
        RB_REMOVE(kept_versions, &k->versions, e);
        k->bytes -= cost(e->v);
        free(e->v->key);
        free(e->v);
        free(e);
}

void kept_fini(struct kept *k)
{
        struct kept_version *e;
        struct kept_pin *p;

        while ((p = RB_ROOT(&k->pins)))
                lose(p);
        while ((e = RB_ROOT(&k->versions)))
                drop(k, e);
        kept_init(k);
}

/* One who sees what was there from @from on and not any more at @until; NULL: nobody. */
static struct kept_pin *who_sees(struct kept *k, int64_t from, int64_t until)
{
        struct kept_pin *p = RB_ROOT(&k->pins), *best = NULL;

        while (p) {
                if (p->revision >= from) {
                        best = p;
                        p = RB_LEFT(p, by_revision);
                } else {
                        p = RB_RIGHT(p, by_revision);
                }
        }
        return best && best->revision < until ? best : NULL;
}

/* The oldest pin goes, and after it no other until what only it could see has been given back:
 * that takes a while, and there is room for it. */
static void make_room(struct kept *k)
{
        if (k->bytes >= k->max && !kept_wants_sweep(k))
                lose(RB_MIN(kept_pins, &k->pins));
}

static bool keep(struct kept *k, struct kv_version *v, int64_t until)
{
        struct kv_key *key = calloc(1, sizeof(*key) + v->key->len);
        struct kept_version *e = malloc(sizeof(*e));

        if (!e || !key) {
                free(e);
                free(key);
                return false;
        }
        key->len = v->key->len;
        memcpy(key->bytes, v->key->bytes, key->len);
        v->key = key;
        v->older = NULL;
        *e = (struct kept_version){.v = v, .until = until};
        RB_INSERT(kept_versions, &k->versions, e);
        k->bytes += cost(v);
        return true;
}

bool kept_take(struct kept *k, struct kv_version *v, int64_t until)
{
        struct kept_pin *p;

        if (v->version == 0 || !who_sees(k, v->mod_revision, until))
                return false;
        make_room(k);
        if (k->bytes + cost(v) <= 2 * k->max && who_sees(k, v->mod_revision, until) &&
            keep(k, v, until))
                return true;
        while ((p = who_sees(k, v->mod_revision, until)))
                lose(p);
        return false;
}

const struct kv_key *kept_key(const struct kept_version *at)
{
        return at->v->key;
}

static const struct kept_version *within(const struct kept_version *e,
                                         const struct kv_span *span)
{
        return e && kv_span_has(span, e->v->key->bytes, e->v->key->len) ? e : NULL;
}

/* Is @key before the end that a look begins at? */
static bool is_outside(const struct kv_span *span, const struct kv_key *key, bool down)
{
        if (!down)
                return bytes_cmp(key->bytes, key->len, span->from.p, span->from.len) < 0;
        if (span->single)
                return bytes_cmp(key->bytes, key->len, span->from.p, span->from.len) > 0;
        return !span->to_end &&
               bytes_cmp(key->bytes, key->len, span->end.p, span->end.len) >= 0;
}

const struct kept_version *kept_first(const struct kept *k, const struct kv_span *span,
                                      bool down)
{
        struct kept_version *e = RB_ROOT(&k->versions), *first = NULL;

        while (e) {
                bool outside = is_outside(span, e->v->key, down);

                if (!outside)
                        first = e;
                e = outside == down ? RB_LEFT(e, by_key) : RB_RIGHT(e, by_key);
        }
        return within(first, span);
}

const struct kept_version *kept_look(const struct kept_version *at, const struct kv_span *span,
                                     bool down, int64_t revision, const struct kv_version **ret,
                                     int64_t *steps)
{
        struct kept_version *e = (struct kept_version *) (uintptr_t) at;
        const struct kv_key *key = at->v->key;

        *ret = NULL;
        do {
                --*steps;
                if (e->v->mod_revision <= revision && revision < e->until)
                        *ret = e->v;
                e = down ? RB_PREV(kept_versions, NULL, e) : RB_NEXT(kept_versions, NULL, e);
        } while (e && bytes_cmp(e->v->key->bytes, e->v->key->len, key->bytes, key->len) == 0);
        return within(e, span);
}

bool kept_sweep(struct kept *k, size_t n)
{
        if (!k->sweep_at && k->unpinned) {
                k->unpinned = false;
                k->sweep_at = RB_MIN(kept_versions, &k->versions);
        }
        for (struct kept_version *e; (e = k->sweep_at) && n > 0; n--) {
                k->sweep_at = RB_NEXT(kept_versions, &k->versions, e);
                if (!who_sees(k, e->v->mod_revision, e->until))
                        drop(k, e);
        }
        return kept_wants_sweep(k);
}
