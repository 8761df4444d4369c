/* The iterator against a list of all versions that ever were, from which nothing is dropped:
 * what it reads is what a look through that list finds, whatever happens to the keys meanwhile.
 */
#include "../whole.h"
#include "state/kv_iter.h"
#include "test.h"

#define KEYS 24
#define VERSIONS 40000
#define ITERS 12

static struct written {
        unsigned key;
        int64_t revision, create_revision, version; /* version 0: a deletion */
        uint32_t sub;
} written[VERSIONS];
static size_t n_written;
static ssize_t newest[KEYS]; /* in `written`; -1: none */

/* Some are the beginnings of others. They sort as their numbers do. */
static size_t key_name(unsigned i, uint8_t *out)
{
        size_t len = (size_t) snprintf((char *) out, 16, "k%02u", i - i % 3);

        for (unsigned n = i % 3; n > 0; n--)
                out[len++] = 0;
        return len;
}

static void write_one(struct kv *kv, int64_t revision, uint32_t sub, unsigned key)
{
        uint8_t name[16];
        size_t len = key_name(key, name);
        ssize_t was = newest[key];
        bool live = was >= 0 && written[was].version > 0, deletes = live && rnd(0, 2) == 0;
        struct written w = {.key = key, .revision = revision, .sub = sub};
        struct kv_key *k;

        if (deletes) {
                CHECK_EQ(kv_delete(kv, revision, sub, kv_find(kv, name, len)), 0);
        } else {
                w.create_revision = live ? written[was].create_revision : revision;
                w.version = live ? written[was].version + 1 : 1;
                CHECK_EQ(kv_put(kv, revision, sub, name, len, &n_written, sizeof(n_written), 0,
                                &k),
                         0);
        }
        newest[key] = (ssize_t) n_written;
        written[n_written++] = w;
}

/* A revision: one change, or several of a few keys. */
static void write_some(struct kv *kv, int64_t *revision)
{
        uint32_t n = rnd(0, 2) > 0 ? 1 : (uint32_t) rnd(2, 9);
        unsigned most = rnd(0, 1) ? KEYS - 1 : 3;

        ++*revision;
        for (uint32_t sub = 0; sub < n; sub++)
                write_one(kv, *revision, sub, (unsigned) rnd(0, most));
}

/* So many versions of one key that a reader of an earlier one stands still on its way there. */
static void write_many(struct kv *kv, int64_t *revision)
{
        unsigned key = (unsigned) rnd(0, KEYS - 1);

        for (unsigned n = 0; n < 300; n++)
                write_one(kv, ++*revision, 0, key);
}

/* ---- readers ---- */

struct one_reader {
        struct kv_iter it;
        unsigned first, end; /* keys: [first, end) */
        uint8_t from_name[16], end_name[16];
        bool ends; /* it is started anew */
        size_t *want, n_want, i;
        struct kv_key *key; /* the last KV_KEY; not a reference */
        uint64_t left;      /* of its versions */
};

static void want(struct one_reader *r, size_t version)
{
        r->want[r->n_want++] = version;
}

/* Those of one key, oldest first. A reader wants the value as of `from`; a history, also what
 * happened then and later. In it is as well what a compaction to `from` leaves of a value that
 * ended just then, because an earlier one had passed that value. */
static void want_key(struct one_reader *r, unsigned key)
{
        const struct kv_iter *it = &r->it;
        ssize_t as_of = -1, before = -1;

        for (size_t i = 0; i < n_written; i++)
                if (written[i].key == key && written[i].revision <= it->from) {
                        as_of = (ssize_t) i;
                        before = written[i].revision < it->from ? (ssize_t) i : before;
                }
        if (!it->history) {
                if (as_of >= 0 && written[as_of].version > 0)
                        want(r, (size_t) as_of);
                return;
        }
        if (before >= 0 && written[before].version > 0 &&
            (before == as_of || written[before].revision < it->kv->compacted_before))
                want(r, (size_t) before);
        for (size_t i = 0; i < n_written; i++)
                if (written[i].key == key && written[i].revision >= it->from &&
                    written[i].revision <= it->upto)
                        want(r, i);
}

