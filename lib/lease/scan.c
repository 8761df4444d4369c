#include "lease/scan.h"

#define RUN 2048       /* sorted at once: a millisecond or so */
#define SORT_STEPS 8   /* for each of a run */
#define LOOK_STEPS 2   /* to look at a key */
#define CHECK_STEPS 64 /* nobody asks how many steps are left more often */

static bool wanted(const Pb__RangeRequest *q, const struct kv_version *v)
{
        return (q->min_mod_revision == 0 || v->mod_revision >= q->min_mod_revision) &&
               (q->max_mod_revision == 0 || v->mod_revision <= q->max_mod_revision) &&
               (q->min_create_revision == 0 || v->create_revision >= q->min_create_revision) &&
               (q->max_create_revision == 0 || v->create_revision <= q->max_create_revision);
}

static int cmp_i64(int64_t a, int64_t b)
{
        return a < b ? -1 : a > b;
}

static int target_cmp(const struct kv_version *x, const struct kv_version *y,
                      const Pb__RangeRequest *q)
{
        int c = 0;

        switch (q->sort_target) {
        case PB__RANGE_REQUEST__SORT_TARGET__VERSION:
                c = cmp_i64(x->version, y->version);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__CREATE:
                c = cmp_i64(x->create_revision, y->create_revision);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__MOD:
                c = cmp_i64(x->mod_revision, y->mod_revision);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__VALUE:
                c = bytes_cmp(x->value, x->value_len, y->value, y->value_len);
                break;
        default:
                c = bytes_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len);
                break;
        }
        if (q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND)
                c = -c;
        /* Equal ones stay in the order of their keys. */
        return c != 0 ? c : bytes_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len);
}

static int by_target(const void *a, const void *b, void *arg)
{
        return target_cmp(*(const struct kv_version *const *) a,
                          *(const struct kv_version *const *) b, arg);
}

enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision)
{
        bool filtered = q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
                        q->max_create_revision;
        bool ordered = q->sort_order != PB__RANGE_REQUEST__SORT_ORDER__NONE;

        if (q->revision > s->revision)
                return STATE_E_FUTURE;
        if (q->revision > 0 && q->revision < s->kv.compacted)
                return STATE_E_COMPACTED;
        *sc = (struct state_scan){
                .state = s,
                .q = q,
                .span = kv_span(&q->key, &q->range_end),
                .revision = q->revision > 0 ? q->revision : revision,
                .limit = q->limit > 0 ? (size_t) q->limit : SIZE_MAX,
        };
        sc->sorted = q->sort_target != PB__RANGE_REQUEST__SORT_TARGET__KEY ||
                     q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        /* With a target and no order, etcd sorts what the limit has left, and does not limit
         * what it filters. */
        sc->sort_all = sc->sorted && (filtered || ordered);
        sc->keep = sc->limit == SIZE_MAX ? SIZE_MAX : sc->limit + 1;
        /* How many there are now, the tree knows; how many there were, only a walk tells. */
        sc->counted = kv_is_newest(&s->kv, sc->revision);
        if (sc->counted)
                sc->count = (int64_t) kv_span_count(&s->kv, &sc->span);
        sc->walks = !sc->counted || !q->count_only;
        return STATE_OK;
}

void scan_pin(struct state_scan *sc, struct kv *kv)
{
        kept_pin(&kv->kept, &sc->pin, sc->revision);
}

void scan_fini(struct state_scan *sc)
{
        kept_unpin(&sc->pin);
        buf_fini(&sc->resume);
        free(sc->found);
        free(sc->runs);
        free(sc->first);
        sc->found = NULL;
        sc->runs = sc->first = NULL;
}

/* ---- sorting ---- */

static void sort_from(struct state_scan *sc, size_t from, int64_t *steps)
{
        *steps -= (int64_t) (sc->n - from) * SORT_STEPS;
        qsort_r(sc->found + from, sc->n - from, sizeof(struct kv_version *), by_target,
                (void *) (uintptr_t) sc->q);
}

