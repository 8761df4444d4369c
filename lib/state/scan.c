#include "state/scan.h"

#define SORT_STEPS 16 /* cost of inserting an item into the heap */
#define COMPARE_PART ((size_t) 4096)
#define STEP_BYTES ((size_t) 512) /* bytes that are compared cost one more */

static bool wanted(const Pb__RangeRequest *q, const struct kv_version *v)
{
        return (q->min_mod_revision == 0 || v->mod_revision >= q->min_mod_revision) &&
               (q->max_mod_revision == 0 || v->mod_revision <= q->max_mod_revision) &&
               (q->min_create_revision == 0 || v->create_revision >= q->min_create_revision) &&
               (q->max_create_revision == 0 || v->create_revision <= q->max_create_revision);
}

static bool is_descending(const Pb__RangeRequest *q)
{
        return q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
}

/* The first bytes as a number: of two versions, the one with the greater number has the greater
 * value. */
static uint64_t first_bytes(const struct kv_version *v)
{
        uint64_t n = 0;

        for (size_t i = 0; i < sizeof(n); i++)
                n = n << 8 | (i < v->value_len ? v->value[i] : 0);
        return n;
}

static uint64_t rank(const struct kv_version *v, const Pb__RangeRequest *q)
{
        const uint64_t sign = UINT64_C(1) << 63;
        uint64_t n;

        switch (q->sort_target) {
        case PB__RANGE_REQUEST__SORT_TARGET__VERSION:
                n = (uint64_t) v->version ^ sign;
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__CREATE:
                n = (uint64_t) v->create_revision ^ sign;
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__MOD:
                n = (uint64_t) v->mod_revision ^ sign;
                break;
        default:
                n = first_bytes(v);
                break;
        }
        return is_descending(q) ? ~n : n;
}

/* Like bytes_cmp(), but subtracts the cost of the bytes to read from *@steps. */
static int long_cmp(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len,
                    int64_t *steps)
{
        size_t common = min_of(a_len, b_len), part;
        int c = 0;

        for (size_t at = 0; c == 0 && at < common; at += part) {
                part = min_of(common - at, COMPARE_PART);
                c = memcmp(a + at, b + at, part);
                *steps -= (int64_t) (part / STEP_BYTES);
        }
        return c != 0 ? c : a_len < b_len ? -1 : a_len > b_len;
}

/* Items that compare equal stay in the order of their keys. */
static int item_cmp(const struct scan_item *a, const struct scan_item *b,
                    const Pb__RangeRequest *q, int64_t *steps)
{
        const struct kv_version *x = a->v, *y = b->v;
        int c = 0;

        if (a->rank != b->rank)
                return a->rank < b->rank ? -1 : 1;
        if (q->sort_target == PB__RANGE_REQUEST__SORT_TARGET__VALUE)
                c = long_cmp(x->value, x->value_len, y->value, y->value_len, steps);
        if (c != 0)
                return is_descending(q) ? -c : c;
        return long_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len, steps);
}

enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision)
{
        bool filtered = q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
                        q->max_create_revision;
        bool ordered = q->sort_order != PB__RANGE_REQUEST__SORT_ORDER__NONE;
        struct kv_span span = kv_span(&q->key, &q->range_end);

        if (q->revision > s->revision)
                return STATE_E_FUTURE;
        if (q->revision > 0 && q->revision < s->kv.compacted)
                return STATE_E_COMPACTED;
        revision = q->revision > 0 ? q->revision : revision;
        *sc = (struct state_scan){
                .q = q,
                .limit = q->limit > 0 ? (size_t) q->limit : SIZE_MAX,
                .window = SIZE_MAX,
        };
        sc->sorted = q->sort_target != PB__RANGE_REQUEST__SORT_TARGET__KEY;
        kv_iter_as_of(&sc->it, &s->kv, &span, revision, !sc->sorted && is_descending(q));
        /* With a sort target but no order, etcd sorts the items that are left by the limit,
         * which it applies after the filters. */
        sc->sort_all = sc->sorted && (filtered || ordered);
        /* For the newest revision the tree knows the number of keys; for an earlier one the
         * keys must be walked. */
        sc->counted = kv_is_newest(&s->kv, revision);
        if (sc->counted)
                sc->count = (int64_t) kv_span_count(&s->kv, &span);
        sc->walks = !sc->counted || !q->count_only;
        return STATE_OK;
}

void scan_pin(struct state_scan *sc, struct kv *kv)
{
        kv_iter_pin(&sc->it, kv);
}

void scan_fini(struct state_scan *sc)
{
        kv_iter_fini(&sc->it);
        free(sc->items);
        sc->items = NULL;
}

bool scan_is_good(const struct state_scan *sc)
{
        return kv_iter_is_good(&sc->it);
}

/* ---- walking ---- */

/* Whether the remaining keys do not matter: the count is known, and so is whether there are
 * more keys than the limit. */
static bool is_enough(const struct state_scan *sc)
{
        return sc->counted && !sc->sort_all && sc->n_met > sc->limit;
}

