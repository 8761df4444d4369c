/* The tree of keys: its answers about a range are those that a walk would find. */
#include "../whole.h"
#include "state/internal.h"
#include "state/scan.h"
#include "test.h"

#define KEYS 300

static size_t key_name(uint64_t i, uint8_t *out)
{
        /* Some are the beginnings of others, and some have a zero at their end. */
        return (size_t) snprintf((char *) out, 16, "k%03u", (unsigned) i) + (i % 3 == 0) -
               (i % 7 == 0);
}

static void change(struct kv *kv, int64_t revision)
{
        uint8_t key[16] = {0};
        size_t len = key_name(rnd(0, KEYS - 1), key);
        struct kv_key *k = kv_find(kv, key, len);
        const char *values[] = {"", "v", "v\0", "w", "abcdefgh", "abcdefgha", "abcdefghb"};
        const char *value = values[rnd(0, ARRAY_SIZE(values) - 1)];

        if (k && kv_live(k) && rnd(0, 2) > 0)
                CHECK_EQ(kv_delete(kv, revision, 0, k), 0);
        else
                CHECK_EQ(kv_put(kv, revision, 0, key, len, value,
                                strlen(value) + (value == values[2]), 0, &k),
                         0);
}

static size_t walk(const struct kv *kv, const struct kv_span *span)
{
        size_t n = 0;

        for (struct kv_key *k = kv_span_first(kv, span); k; k = kv_span_next(span, k))
                n += kv_live(k);
        return n;
}

static const struct kv_key *eldest(const struct kv *kv, const struct kv_span *span)
{
        const struct kv_key *best = NULL;

        for (struct kv_key *k = kv_span_first(kv, span); k; k = kv_span_next(span, k))
                if (kv_live(k) &&
                    (!best || k->newest->create_revision < best->newest->create_revision))
                        best = k;
        return best;
}

static void check_span(const struct kv *kv)
{
        uint8_t from[16] = {0}, end[16] = {0};
        ProtobufCBinaryData key = pb_bytes(from, key_name(rnd(0, KEYS), from)),
                            range_end = pb_bytes(end, key_name(rnd(0, KEYS), end));
        struct kv_span span;

        if (rnd(0, 9) == 0)
                range_end = pb_bytes(end, 0);
        else if (rnd(0, 9) == 0)
                range_end = pb_bytes("", 1);
        span = kv_span(&key, &range_end);
        CHECK_EQ(kv_span_count(kv, &span), walk(kv, &span));
        CHECK(kv_span_eldest(kv, &span) == eldest(kv, &span));
}

static void check_all(const struct kv *kv)
{
        ProtobufCBinaryData zero = pb_bytes("", 1);
        struct kv_span all = kv_span(&zero, &zero);

        CHECK_EQ(kv_span_count(kv, &all), kv->n_keys);
        CHECK_EQ(walk(kv, &all), kv->n_keys);
}

TEST(what_the_tree_says_is_what_a_walk_finds)
{
        struct kv kv;

        kv_init(&kv);
        check_all(&kv);
        for (int64_t revision = 2; revision < 3000; revision++) {
                for (uint64_t n = rnd(1, 3); n > 0; n--) /* some are created together */
                        change(&kv, revision);
                check_span(&kv);
                if (rnd(0, 99) == 0) {
                        kv_compact(&kv, (int64_t) rnd((uint64_t) max_of(kv.compacted, 1),
                                                      (uint64_t) revision));
                        check_all(&kv);
                }
        }
        check_all(&kv);
        kv_fini(&kv);
}

/* What is visible at @revision and later is the same in @a and in @b. */
static void check_seen(const struct kv *a, const struct kv *b, int64_t revision, int64_t now)
{
        for (unsigned n = 0; n < 200; n++) {
                int64_t at =
                        n % 2 ? revision : (int64_t) rnd((uint64_t) revision, (uint64_t) now);
                uint8_t key[16] = {0};
                size_t len = key_name(rnd(0, KEYS - 1), key);
                const struct kv_key *x = kv_find(a, key, len), *y = kv_find(b, key, len);
                const struct kv_version *v = x ? kv_at(x, at) : NULL,
                                        *u = y ? kv_at(y, at) : NULL;

                CHECK(!v == !u);
                CHECK(!v || (v->mod_revision == u->mod_revision && v->version == u->version));
        }
}