static void want_all(struct one_reader *r)
{
        r->n_want = r->i = 0;
        for (unsigned n = r->first; n < r->end; n++)
                want_key(r, r->it.down ? r->first + r->end - 1 - n : n);
}

static struct kv_span random_span(struct one_reader *r)
{
        struct kv_span span = {.from = {r->from_name, 0}, .end = {r->end_name, 0}};

        r->first = (unsigned) rnd(0, KEYS - 1);
        r->end = (unsigned) rnd(r->first, KEYS);
        span.single = rnd(0, 5) == 0;
        span.to_end = !span.single && rnd(0, 2) == 0;
        if (span.single)
                r->end = r->first + 1;
        if (span.to_end)
                r->end = KEYS;
        span.from.len = key_name(r->first, r->from_name);
        span.end.len = key_name(r->end, r->end_name);
        return span;
}

static void reader_begin(struct one_reader *r, struct kv *kv, int64_t revision)
{
        int64_t at = rnd(0, 1) ? revision
                               : (int64_t) rnd((uint64_t) kv->compacted, (uint64_t) revision);

        kv_iter_fini(&r->it);
        if (rnd(0, 2) == 0) {
                kv_iter_history(&r->it, kv, at);
                r->first = 0;
                r->end = KEYS;
        } else {
                struct kv_span span = random_span(r);

                kv_iter_as_of(&r->it, kv, &span, at, rnd(0, 1));
        }
        want_all(r);
        r->left = 0;
        r->ends = false;
        if (rnd(0, 3) > 0)
                kv_iter_pin(&r->it, kv);
}

static void check_key(struct one_reader *r)
{
        const struct kv_iter *it = &r->it;
        uint8_t name[16];
        uint64_t n = 1;

        CHECK_EQ(r->left, 0);
        CHECK(r->i < r->n_want);
        while (r->i + n < r->n_want &&
               written[r->want[r->i + n]].key == written[r->want[r->i]].key)
                n++;
        CHECK_EQ(it->n, n);
        CHECK_EQ(bytes_cmp(it->key->bytes, it->key->len, name,
                           key_name(written[r->want[r->i]].key, name)),
                 0);
        r->left = n;
}

static void check_version(struct one_reader *r)
{
        const struct kv_version *v = r->it.version;
        const struct written *w;
        uint8_t name[16];

        CHECK(r->i < r->n_want);
        w = &written[r->want[r->i]];
        CHECK_EQ(bytes_cmp(v->key->bytes, v->key->len, name, key_name(w->key, name)), 0);
        CHECK_EQ(v->mod_revision, w->revision);
        CHECK_EQ(v->sub, w->sub);
        CHECK_EQ(v->version, w->version);
        CHECK_EQ(v->create_revision, w->create_revision);
        CHECK(w->version == 0 || (v->value_len == sizeof(size_t) &&
                                  memcmp(v->value, &r->want[r->i], sizeof(size_t)) == 0));
        CHECK(!r->it.history || r->left > 0);
        r->left -= r->it.history;
        r->i++;
}

/* How many of each result there were. */
static struct {
        unsigned ended, overtaken, stale, lost, rewound;
} seen;

/* Whether a reader may get the error that what it reads is gone. */
static bool may_be_stale(const struct one_reader *r)
{
        return r->it.kv->compacted > r->it.from && (!r->it.pinned || !r->it.pin.of);
}