static int end_run(struct state_scan *sc, int64_t *steps)
{
        if (sc->run_from == sc->n)
                return 0;
        if (array_reserve(&sc->runs, &sc->runs_cap, sc->n_runs + 1, sizeof(*sc->runs)) < 0)
                return -ENOMEM;
        sort_from(sc, sc->run_from, steps);
        sc->runs[sc->n_runs++] = (struct scan_run){sc->run_from, sc->n};
        sc->run_from = sc->n;
        return 0;
}

static bool run_before(const struct state_scan *sc, size_t a, size_t b)
{
        return target_cmp(sc->found[sc->runs[a].at], sc->found[sc->runs[b].at], sc->q) < 0;
}

static void sift_down(struct state_scan *sc, size_t i)
{
        for (;;) {
                size_t left = 2 * i + 1, least = i;
                struct scan_run swap;

                if (left < sc->n_runs && run_before(sc, left, least))
                        least = left;
                if (left + 1 < sc->n_runs && run_before(sc, left + 1, least))
                        least = left + 1;
                if (least == i)
                        return;
                swap = sc->runs[i];
                sc->runs[i] = sc->runs[least];
                sc->runs[least] = swap;
                i = least;
        }
}

/* Of what is found, only so many can be in the answer. */
static bool is_first_few(const struct state_scan *sc)
{
        return sc->sort_all && sc->keep <= RUN;
}

static int add(struct state_scan *sc, const struct kv_version *v, int64_t *steps)
{
        if (array_reserve(&sc->found, &sc->cap, sc->n + 1, sizeof(*sc->found)) < 0)
                return -ENOMEM;
        sc->found[sc->n++] = v;
        if (!sc->sorted)
                return 0;
        if (is_first_few(sc)) {
                if (sc->n >= 2 * RUN) {
                        sort_from(sc, 0, steps);
                        sc->n = sc->keep;
                }
                return 0;
        }
        return sc->n - sc->run_from >= RUN ? end_run(sc, steps) : 0;
}

/* ---- walking ---- */

static int finish(struct state_scan *sc, int64_t *steps)
{
        sc->walks = false;
        if (!sc->sorted)
                return 0;
        if (end_run(sc, steps) < 0)
                return -ENOMEM;
        for (size_t i = sc->n_runs / 2; i-- > 0;)
                sift_down(sc, i);
        if (sc->n_runs == 0)
                return 0;
        sc->first = malloc(sc->n_runs * sizeof(*sc->first));
        if (!sc->first)
                return -ENOMEM;
        memcpy(sc->first, sc->runs, sc->n_runs * sizeof(*sc->first));
        sc->n_first = sc->n_runs;
        return 0;
}

/* Which key comes next: below 0 one that there is, above 0 one that was compacted, 0: both are
 * the same. */
static int order(const struct state_scan *sc)
{
        const struct kv_key *kept = sc->kept ? kept_key(sc->kept) : NULL;

        if (!kept || !sc->key)
                return kept ? 1 : -1;
        return bytes_cmp(sc->key->bytes, sc->key->len, kept->bytes, kept->len);
}

static int pause_at(struct state_scan *sc, const struct kv_key *k, const struct kv_version *v)
{
        buf_clear(&sc->resume);
        buf_add(&sc->resume, k->bytes, k->len);
        sc->key = NULL;
        sc->kept = NULL;
        sc->at = v;
        sc->compacted = sc->state->kv.compacted;
        sc->is_there = false;
        return buf_error(&sc->resume) < 0 ? -ENOMEM : 1;
}

/* As long as nothing has changed since, the dead ones cost nothing. */
static bool is_newest(const struct state_scan *sc)
{
        return kv_is_newest(&sc->state->kv, sc->revision);
}

/* Begins, or goes on. The key may have gone since, with a compaction that does not matter or
 * has left us what we look at. */