/* Below @kv.compacted only what is visible at that revision is left. */
static void check_compacted(const struct kv *kv)
{
        size_t n_history = 0;
        struct kv_key *k;

        RB_FOREACH (k, kv_tree, (struct kv_tree *) (uintptr_t) &kv->keys)
                for (const struct kv_version *v = k->newest; v; v = v->older) {
                        CHECK(v->newer ? v->newer->older == v : k->newest == v);
                        n_history += v->mod_revision >= kv->compacted;
                        CHECK(v->mod_revision >= kv->compacted ||
                              (v->version > 0 && !v->older));
                }
        CHECK_EQ(n_history, kv->history_to - kv->history_from);
}

/* Hundreds of changes at one revision, too. */
TEST(a_compaction_in_slices_comes_to_the_same)
{
        struct kv kv[3]; /* compacted in slices, at once, and never */
        int64_t revision = 1;

        for (unsigned i = 0; i < 3; i++)
                kv_init(&kv[i]);
        for (unsigned round = 0; round < 30; round++) {
                int64_t goal;
                struct budget left;

                for (unsigned n = 0; n < 40; n++) {
                        uint64_t many = rnd(0, 9) == 0 ? KEYS : 2;

                        revision++;
                        for (uint32_t sub = 0; sub < many; sub++) {
                                uint8_t key[16] = {0};
                                size_t len = key_name(rnd(0, KEYS - 1), key);
                                bool deletes = rnd(0, 1);

                                for (unsigned i = 0; i < 3; i++) {
                                        struct kv_key *k = kv_find(&kv[i], key, len);

                                        if (k && kv_live(k) && deletes)
                                                CHECK_EQ(kv_delete(&kv[i], revision, sub, k),
                                                         0);
                                        else
                                                CHECK_EQ(kv_put(&kv[i], revision, sub, key, len,
                                                                "v", 1, 0, &k),
                                                         0);
                                }
                        }
                }
                goal = (int64_t) rnd((uint64_t) kv[0].compacted + 1, (uint64_t) revision);
                for (left.left = rnd(1, 500); !kv_compact_some(&kv[0], goal, &left);
                     left.left = rnd(1, 500)) {
                        CHECK(budget_is_spent(&left));
                        check_seen(&kv[0], &kv[2], goal, revision);
                }
                kv_compact(&kv[1], goal);
                check_seen(&kv[0], &kv[2], goal, revision);
                check_compacted(&kv[0]);
                CHECK_EQ(kv[0].bytes, kv[1].bytes);
                CHECK_EQ(kv[0].n_all, kv[1].n_all);
        }
        for (unsigned i = 0; i < 3; i++)
                kv_fini(&kv[i]);
}

#define LARGE ((size_t) 1 << 20)

static void put_large(struct kv *kv, int64_t revision, const uint8_t *value)
{
        struct kv_key *k;

        CHECK_EQ(kv_put(kv, revision, 0, "k", 1, value, LARGE, 0, &k), 0);
}

/* The kernel takes back the pages of a large value when it is freed, so a turn of the loop
 * frees only some: by a compaction, when a state is replaced, and when a reader's pin is gone.
 */
TEST(large_values_are_freed_a_few_at_a_time)
{
        cleanup_(freep) uint8_t *value = calloc(1, LARGE);
        struct kept_pin pin;
        struct kv kv;
        struct budget left;
        int64_t goal;

        CHECK(value);
        kv_init(&kv);
        for (int64_t revision = 2; revision <= 101; revision++)
                put_large(&kv, revision, value);
        goal = kv_compact_step(&kv, 101);
        CHECK(goal > 2 && goal < 80);
        left.left = 1000;
        CHECK(!kv_compact_some(&kv, 31, &left));
        CHECK(kv.bytes > 90 * LARGE);
        kv_compact(&kv, 31);
        CHECK(kv.bytes < 72 * LARGE);
        kept_pin(&kv.kept, &pin, 31, 31);
        kv_compact(&kv, 32);
        kept_unpin(&pin);
        CHECK(kv.kept.bytes > LARGE);
        for (int64_t revision = 102; revision <= 120; revision++) {
                kept_pin(&kv.kept, &pin, revision - 1, revision - 1);
                put_large(&kv, revision, value);
                kv_compact(&kv, revision);
                kept_unpin(&pin);
        }
        CHECK(kv.kept.bytes > 10 * LARGE);
        CHECK(kept_sweep(&kv.kept, &(struct budget){500}));
        CHECK(kv.kept.bytes > 10 * LARGE);
        left.left = 1000;
        CHECK(!kv_free_some(&kv, &left));
        kv_fini(&kv);
        kv_init(&kv); /* without what was kept for readers */
        for (int64_t revision = 2; revision <= 21; revision++)
                put_large(&kv, revision, value);
        left.left = 1000;
        CHECK(!kv_free_some(&kv, &left));
        kv_fini(&kv);
}