static void reader_run(struct one_reader *r)
{
        int64_t steps = (int64_t) rnd(1, rnd(0, 3) ? 30 : 300);
        bool good = kv_iter_is_good(&r->it);
        int e;

        while ((e = kv_iter_next(&r->it, &steps)) > 0 && e != KV_PAUSE) {
                if (e == KV_KEY)
                        check_key(r);
                else
                        check_version(r);
                if (rnd(0, 9) == 0)
                        return;
        }
        CHECK_EQ(e == -ESTALE, !good);
        CHECK(e != KV_PAUSE || steps <= 0);
        if (e == -ESTALE) {
                CHECK(may_be_stale(r));
                seen.stale++;
                seen.lost += r->it.pinned;
                r->ends = true;
        } else if (e == 0) {
                CHECK_EQ(r->i, r->n_want);
                CHECK_EQ(r->left, 0);
                seen.ended++;
                seen.overtaken += r->it.kv->compacted > r->it.upto;
                r->ends = true;
        }
}

/* At any place, too. */
static void reader_rewind(struct one_reader *r)
{
        seen.rewound += r->it.kv->compacted > r->it.from;
        kv_iter_rewind(&r->it);
        r->i = 0;
        r->left = 0;
        r->ends = false;
}

/* ---- */

/* In slices, between which readers run, too. */
static void compact(struct kv *kv, int64_t revision, struct one_reader *readers)
{
        int64_t goal = (int64_t) rnd((uint64_t) kv->compacted, (uint64_t) revision);
        struct budget left;

        if (rnd(0, 3) > 0)
                goal = min_of(goal, kv->compacted + 5);
        while (left.left = rnd(1, 20), !kv_compact_some(kv, goal, &left)) {
                struct one_reader *r = &readers[rnd(0, ITERS - 1)];

                if (!r->ends)
                        reader_run(r);
        }
}

/* @max: of the bytes that are kept. */
static void run(size_t max, unsigned rounds)
{
        struct one_reader readers[ITERS] = {0};
        int64_t revision = 1;
        struct kv kv;

        memset(&seen, 0, sizeof(seen));
        n_written = 0;
        for (unsigned i = 0; i < KEYS; i++)
                newest[i] = -1;
        kv_init(&kv);
        kv.kept.max = max;
        kv.compacted = 1;
        for (unsigned i = 0; i < 100; i++)
                write_some(&kv, &revision);
        for (unsigned i = 0; i < ITERS; i++) {
                readers[i].want = calloc(VERSIONS, sizeof(size_t));
                CHECK(readers[i].want);
                reader_begin(&readers[i], &kv, revision);
        }
        while (rounds-- > 0) {
                struct one_reader *r = &readers[rnd(0, ITERS - 1)];

                reader_run(r);
                if (rnd(0, r->ends ? 2 : 99) == 0)
                        reader_rewind(r);
                else if (r->ends || rnd(0, 99) == 0)
                        reader_begin(r, &kv, revision);
                if (rnd(0, 3) == 0 && n_written + 1000 < VERSIONS)
                        write_some(&kv, &revision);
                if (rnd(0, 399) == 0 && n_written + 1000 < VERSIONS)
                        write_many(&kv, &revision);
                if (rnd(0, 9) == 0)
                        compact(&kv, revision, readers);
                if (rnd(0, 9) == 0)
                        (void) kept_sweep(&kv.kept, &(struct budget){rnd(1, 50)});
                CHECK(kv.kept.bytes <= 2 * max);
        }
        for (unsigned i = 0; i < ITERS; i++) {
                kv_iter_fini(&readers[i].it);
                free(readers[i].want);
        }
        while (kept_sweep(&kv.kept, &(struct budget){10}))
                ;
        CHECK(RB_EMPTY(&kv.kept.versions));
        CHECK_EQ(kv.kept.bytes, 0);
        kv_fini(&kv);
        CHECK(seen.ended > 100 && seen.overtaken > 10 && seen.stale > 10);
        CHECK(seen.rewound > 10);
}

TEST(what_was_is_read_whatever_happens_meanwhile)
{
        run(KEPT_MAX, 10000);
        CHECK_EQ(seen.lost, 0);
}

/* The pin that is lost is one that a compaction has gone beyond. */
TEST(a_reader_that_loses_its_pin_gets_an_error)
{
        run(20000, 10000);
        CHECK(seen.lost > 10);
}
