/* The keys' tree: what it says of a range is what a walk would find. */
#include "lease/state.h"
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

        if (k && kv_live(k) && rnd(0, 2) > 0)
                CHECK_EQ(kv_delete(kv, revision, 0, k), 0);
        else
                CHECK_EQ(kv_put(kv, revision, 0, key, len, "v", 1, 0, &k), 0);
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
        bool nomem;

        q.key = q.range_end = pb_bytes("", 1);
        CHECK_EQ(state_range(s, &q, &a, &p, &nomem), STATE_OK);
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