static void run_put(struct state *s, const char *key)
{
        cleanup_(buf_fini) struct buf body = {0};
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_PUT};

        q.key = pb_bytes(key, strlen(key));
        pb_append(&body, &q.base);
        c.body = (struct view){body.data, buf_len(&body)};
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        CHECK_EQ(reply.outcome, STATE_OK);
}

/* Runs @q, which must find @count keys and answer with @kvs of them. */
static void check_range(const struct state *s, Pb__RangeRequest q, int64_t count, size_t kvs,
                        bool more)
{
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        struct budget all = BUDGET_ALL;
        bool nomem;

        q.key = q.range_end = pb_bytes("", 1);
        CHECK_EQ(state_range(s, &q, &a, &p, &all, &nomem), STATE_OK);
        CHECK(!nomem);
        CHECK_EQ(p.count, count);
        CHECK_EQ(p.n_kvs, kvs);
        CHECK_EQ(p.more, more);
}

/* Whatever is left out of an answer, its count is that of the range, as in etcd. */
TEST(a_count_is_that_of_the_range)
{
        cleanup_(state_fini) struct state s;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        char key[8];

        state_init(&s);
        for (unsigned i = 0; i < 10; i++) {
                snprintf(key, sizeof(key), "k%u", i);
                run_put(&s, key);
        }
        check_range(&s, q, 10, 10, false);
        q.limit = 3;
        check_range(&s, q, 10, 3, true);
        q.limit = 10;
        check_range(&s, q, 10, 10, false);
        q.revision = s.revision;
        check_range(&s, q, 10, 10, false);
        q.revision = s.revision - 4;
        q.limit = 3;
        check_range(&s, q, 6, 3, true);
        q.count_only = true;
        check_range(&s, q, 6, 0, false);
        q.revision = 0;
        check_range(&s, q, 10, 0, false);
        q.count_only = false;
        q.min_mod_revision = s.revision - 1;
        check_range(&s, q, 10, 2, false);
        q.limit = 1;
        check_range(&s, q, 10, 1, true);
}

static int compare(const Pb__RangeRequest *q, const struct kv_version *a,
                   const struct kv_version *b)
{
        switch (q->sort_target) {
        case PB__RANGE_REQUEST__SORT_TARGET__MOD:
                return a->mod_revision < b->mod_revision ? -1 : 1;
        case PB__RANGE_REQUEST__SORT_TARGET__VERSION:
                return a->version < b->version ? -1 : a->version > b->version;
        case PB__RANGE_REQUEST__SORT_TARGET__CREATE:
                return a->create_revision < b->create_revision
                               ? -1
                               : a->create_revision > b->create_revision;
        case PB__RANGE_REQUEST__SORT_TARGET__VALUE:
                return bytes_cmp(a->value, a->value_len, b->value, b->value_len);
        default:
                return bytes_cmp(a->key->bytes, a->key->len, b->key->bytes, b->key->len);
        }
}

static bool is_later(const Pb__RangeRequest *q, const struct kv_version *a,
                     const struct kv_version *b)
{
        int c = compare(q, a, b);

        return q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND ? c < 0 : c > 0;
}

/* What @q answers at @revision, slowly and in one go: the check of the sliced one. */
static size_t look_at_all(const struct kv *kv, const Pb__RangeRequest *q, int64_t revision,
                          const struct kv_version **out)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        /* With a target and no order, it is what the limit leaves that is sorted. */
        bool some = q->limit > 0 && q->min_mod_revision == 0 &&
                    q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__NONE;
        size_t n = 0;

        for (struct kv_key *k = kv_span_first(kv, &span); k; k = kv_span_next(&span, k)) {
                const struct kv_version *v = kv_at(k, revision);
                size_t i = n;

                if (!v || v->mod_revision < q->min_mod_revision)
                        continue;
                if (some && n > (size_t) q->limit)
                        break;
                for (; i > 0 && is_later(q, out[i - 1], v); i--)
                        out[i] = out[i - 1];
                out[i] = v;
                n++;
        }
        return n;
}

