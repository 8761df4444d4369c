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
                .compacted = s->kv.compacted,
                .walks = true,
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
        if (sc->counted && q->count_only)
                sc->walks = false;
        else
                sc->key = sc->counted ? kv_live_first(&s->kv, &sc->span)
                                      : kv_span_first(&s->kv, &sc->span);
        sc->walks = sc->walks && sc->key;
        return STATE_OK;
}

void scan_fini(struct state_scan *sc)
{
        buf_fini(&sc->resume);
        free(sc->found);
        free(sc->runs);
        sc->found = NULL;
        sc->runs = NULL;
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
        return 0;
}

static int pause_at(struct state_scan *sc)
{
        buf_clear(&sc->resume);
        buf_add(&sc->resume, sc->key->bytes, sc->key->len);
        sc->key = NULL;
        return buf_error(&sc->resume) < 0 ? -ENOMEM : 1;
}

/* The key may have gone since, with a compaction that does not matter. */
static void resume(struct state_scan *sc)
{
        struct kv_span rest = sc->span;

        rest.from = (struct view){buf_head(&sc->resume), buf_len(&sc->resume)};
        sc->key = kv_span_first(&sc->state->kv, &rest);
}

/* As long as nothing has changed since, the dead ones cost nothing. */
static struct kv_key *next_key(const struct state_scan *sc)
{
        return kv_is_newest(&sc->state->kv, sc->revision) ? kv_live_next(&sc->span, sc->key)
                                                          : kv_span_next(&sc->span, sc->key);
}

bool scan_is_good(const struct state_scan *sc)
{
        return sc->state->kv.compacted == sc->compacted ||
               sc->state->kv.compacted <= sc->revision;
}

int scan_more(struct state_scan *sc, int64_t *steps)
{
        bool only_count = sc->q->count_only;

        if (!scan_is_good(sc))
                return -ESTALE;
        if (!sc->walks)
                return 0;
        if (!sc->key)
                resume(sc);
        while (sc->key && !(sc->counted && !sc->sort_all && sc->n >= sc->keep)) {
                const struct kv_version *v = sc->at ? sc->at : sc->key->newest;

                if (*steps <= 0) {
                        sc->at = NULL;
                        return pause_at(sc);
                }
                *steps -= LOOK_STEPS;
                for (size_t i = 1; v && v->mod_revision > sc->revision; i++, v = v->older) {
                        --*steps;
                        /* A version that is later than ours stays, whatever is compacted. */
                        if (i % CHECK_STEPS == 0 && *steps <= 0) {
                                sc->at = v;
                                return pause_at(sc);
                        }
                }
                sc->at = NULL;
                if (v && v->version > 0) {
                        sc->count += !sc->counted;
                        if (!only_count && (sc->sort_all || sc->n < sc->keep) &&
                            wanted(sc->q, v) && add(sc, v, steps) < 0)
                                return -ENOMEM;
                }
                sc->key = next_key(sc);
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
