#include "state/kept.h"

#include "base/probe.h"
#include "state/kv.h"

#define DROP_STEPS 3

struct kept_version {
        WIDER;
        RB_ENTRY(kept_version) by_key;
        struct kv_version *v; /* owned, including its key */
        int64_t until;        /* the first revision at which it was not visible any more */
        int64_t compacted;    /* the revision to which the store was being compacted when this
                               * version was dropped */
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

        if (c != 0)
                return c;
        if (x->mod_revision != y->mod_revision)
                return x->mod_revision < y->mod_revision ? -1 : 1;
        return x->sub < y->sub ? -1 : x->sub > y->sub;
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

static struct kept_pins *tree_of(struct kept *k, const struct kept_pin *p)
{
        return p->compacted < 0 ? &k->pins : &k->histories;
}

static void lose(struct kept_pin *p)
{
        RB_REMOVE(kept_pins, tree_of(p->of, p), p);
        p->of->unpinned = p->of->unpinned || !RB_EMPTY(&p->of->versions);
        p->of = NULL;
}

void kept_pin_history(struct kept *k, struct kept_pin *p, int64_t revision, int64_t compacted)
{
        *p = (struct kept_pin){.of = k, .revision = revision, .compacted = compacted};
        RB_INSERT(kept_pins, tree_of(k, p), p);
}

void kept_pin(struct kept *k, struct kept_pin *p, int64_t revision)
{
        kept_pin_history(k, p, revision, -1);
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
        kv_key_release(e->v->key);
        free(e->v);
        free(e);
}

void kept_unpin_all(struct kept *k)
{
        struct kept_pin *p;

        while ((p = RB_ROOT(&k->pins)) || (p = RB_ROOT(&k->histories)))
                lose(p);
}

bool kept_free_some(struct kept *k, size_t *left)
{
        struct kept_version *e;

        k->sweep_at = NULL;
        while ((e = RB_ROOT(&k->versions)) && *left > 0) {
                *left -= min_of(*left, DROP_STEPS + kv_free_steps(e->v->value_len));
                drop(k, e);
        }
        return !e;
}

static struct kept_pin *first_from(const struct kept_pins *pins, int64_t revision)
{
        struct kept_pin *p = RB_ROOT(pins), *best = NULL;

        while (p) {
                if (p->revision >= revision) {
                        best = p;
                        p = RB_LEFT(p, by_revision);
                } else {
                        p = RB_RIGHT(p, by_revision);
                }
        }
        return best;
}

/* Returns a pin that needs @v, or NULL. @v was visible below revision @until and was dropped
 * when the store was compacted to @compacted. */
static struct kept_pin *who_needs(const struct kept *k, const struct kv_version *v,
                                  int64_t until, int64_t compacted)
{
        struct kept_pin *p = v->version > 0 ? first_from(&k->pins, v->mod_revision) : NULL;

        if (p && p->revision < until)
                return p;
        p = first_from(&k->histories, v->mod_revision);
        while (p && p->compacted >= compacted)
                p = RB_NEXT(kept_pins, NULL, p);
        return p;
}

static struct kept_pin *oldest_pin(struct kept *k)
{
        struct kept_pin *p = RB_MIN(kept_pins, &k->pins), *h = RB_MIN(kept_pins, &k->histories);

        return !p || (h && h->revision < p->revision) ? h : p;
}

/* Ends the oldest pin. The next pin is not ended before the versions that only this one needed
 * have been freed, which takes a while; until then there is enough room. */
static void make_room(struct kept *k)
{
        if (k->bytes >= k->max && !kept_wants_sweep(k))
                lose(oldest_pin(k));
}

static bool keep(struct kept *k, struct kv_version *v, int64_t until, int64_t compacted)
{
        struct kv_key *key = calloc(1, sizeof(*key) + v->key->len);
        struct kept_version *e = malloc(sizeof(*e));

        if (!e || !key) {
                free(e);
                free(key);
                return false;
        }
        key->n_held = 1;
        key->gone = true;
        key->len = v->key->len;
        memcpy(key->bytes, v->key->bytes, key->len);
        v->key = key;
        v->older = NULL;
        *e = (struct kept_version){.v = v, .until = until, .compacted = compacted};
        RB_INSERT(kept_versions, &k->versions, e);
        k->bytes += cost(v);
        return true;
}

bool kept_take(struct kept *k, struct kv_version *v, int64_t until, int64_t compacted)
{
        struct kept_pin *p;

        if (!who_needs(k, v, until, compacted))
                return false;
        make_room(k);
        if (k->bytes + cost(v) <= 2 * k->max && who_needs(k, v, until, compacted) &&
            keep(k, v, until, compacted)) {
                PROBE("a version is kept for a reader beyond its compaction");
                return true;
        }
        while ((p = who_needs(k, v, until, compacted)))
                lose(p);
        return false;
}

const struct kv_version *kept_oldest(const struct kept *k, const void *key, size_t key_len,
                                     int64_t compacted)
{
        struct kept_version *e = RB_ROOT(&k->versions), *best = NULL;

        while (e) {
                int c = bytes_cmp(key, key_len, e->v->key->bytes, e->v->key->len);

                /* Older versions were dropped earlier or at the same time. */
                if (c == 0 && e->compacted > compacted)
                        best = e;
                e = c < 0 || (c == 0 && e->compacted > compacted) ? RB_LEFT(e, by_key)
                                                                  : RB_RIGHT(e, by_key);
        }
        return best ? best->v : NULL;
}

struct kv_key *kept_behind(const struct kept *k, const void *key, size_t key_len)
{
        struct kept_version *e = RB_ROOT(&k->versions);
        struct kv_key *best = NULL;

        while (e) {
                if (bytes_cmp(e->v->key->bytes, e->v->key->len, key, key_len) > 0) {
                        best = e->v->key;
                        e = RB_LEFT(e, by_key);
                } else {
                        e = RB_RIGHT(e, by_key);
                }
        }
        return best;
}

int64_t kept_until(const struct kept *k, const struct kv_version *v)
{
        struct kept_version key = {.v = (struct kv_version *) (uintptr_t) v},
                            *e = RB_FIND(kept_versions,
                                         (struct kept_versions *) (uintptr_t) &k->versions,
                                         &key);

        assert(e && e->v == v);
        return e->until;
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

/* Whether @key is before the end of @span at which the scan begins. */
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
                /* The deletion that ends an earlier life of the key stays visible for ever, so
                 * several versions may be visible: the newest counts. */
                if (e->v->mod_revision <= revision && revision < e->until && (!down || !*ret))
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
                if (!who_needs(k, e->v, e->until, e->compacted)) {
                        n -= min_of(n - 1, kv_free_steps(e->v->value_len));
                        drop(k, e);
                }
        }
        return kept_wants_sweep(k);
}