static Pb__RangeRequest random_request(uint8_t *from, uint8_t *end)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        q.key = pb_bytes(from, key_name(rnd(0, KEYS), from));
        q.range_end = rnd(0, 1) ? pb_bytes("", 1) : pb_bytes(end, key_name(rnd(0, KEYS), end));
        if (rnd(0, 9) == 0)
                q.range_end = pb_bytes(end, 0);
        if (rnd(0, 1))
                q.limit = (int64_t) rnd(1, 100);
        if (rnd(0, 3) > 0) {
                q.sort_target = (Pb__RangeRequest__SortTarget) rnd(0, 4);
                q.sort_order = (Pb__RangeRequest__SortOrder) rnd(0, 2);
        }
        return q;
}

/* Some hold a list of a few keys only. */
static void begin(struct state_scan *sc, const struct state *s, const Pb__RangeRequest *q)
{
        CHECK_EQ(scan_begin(sc, s, q, s->revision), STATE_OK);
        if (rnd(0, 1))
                sc->window = rnd(1, 30);
}

/* While a scan runs in slices of a few keys, keys are created, changed and deleted, and the
 * history is compacted up to its revision: it must find what existed when it began. */
TEST(a_scan_in_slices_is_of_one_moment)
{
        cleanup_(state_fini) struct state s;
        struct kv *kv = &s.kv;

        state_init(&s);
        for (s.revision = 2; s.revision < 1000; s.revision++)
                change(kv, s.revision);
        s.revision--;
        for (unsigned round = 0; round < 200; round++) {
                const struct kv_version *want[KEYS + 1], *v;
                cleanup_(scan_fini) struct state_scan sc = {0};
                uint8_t from[16] = {0}, end[16] = {0};
                Pb__RangeRequest q = random_request(from, end);
                int64_t at = s.revision, steps;
                size_t n, i = 0;
                int r;

                if (rnd(0, 1))
                        q.revision = at = (int64_t) rnd((uint64_t) max_of(kv->compacted, 1),
                                                        (uint64_t) s.revision);
                if (rnd(0, 2) == 0)
                        q.min_mod_revision = (int64_t) rnd(1, (uint64_t) at);
                n = look_at_all(kv, &q, at, want);
                begin(&sc, &s, &q);
                while (steps = (int64_t) rnd(1, 60),
                       (r = scan_next(&sc, &steps, &v)) == 1 || v) {
                        if (r == 0) {
                                CHECK(v == want[i++]);
                                if (rnd(0, 1))
                                        continue;
                        }
                        change(kv, ++s.revision);
                        if (rnd(0, 9) == 0)
                                kv_compact(kv,
                                           (int64_t) rnd((uint64_t) max_of(kv->compacted, 1),
                                                         (uint64_t) max_of(kv->compacted, at)));
                }
                CHECK_EQ(r, 0);
                CHECK_EQ(i, q.limit > 0 ? min_of(n, (size_t) q.limit) : n);
                CHECK_EQ(sc.more, i < n);
        }
        change(kv, ++s.revision);
}

#define SCANS 6

struct pinned {
        struct state_scan sc;
        Pb__RangeRequest q;
        uint8_t from[16], end[16];
        const struct kv_version *want[KEYS + 1];
        size_t n, i; /* there are, and have come */
        bool again;  /* for the second time */
};

static void pinned_begin(struct pinned *p, struct state *s)
{
        int64_t at = s->revision;

        memset(p, 0, sizeof(*p));
        p->q = random_request(p->from, p->end);
        if (rnd(0, 1))
                p->q.revision = at = (int64_t) rnd((uint64_t) max_of(s->kv.compacted, 1),
                                                   (uint64_t) s->revision);
        p->n = look_at_all(&s->kv, &p->q, at, p->want);
        begin(&p->sc, s, &p->q);
        scan_pin(&p->sc, &s->kv);
}