static void get_there(struct state_scan *sc)
{
        const struct kv *kv = &sc->state->kv;
        struct kv_span rest = sc->span;

        if (buf_len(&sc->resume) > 0)
                rest.from = (struct view){buf_head(&sc->resume), buf_len(&sc->resume)};
        sc->is_there = true;
        if (kv->compacted != sc->compacted)
                sc->at = NULL;
        sc->key = is_newest(sc) ? kv_live_first(kv, &rest) : kv_span_first(kv, &rest);
        if (kv->compacted > sc->revision)
                sc->kept = kept_first(&kv->kept, &rest);
}

static struct kv_key *next_key(const struct state_scan *sc)
{
        return is_newest(sc) ? kv_live_next(&sc->span, sc->key)
                             : kv_span_next(&sc->span, sc->key);
}

bool scan_is_good(const struct state_scan *sc)
{
        return sc->pin.of || sc->state->kv.compacted <= sc->revision;
}

/* What there is of `key`, as of the revision. Returns 0; or 1, with where it has come to. */
static int look(struct state_scan *sc, const struct kv_version **ret, int64_t *steps)
{
        const struct kv_version *v = sc->at ? sc->at : sc->key->newest;

        sc->at = NULL;
        for (size_t i = 1; v && v->mod_revision > sc->revision; i++, v = v->older) {
                --*steps;
                if (i % CHECK_STEPS == 0 && *steps <= 0) {
                        *ret = v;
                        return 1;
                }
        }
        *ret = v;
        return 0;
}

int scan_more(struct state_scan *sc, int64_t *steps)
{
        bool only_count = sc->q->count_only;

        if (!scan_is_good(sc))
                return -ESTALE;
        if (!sc->walks)
                return 0;
        if (!sc->is_there)
                get_there(sc);
        while ((sc->key || sc->kept) && !(sc->counted && !sc->sort_all && sc->n >= sc->keep)) {
                const struct kept_version *next = NULL;
                const struct kv_version *v = NULL, *kept = NULL;
                int c = order(sc);

                if (*steps <= 0)
                        return pause_at(sc, c <= 0 ? sc->key : kept_key(sc->kept), NULL);
                *steps -= LOOK_STEPS;
                if (c <= 0 && look(sc, &v, steps) > 0)
                        return pause_at(sc, sc->key, v);
                if (c >= 0) {
                        next = kept_look(sc->kept, &sc->span, sc->revision, &kept, steps);
                        v = v ? v : kept;
                }
                if (v && v->version > 0) {
                        sc->count += !sc->counted;
                        if (!only_count && (sc->sort_all || sc->n < sc->keep) &&
                            wanted(sc->q, v) && add(sc, v, steps) < 0)
                                return -ENOMEM;
                }
                if (c <= 0)
                        sc->key = next_key(sc);
                if (c >= 0)
                        sc->kept = next;
        }
        return finish(sc, steps);
}

const struct kv_version *scan_next(struct state_scan *sc)
{
        const struct kv_version *v;
        size_t n = sc->n_out;

        sc->more = sc->n > sc->limit;
        if (n == sc->n || n == sc->limit)
                return NULL;
        sc->n_out++;
        if (!sc->sorted)
                return sc->found[n];
        v = sc->found[sc->runs[0].at++];
        if (sc->runs[0].at == sc->runs[0].end)
                sc->runs[0] = sc->runs[--sc->n_runs];
        sift_down(sc, 0);
        return v;
}

void scan_rewind(struct state_scan *sc)
{
        sc->n_out = 0;
        sc->n_runs = sc->n_first;
        if (sc->n_first > 0)
                memcpy(sc->runs, sc->first, sc->n_first * sizeof(*sc->first));
}

size_t scan_bytes(const struct state_scan *sc)
{
        return sc->cap * sizeof(*sc->found) + 2 * sc->runs_cap * sizeof(*sc->runs) +
               sc->resume.cap;
}