/* Finds the next key that is wanted; *@ret is NULL at the end. Returns as scan_next(). */
static int walk(struct state_scan *sc, int64_t *steps, const struct kv_version **ret)
{
        while (!is_enough(sc)) {
                int r = kv_iter_next(&sc->it, steps);

                if (r == KV_PAUSE || r < 0)
                        return r;
                if (r == 0)
                        break;
                sc->count += !sc->counted;
                if (!sc->q->count_only && wanted(sc->q, sc->it.version)) {
                        sc->n_met++;
                        sc->more = sc->more || sc->n_met > sc->limit;
                        *ret = sc->it.version;
                        return 0;
                }
        }
        sc->walks = false;
        sc->counted = true;
        *ret = NULL;
        return 0;
}

static void walk_again(struct state_scan *sc)
{
        kv_iter_rewind(&sc->it);
        sc->walks = !sc->q->count_only;
        sc->n_met = 0;
}

static int next_walked(struct state_scan *sc, int64_t *steps, const struct kv_version **ret)
{
        *ret = NULL;
        while (sc->walks) {
                int r = walk(sc, steps, ret);

                if (r != 0 || (*ret && sc->n_met <= sc->limit))
                        return r;
                *ret = NULL; /* past the limit; the rest is only counted */
        }
        return 0;
}

/* ---- sorting: collects the first items into a heap, then takes the heap apart ---- */

static void sift_up(struct state_scan *sc, size_t i, int64_t *steps)
{
        struct scan_item item = sc->items[i];

        for (size_t up; i > 0; i = up) {
                up = (i - 1) / 2;
                if (item_cmp(&item, &sc->items[up], sc->q, steps) <= 0)
                        break;
                sc->items[i] = sc->items[up];
        }
        sc->items[i] = item;
}

/* Replaces the top by @item, among the first `n_heap` items. */
static void sift_down(struct state_scan *sc, struct scan_item item, int64_t *steps)
{
        size_t i = 0, child;

        for (; (child = 2 * i + 1) < sc->n_heap; i = child) {
                if (child + 1 < sc->n_heap &&
                    item_cmp(&sc->items[child], &sc->items[child + 1], sc->q, steps) < 0)
                        child++;
                if (item_cmp(&item, &sc->items[child], sc->q, steps) >= 0)
                        break;
                sc->items[i] = sc->items[child];
        }
        sc->items[i] = item;
}

static int offer(struct state_scan *sc, const struct kv_version *v, int64_t *steps)
{
        struct scan_item item = {rank(v, sc->q), v};

        /* The item was returned before, or is beyond the limit. */
        if (sc->last.v && item_cmp(&item, &sc->last, sc->q, steps) <= 0)
                return 0;
        if (sc->n == min_of(sc->window, sc->limit - sc->n_out)) {
                sc->beyond = true;
                if (item_cmp(&item, &sc->items[0], sc->q, steps) > 0)
                        return 0;
                *steps -= SORT_STEPS;
                sift_down(sc, item, steps);
                return 0;
        }
        if (array_reserve(&sc->items, &sc->cap, sc->n + 1, sizeof(*sc->items)) < 0)
                return -ENOMEM;
        *steps -= SORT_STEPS / 4;
        sc->items[sc->n++] = item;
        sc->n_heap = sc->n;
        sift_up(sc, sc->n - 1, steps);
        return 0;
}

static int collect(struct state_scan *sc, int64_t *steps)
{
        while (sc->walks) {
                const struct kv_version *v;
                int r = walk(sc, steps, &v);

                /* Without an order, only the first items up to the limit, and one more, are
                 * sorted. */
                if (r == 0 && v && (sc->sort_all || sc->n_met - 1 <= sc->limit))
                        r = offer(sc, v, steps);
                if (r != 0)
                        return r;
        }
        return 0;
}

static int take_apart(struct state_scan *sc, int64_t *steps)
{
        while (sc->n_heap > 0) {
                struct scan_item top = sc->items[0];

                if (*steps <= 0)
                        return 1;
                *steps -= SORT_STEPS;
                sc->n_heap--;
                if (sc->n_heap > 0)
                        sift_down(sc, sc->items[sc->n_heap], steps);
                sc->items[sc->n_heap] = top;
        }
        return 0;
}

static void collect_again(struct state_scan *sc)
{
        sc->n = sc->n_heap = sc->n_taken = 0;
        sc->beyond = false;
        walk_again(sc);
}

static int next_sorted(struct state_scan *sc, int64_t *steps, const struct kv_version **ret)
{
        int r;

        if (!scan_is_good(sc))
                return -ESTALE;
        *ret = NULL;
        if (sc->n_out == sc->limit)
                return 0;
        if (!sc->walks && sc->n_taken == sc->n && sc->beyond)
                collect_again(sc);
        r = collect(sc, steps);
        if (r == 0)
                r = take_apart(sc, steps);
        if (r != 0 || sc->n_taken == sc->n)
                return r;
        sc->last = sc->items[sc->n_taken++];
        sc->n_out++;
        *ret = sc->last.v;
        return 0;
}

int scan_next(struct state_scan *sc, int64_t *steps, const struct kv_version **ret)
{
        return sc->sorted ? next_sorted(sc, steps, ret) : next_walked(sc, steps, ret);
}

void scan_rewind(struct state_scan *sc)
{
        bool whole = sc->sorted && sc->n_out == sc->n_taken;

        sc->n_out = 0;
        sc->last.v = NULL;
        if (whole) /* everything returned so far is still in the list */
                sc->n_taken = 0;
        else
                collect_again(sc);
}

size_t scan_bytes(const struct state_scan *sc)
{
        return sc->cap * sizeof(*sc->items);
}