/* One slice. Returns true at the end. */
static bool pinned_run(struct pinned *p)
{
        int64_t steps = (int64_t) rnd(1, 60);
        const struct kv_version *v;
        int r;

        while ((r = scan_next(&p->sc, &steps, &v)) == 0 && v) {
                CHECK(p->i < p->n);
                CHECK(v == p->want[p->i]);
                CHECK(v->mod_revision <= p->sc.it.upto);
                CHECK(kv_span_has(&p->sc.it.span, v->key->bytes, v->key->len));
                p->i++;
                if (steps <= 0)
                        return false;
        }
        CHECK(r >= 0);
        return r == 0;
}

static void pinned_check(struct pinned *p)
{
        CHECK_EQ(p->i, p->q.limit > 0 ? min_of(p->n, (size_t) p->q.limit) : p->n);
        CHECK_EQ(p->sc.more, p->i < p->n);
        CHECK(p->sc.cap <= 16 + 2 * min_of(p->sc.window, p->n));
}

/* Scans that have pinned their revision, several at a time, of several revisions: whatever is
 * compacted meanwhile, up to the present, they find what existed, also while somebody reads the
 * history and deletions are kept as well. When they have ended, nothing is left of it. */
TEST(a_pinned_scan_continues_under_compactions)
{
        cleanup_(state_fini) struct state s;
        struct pinned scans[SCANS];
        struct kept_pin history = {0};
        struct kv *kv = &s.kv;
        size_t bytes, most_kept = 0;

        state_init(&s);
        for (s.revision = 2; s.revision < 1000; s.revision++)
                change(kv, s.revision);
        s.revision--;
        for (size_t i = 0; i < SCANS; i++)
                pinned_begin(&scans[i], &s);
        for (unsigned round = 0; round < 20000; round++) {
                struct pinned *p = &scans[rnd(0, SCANS - 1)];

                if (pinned_run(p)) {
                        pinned_check(p);
                        p->i = 0;
                        if (!p->again) {
                                scan_rewind(&p->sc);
                                p->again = true;
                        } else {
                                scan_fini(&p->sc);
                                pinned_begin(p, &s);
                        }
                }
                if (rnd(0, 3) == 0)
                        change(kv, ++s.revision);
                if (rnd(0, 19) == 0)
                        kv_compact(kv, (int64_t) rnd((uint64_t) max_of(kv->compacted, 1),
                                                     (uint64_t) s.revision));
                if (rnd(0, 9) == 0)
                        (void) kept_sweep(&kv->kept, &(struct budget){rnd(1, 50)});
                if (rnd(0, 1999) == 0) {
                        kept_unpin(&history);
                        kept_pin(&kv->kept, &history, kv->compacted, s.revision);
                }
                most_kept = max_of(most_kept, kv->kept.bytes);
        }
        CHECK(most_kept > 0);
        for (size_t i = 0; i < SCANS; i++)
                scan_fini(&scans[i].sc);
        kept_unpin(&history);
        while (kept_sweep(&kv->kept, &(struct budget){10}))
                ;
        CHECK_EQ(kv->kept.bytes, 0);
        /* Kept versions are not part of the state: a state that was never read is the same. */
        bytes = kv->bytes;
        {
                cleanup_(state_fini) struct state again;
                cleanup_(buf_fini) struct buf b = {0};

                state_save(&s, &b);
                CHECK_EQ(state_load(&again, (struct view){buf_head(&b), buf_len(&b)}), 0);
                CHECK_EQ(again.kv.bytes, bytes);
        }
}

/* Where too much would be kept, the oldest lose it, and the newest go on. */
TEST(what_is_kept_for_scans_has_a_bound)
{
        cleanup_(state_fini) struct state s;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        struct state_scan scans[20] = {0};
        struct kv *kv = &s.kv;
        unsigned lost = 0;

        state_init(&s);
        q.key = q.range_end = pb_bytes("", 1);
        kv->kept.max = 100000;
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++) {
                for (unsigned k = 0; k < KEYS; k++) {
                        uint8_t key[16] = {0};
                        struct kv_key *put;

                        CHECK_EQ(kv_put(kv, ++s.revision, 0, key, key_name(k, key), "value", 5,
                                        0, &put),
                                 0);
                        if (s.revision % 50 == 0)
                                kv_compact(kv, s.revision);
                        (void) kept_sweep(&kv->kept, &(struct budget){20});
                        CHECK(kv->kept.bytes <= 2 * kv->kept.max);
                }
                CHECK_EQ(scan_begin(&scans[i], &s, &q, s.revision), STATE_OK);
                scan_pin(&scans[i], kv);
        }
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++) {
                int64_t steps = INT64_MAX;
                const struct kv_version *v;
                size_t n = 0;
                int r;

                while ((r = scan_next(&scans[i], &steps, &v)) == 0 && v)
                        n++;
                if (r == 0)
                        CHECK_EQ(n, kv->n_keys);
                else
                        CHECK_EQ(r, -ESTALE);
                CHECK(r == 0 || i == lost); /* the oldest of all */
                lost += r != 0;
        }
        CHECK(lost > 0 && lost < ARRAY_SIZE(scans) - 1);
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++)
                scan_fini(&scans[i]);
}

