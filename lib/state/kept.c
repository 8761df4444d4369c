#include "state/kept.h"

#include "base/probe.h"
#include "state/kv.h"

#define KEEP_STEPS 5 /* to insert a version among a million */

static int pin_cmp(const struct kept_pin *a, const struct kept_pin *b)
{
        if (a->upto != b->upto)
                return a->upto < b->upto ? -1 : 1;
        return (uintptr_t) a < (uintptr_t) b ? -1 : a != b;
}

static int place_cmp(struct view key, int64_t revision, uint32_t sub,
                     const struct kept_version *e)
{
        int c = bytes_cmp(key.p, key.len, e->key->bytes, e->key->len);

        if (c != 0)
                return c;
        if (revision != e->v->mod_revision)
                return revision < e->v->mod_revision ? -1 : 1;
        return sub < e->v->sub ? -1 : sub > e->v->sub;
}

static int kept_version_cmp(const struct kept_version *a, const struct kept_version *b)
{
        return place_cmp((struct view){a->key->bytes, a->key->len}, a->v->mod_revision,
                         a->v->sub, b);
}

static void look_again(struct kept_pin *p)
{
        const struct kept_pin *left = RB_LEFT(p, by_upto), *right = RB_RIGHT(p, by_upto);

        p->least = p->from;
        if (left)
                p->least = min_of(p->least, left->least);
        if (right)
                p->least = min_of(p->least, right->least);
}

/* tree(3bsd) calls this for nodes whose children have changed, but not for all ancestors of a
 * new or removed node. */
#undef RB_AUGMENT
#define RB_AUGMENT(p) look_again(p)
TREE_GENERATE(kept_pins, kept_pin, by_upto, pin_cmp)
#undef RB_AUGMENT
#define RB_AUGMENT(e) ((void) 0)
TREE_GENERATE(kept_versions, kept_version, by_key, kept_version_cmp)

static size_t cost(const struct kv_version *v)
{
        return sizeof(struct kept_version) + sizeof(*v) + v->value_len + sizeof(*v->key) +
               v->key->len;
}

void kept_init(struct kept *k)
{
        *k = (struct kept){.max = KEPT_MAX};
}

/* ---- pins ---- */

static void set_from(struct kept_pin *p, int64_t from)
{
        p->from = from;
        for (; p; p = RB_PARENT(p, by_upto))
                look_again(p);
}

void kept_pin(struct kept *k, struct kept_pin *p, int64_t from, int64_t upto)
{
        *p = (struct kept_pin){.of = k, .upto = upto, .from = INT64_MAX, .least = INT64_MAX};
        RB_INSERT(kept_pins, &k->pins, p);
        set_from(p, from);
}

static void lose(struct kept_pin *p)
{
        set_from(p, INT64_MAX); /* its ancestors must forget it before the tree is rebalanced */
        RB_REMOVE(kept_pins, &p->of->pins, p);
        p->of->unpinned = p->of->unpinned || !RB_EMPTY(&p->of->versions);
        p->of = NULL;
}

void kept_unpin(struct kept_pin *p)
{
        if (p->of)
                lose(p);
}

void kept_unpin_all(struct kept *k)
{
        while (!RB_EMPTY(&k->pins))
                lose(RB_ROOT(&k->pins));
}

/* A pin up to @upto or later that reaches back to before @from; NULL: there is none. */
static struct kept_pin *find_pin(const struct kept *k, int64_t upto, int64_t from)
{
        struct kept_pin *p = RB_ROOT(&k->pins), *right;

        while (p && p->least < from) {
                right = RB_RIGHT(p, by_upto);
                if (p->upto >= upto && p->from < from)
                        return p;
                /* All that follow @p are up to @upto or later, if it is. */
                p = p->upto < upto || (right && right->least < from) ? right
                                                                     : RB_LEFT(p, by_upto);
        }
        return NULL;
}

/* ---- versions ---- */

static void drop(struct kept *k, struct kept_version *e, struct budget *left)
{
        budget_charge_free(left, sizeof(*e) + e->v->value_len);
        budget_charge_free(left, e->key->len);
        RB_REMOVE(kept_versions, &k->versions, e);
        k->n--;
        k->n_changes++;
        k->bytes -= cost(e->v);
        kv_key_release(e->key);
        free(e->v);
        free(e);
}

bool kept_free_some(struct kept *k, struct budget *left)
{
        struct kept_version *e;

        k->sweep_at = NULL;
        while ((e = RB_ROOT(&k->versions)) && !budget_is_spent(left))
                drop(k, e, left);
        return !e;
}

/* Ends the pin that reaches back furthest. The next one is not ended before the versions that
 * only this one needed have been freed, which takes a while; until then there is enough room.
 */
static void make_room(struct kept *k)
{
        if (k->bytes >= k->max && !kept_wants_sweep(k))
                lose(find_pin(k, INT64_MIN, RB_ROOT(&k->pins)->least + 1));
}

static bool keep(struct kept *k, struct kv_version *v, int64_t until)
{
        struct kept_version *e = malloc(sizeof(*e));

        if (!e)
                return false;
        v->older = NULL;
        *e = (struct kept_version){.key = kv_key_hold(v->key), .v = v, .until = until};
        RB_INSERT(kept_versions, &k->versions, e);
        k->n++;
        k->n_changes++;
        k->bytes += cost(v);
        return true;
}

bool kept_take(struct kept *k, struct kv_version *v, int64_t until, struct budget *left)
{
        struct kept_pin *p;

        if (!find_pin(k, v->mod_revision, until))
                return false;
        budget_charge(left, KEEP_STEPS);
        budget_charge_read(left, budget_search_bytes(k->n, v->key->len));
        make_room(k);
        if (k->bytes + cost(v) <= 2 * k->max && find_pin(k, v->mod_revision, until) &&
            keep(k, v, until)) {
                PROBE("a version is kept for a reader beyond its compaction");
                return true;
        }
        while ((p = find_pin(k, v->mod_revision, until)))
                lose(p);
        return false;
}

struct kept_version *kept_before(const struct kept *k, struct view key, int64_t revision,
                                 uint32_t sub)
{
        struct kept_version *e = RB_ROOT(&k->versions), *best = NULL;

        while (e) {
                if (place_cmp(key, revision, sub, e) > 0) {
                        best = e;
                        e = RB_RIGHT(e, by_key);
                } else {
                        e = RB_LEFT(e, by_key);
                }
        }
        return best;
}

bool kept_sweep(struct kept *k, struct budget *left)
{
        if (!k->sweep_at && k->unpinned) {
                k->unpinned = false;
                k->sweep_at = RB_MIN(kept_versions, &k->versions);
        }
        for (struct kept_version *e; (e = k->sweep_at) && !budget_is_spent(left);) {
                k->sweep_at = RB_NEXT(kept_versions, &k->versions, e);
                budget_charge(left, 1);
                if (!find_pin(k, e->v->mod_revision, e->until))
                        drop(k, e, left);
        }
        return kept_wants_sweep(k);
}