static void put_at(struct state *s, int64_t revision, const char *key)
{
        struct kv_key *k;

        CHECK_EQ(kv_put(&s->kv, revision, 0, key, strlen(key), "v", 1, 0, &k), 0);
        s->revision = revision;
}

/* Of a key that was deleted, compacted, and created again, two dropped versions are visible at
 * the same revision if somebody reads the history: the end of its former life, which nothing
 * follows, and the version that counts. */
TEST(a_scan_finds_the_later_life_of_a_key_in_either_direction)
{
        cleanup_(state_fini) struct state s;
        struct kept_pin history = {0};
        struct state_scan scans[2] = {0};
        Pb__RangeRequest q[2];

        state_init(&s);
        put_at(&s, 2, "k");
        CHECK_EQ(kv_delete(&s.kv, 3, 0, kv_find(&s.kv, "k", 1)), 0);
        put_at(&s, 4, "z");
        kept_pin(&s.kv.kept, &history, s.kv.compacted, s.revision);
        kv_compact(&s.kv, 4);
        put_at(&s, 5, "k");
        for (unsigned i = 0; i < 2; i++) {
                pb__range_request__init(&q[i]);
                q[i].key = q[i].range_end = pb_bytes("", 1);
                q[i].sort_order = i == 0 ? PB__RANGE_REQUEST__SORT_ORDER__ASCEND
                                         : PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
                CHECK_EQ(scan_begin(&scans[i], &s, &q[i], s.revision), STATE_OK);
                scan_pin(&scans[i], &s.kv);
        }
        put_at(&s, 6, "k");
        put_at(&s, 7, "z");
        kv_compact(&s.kv, 7);
        for (unsigned i = 0; i < 2; i++) {
                const struct kv_version *v;
                int64_t steps = INT64_MAX;
                unsigned n = 0;

                for (; scan_next(&scans[i], &steps, &v) == 0 && v; n++)
                        CHECK_EQ(v->mod_revision, v->key->bytes[0] == 'k' ? 5 : 4);
                CHECK_EQ(n, 2);
                scan_fini(&scans[i]);
        }
        kept_unpin(&history);
}

/* It stands still among newer versions, and goes on there: the chain was read again from its
 * newest version on after each compaction, of whatever key. */
TEST(a_scan_passes_a_long_chain_whatever_is_compacted)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        cleanup_(state_fini) struct state s;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        const struct kv_version *v;
        unsigned slices = 0;
        int64_t steps = 1;

        state_init(&s);
        for (int64_t revision = 2; revision < 2000; revision++)
                put_at(&s, revision, "k");
        q.key = pb_bytes("k", 1);
        q.revision = 2;
        CHECK_EQ(scan_begin(&sc, &s, &q, s.revision), STATE_OK);
        scan_pin(&sc, &s.kv);
        for (; scan_next(&sc, &steps, &v) == 1; steps = 1) {
                CHECK(++slices < 50);
                kv_compact(&s.kv, max_of(s.kv.compacted, 2) + 1);
        }
        CHECK(v && v->mod_revision == 2);
}

/* A compaction beyond the revision of a scan without a pin tells it to start again. */
TEST(a_scan_of_what_is_compacted_begins_again)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        cleanup_(state_fini) struct state s;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        const struct kv_version *v;
        int64_t steps = 1;

        state_init(&s);
        for (s.revision = 2; s.revision < 100; s.revision++)
                change(&s.kv, s.revision);
        s.revision--;
        q.key = q.range_end = pb_bytes("", 1);
        CHECK_EQ(scan_begin(&sc, &s, &q, s.revision), STATE_OK);
        CHECK_EQ(scan_next(&sc, &steps, &v), 0);
        change(&s.kv, ++s.revision);
        kv_compact(&s.kv, s.revision);
        steps = 1000;
        CHECK_EQ(scan_next(&sc, &steps, &v), -ESTALE);
}

/* Found in several ways through the keys, they are in one order. */
TEST(many_sorted_keys_come_in_order)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        cleanup_(state_fini) struct state s;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        const struct kv_version *v, *last = NULL;
        int64_t steps = INT64_MAX;
        size_t n = 0;
        int r;

        state_init(&s);
        for (unsigned i = 0; i < 20000; i++) {
                struct kv_key *k;
                char key[16], value[16];
                int len = snprintf(key, sizeof(key), "%u", i);

                snprintf(value, sizeof(value), "%05u", (unsigned) rnd(0, 5000));
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, key, (size_t) len, value, 5, 0, &k), 0);
        }
        q.key = q.range_end = pb_bytes("", 1);
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        q.limit = 15000;
        CHECK_EQ(scan_begin(&sc, &s, &q, s.revision), STATE_OK);
        sc.window = 4096;
        for (; (r = scan_next(&sc, &steps, &v)) == 0 && v; last = v, n++) {
                int c = last ? bytes_cmp(last->value, 5, v->value, 5) : 1;

                CHECK(c > 0 || (c == 0 && bytes_cmp(last->key->bytes, last->key->len,
                                                    v->key->bytes, v->key->len) < 0));
        }
        CHECK_EQ(r, 0);
        CHECK_EQ(n, 15000);
        CHECK(scan_bytes(&sc) <= 4096 * sizeof(struct scan_item) + 16);
        CHECK(sc.more);
        CHECK_EQ(sc.count, 20000);
}

/* A range of large values that begin alike, sorted by value: a turn compares no more bytes than
 * it has steps for. */
TEST(large_values_are_sorted_a_few_at_a_time)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        cleanup_(state_fini) struct state s;
        cleanup_(freep) uint8_t *value = calloc(1, LARGE);
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        const struct kv_version *v, *last = NULL;
        unsigned turns = 0, n = 0;
        int r;

        CHECK(value);
        state_init(&s);
        for (uint8_t i = 0; i < 64; i++) {
                struct kv_key *k;

                value[LARGE - 1] = (uint8_t) (i * 37);
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, &i, 1, value, LARGE, 0, &k), 0);
        }
        q.key = q.range_end = pb_bytes("", 1);
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        CHECK_EQ(scan_begin(&sc, &s, &q, s.revision), STATE_OK);
        do {
                int64_t steps = 40000;

                turns++;
                while ((r = scan_next(&sc, &steps, &v)) == 0 && v) {
                        CHECK(!last || last->value[LARGE - 1] <= v->value[LARGE - 1]);
                        last = v;
                        n++;
                }
                /* One item at most goes beyond it, through all levels of the heap. */
                CHECK(steps > -40000);
        } while (r == 1);
        CHECK_EQ(r, 0);
        CHECK_EQ(n, 64);
        CHECK(turns > 10);
}

/* Keys that are as long as the ends of a range and begin alike are compared with these. */
TEST(long_keys_are_looked_at_a_few_at_a_time)
{
        enum { KEYS_OF_IT = 20 };
        cleanup_(scan_fini) struct state_scan sc = {0};
        cleanup_(state_fini) struct state s;
        cleanup_(freep) uint8_t *key = calloc(1, LARGE);
        Pb__DeleteRangeRequest d = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__DeleteRangeResponse p = PB__DELETE_RANGE_RESPONSE__INIT;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        unsigned turns = 0, n = 0;
        struct budget left = {1000};
        uint32_t sub = 0;
        int r;

        CHECK(key);
        state_init(&s);
        for (uint8_t i = 0; i < KEYS_OF_IT; i++) {
                struct kv_key *k;

                key[LARGE - 1] = i;
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, key, LARGE, "v", 1, 0, &k), 0);
        }
        q.key = q.range_end = d.key = d.range_end = pb_bytes("", 1);
        CHECK_EQ(scan_begin(&sc, &s, &q, s.revision), STATE_OK);
        do {
                const struct kv_version *v;
                int64_t steps = 10000;

                turns++;
                while ((r = scan_next(&sc, &steps, &v)) == 0 && v)
                        n++;
        } while (r == 1);
        CHECK_EQ(r, 0);
        CHECK_EQ(n, KEYS_OF_IT);
        CHECK(turns > 2);
        CHECK_EQ(state_write_delete(&s, &d, &sub, NULL, &p, &left), 1);
        CHECK(p.deleted > 0 && p.deleted < KEYS_OF_IT / 2);
}

/* Has each of @n keys of @len bytes put twice, and a snapshot of it begin. */
static void fill_held(struct kv *kv, struct kv_iter *it, unsigned n, size_t len)
{
        cleanup_(freep) uint8_t *key = calloc(1, len);
        int64_t revision = 1;

        CHECK(key);
        kv_init(kv);
        for (unsigned i = 0; i < 2 * n; i++) {
                struct kv_key *k;

                key[len - 2] = (uint8_t) (i % n >> 8);
                key[len - 1] = (uint8_t) (i % n);
                CHECK_EQ(kv_put(kv, ++revision, 0, key, len, "v", 1, 0, &k), 0);
        }
        kv_iter_history(it, kv, revision);
        kv_iter_pin(it, kv);
}

/* A compaction moves what a snapshot holds, which takes longer than to free it: one turn took
 * 14 ms, and 186 ms with keys of 1 MB, which are compared on the way; to read those took 235.
 */
TEST(what_is_held_is_compacted_and_read_in_slices)
{
        struct kv_iter it;
        struct kv kv;
        unsigned turns = 0, n = 0;
        int r;

        fill_held(&kv, &it, 2000, 8);
        for (bool done = false; !done;) {
                struct budget left = {1000};
                size_t was = kv.kept.n;

                done = kv_compact_some(&kv, 4001, &left);
                CHECK(kv.kept.n - was <= 200);
        }
        CHECK_EQ(kv.kept.n, 2000);
        kv_iter_fini(&it);
        kv_fini(&kv);

        fill_held(&kv, &it, 64, LARGE);
        for (bool done = false; !done; turns++) {
                struct budget left = {16384};

                done = kv_compact_some(&kv, 129, &left);
        }
        CHECK(turns >= 5);
        turns = 0;
        do {
                int64_t steps = 40000;

                turns++;
                while ((r = kv_iter_next(&it, &steps)) > KV_PAUSE)
                        n += r == KV_VERSION;
        } while (r == KV_PAUSE);
        CHECK_EQ(r, 0);
        CHECK_EQ(n, 128);
        CHECK(turns >= 5);
        kv_iter_fini(&it);
        kv_fini(&kv);
}

/* A snapshot whose chunk has room for a few bytes more asks for one step. To find a dropped
 * version costs more than that, and was tried for ever. */
TEST(a_reader_with_little_to_spend_comes_to_its_end)
{
        unsigned calls = 0, n = 0;
        struct kv_iter it;
        struct kv kv;
        int r;

        fill_held(&kv, &it, 10, 8);
        kv_compact(&kv, 21);
        do {
                int64_t steps = 1;

                r = kv_iter_next(&it, &steps);
                n += r == KV_VERSION;
        } while (r > 0 && ++calls < 1000);
        CHECK_EQ(r, 0);
        CHECK_EQ(n, 20);
        kv_iter_fini(&it);
        kv_fini(&kv);
}

/* Ten million pointers were moved within one put, for 16 ms. */
TEST(the_history_is_never_moved)
{
        struct budget all = BUDGET_ALL;
        struct kv_version **block;
        struct kv_key *k;
        struct kv kv;
        size_t at;

        kv_init(&kv);
        for (int64_t i = 1; i <= 40000; i++)
                CHECK_EQ(kv_put(&kv, i, 0, "k", 1, "v", 1, 0, &k), 0);
        at = kv_history_seek(&kv, 40000);
        block = kv.history[at / KV_HISTORY_BLOCK];
        CHECK(kv_compact_some(&kv, 39000, &all));
        for (int64_t i = 40001; i <= 140000; i++)
                CHECK_EQ(kv_put(&kv, i, 0, "k", 1, "v", 1, 0, &k), 0);
        CHECK_EQ(kv_history_seek(&kv, 40000), at);
        CHECK_EQ(kv_history_at(&kv, at)->mod_revision, 40000);
        CHECK(kv.history[0] == block);
        CHECK(kv_compact_some(&kv, 140000, &all));
        CHECK_EQ(kv.n_history_blocks, 1);
        CHECK_EQ(kv_history_at(&kv, kv.history_to - 1)->mod_revision, 140000);
        kv_fini(&kv);
}
