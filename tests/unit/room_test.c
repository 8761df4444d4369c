/* Answers that are made whole: the memory held for them is bounded, and each is delivered in
 * the end. */
#include "rig.h"

#define TXN "/etcdserverpb.KV/Txn"
#define PUT "/etcdserverpb.KV/Put"
#define DELETE "/etcdserverpb.KV/DeleteRange"
#define REVOKE "/etcdserverpb.Lease/LeaseRevoke"
#define LEADER "/v3electionpb.Election/Leader"
#define CROWD 100
#define VALUE ((size_t) 1 << 20)
#define BOUND ((size_t) 16 << 20)

static struct rig_call calls[CROWD];
static struct rig_conn *conns[CROWD];

/* A transaction that reads @key and, if @writes, puts another. */
struct txn {
        Pb__TxnRequest q;
        Pb__RequestOp ops[2], *at[2];
        Pb__RangeRequest range;
        Pb__PutRequest put;
};

static void txn(struct txn *t, const char *key, const char *end, bool writes)
{
        pb__txn_request__init(&t->q);
        pb__request_op__init(&t->ops[0]);
        pb__request_op__init(&t->ops[1]);
        pb__range_request__init(&t->range);
        pb__put_request__init(&t->put);
        t->range.key = pb_bytes(key, strlen(key));
        t->range.range_end = pb_bytes(end, strlen(end));
        t->put.key = t->put.value = pb_bytes("small", 5);
        t->ops[0].request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        t->ops[0].request_range = &t->range;
        t->ops[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        t->ops[1].request_put = &t->put;
        t->at[0] = &t->ops[0];
        t->at[1] = &t->ops[1];
        t->q.success = t->at;
        t->q.n_success = writes ? 2 : 1;
}

/* One that looks at all of [@key, @end), and finds one. */
static void costly_txn(struct txn *t, const char *key, const char *end, bool writes)
{
        txn(t, key, end, writes);
        t->range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        t->range.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        t->range.limit = 1;
}

static void put_many(const char *prefix, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                char key[16];

                snprintf(key, sizeof(key), "%s%06u", prefix, i);
                rig_put(key, 10);
        }
}

static void begin(void)
{
        rig_begin();
        rig_put("large", VALUE);
        rig_put("small", 10);
        rig.account.max = BOUND;
}

static unsigned n_over(void)
{
        unsigned n = 0;

        for (size_t i = 0; i < CROWD; i++)
                n += calls[i].over;
        return n;
}

static void ask_once(unsigned address, const char *path, const ProtobufCMessage *m,
                     unsigned turns)
{
        struct rig_call call;
        struct rig_conn *c = rig_connect(address);

        c->takes = 1 << 20;
        rig_ask(c, &call, path, m);
        rig_wait(&call, turns);
        CHECK_STR(call.text, "");
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
        rig_disconnect(c);
}

static void crowd_asks(const char *path, const ProtobufCMessage *m)
{
        for (size_t i = 0; i < CROWD; i++) {
                conns[i] = rig_connect(0);
                conns[i]->takes = 0;
                rig_ask(conns[i], &calls[i], path, m);
        }
        for (unsigned i = 0; i < 500; i++)
                rig_turn();
        CHECK(rig.most_held > BOUND / 4);
        CHECK(rig.most_held < BOUND / 2 + 2 * VALUE);
}

/* Of 100 clients that read nothing, as many have their answer as may, and the others wait,
 * which is reported to their server. Clients of other addresses, and small requests, are
 * served; some of those that wait go away; all others get their answers once they read. */
static void crowd(const char *path, const ProtobufCMessage *m)
{
        struct txn other;

        crowd_asks(path, m);
        CHECK(rig.account.wanted);
        txn(&other, "large", "", false);
        ask_once(1, TXN, &other.q.base, 100);
        txn(&other, "small", "", true);
        ask_once(0, TXN, &other.q.base, 20);
        for (size_t i = 0; i < CROWD; i += 3) {
                rig_disconnect(conns[i]);
                rig_forget(&calls[i]);
        }
        for (size_t i = 0; i < CROWD; i++)
                if (i % 3 != 0)
                        conns[i]->takes = 1 << 20;
        for (size_t i = 0; i < CROWD; i++) {
                if (i % 3 == 0)
                        continue;
                rig_wait(&calls[i], 5000);
                CHECK_STR(calls[i].text, "");
                CHECK_EQ(calls[i].code, RPC_OK);
                CHECK(calls[i].bytes > VALUE / 2);
                rig_forget(&calls[i]);
        }
        CHECK(rig.most_held < BOUND / 2 + 4 * VALUE);
        rig_end();
}

TEST(transactions_that_nobody_reads_wait_for_room)
{
        struct txn t;

        begin();
        txn(&t, "large", "", false);
        crowd(TXN, &t.q.base);
}

/* One of those that hold an answer is closed, as by the server, and comes back with the same
 * request. */
static void one_comes_again(const ProtobufCMessage *m)
{
        for (size_t i = 0; i < CROWD; i++) {
                if (rpc_conn_held(conns[i]->server) < VALUE / 2)
                        continue;
                rig_disconnect(conns[i]);
                rig_forget(&calls[i]);
                conns[i] = rig_connect(0);
                conns[i]->takes = 0;
                rig_ask(conns[i], &calls[i], TXN, m);
                return;
        }
}

/* A client that needed more than there was room for was overtaken by every later one that
 * needed less. */
TEST(who_has_waited_longest_has_room_next)
{
        struct rig_call call;
        struct rig_conn *c;
        struct txn large, larger;
        unsigned n = 0;

        begin();
        rig_put("large too", VALUE);
        rig_put("large, too", VALUE);
        txn(&large, "large", "", false);
        txn(&larger, "large", "largf", false);
        crowd_asks(TXN, &large.q.base);
        c = rig_connect(0);
        c->takes = 2 << 20;
        rig_ask(c, &call, TXN, &larger.q.base);
        for (; !call.over && n < 3 * CROWD; n++) {
                one_comes_again(&large.q.base);
                for (int i = 0; i < 4; i++)
                        rig_turn();
        }
        CHECK(call.over);
        CHECK_EQ(call.code, RPC_OK);
        CHECK(n >= CROWD / 2 && n <= CROWD + 10);
        rig_forget(&call);
        for (size_t i = 0; i < CROWD; i++) {
                rig_disconnect(conns[i]);
                rig_forget(&calls[i]);
        }
        rig_end();
}

/* Each takes milliseconds of every replica when it is applied, and everything after 100 of them
 * in the log, for example a renewal, waited for all. */
TEST(costly_writes_leave_the_log_to_others)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct rig_call call;
        unsigned before;
        struct txn t;

        begin();
        put_many("many", 3000);
        costly_txn(&t, "many", "manz", true);
        for (size_t i = 0; i < CROWD; i++) {
                conns[i] = i % 10 == 0 ? rig_connect(0) : conns[i - 1];
                rig_ask(conns[i], &calls[i], TXN, &t.q.base);
        }
        put.key = put.value = pb_bytes("put", 3);
        rig_ask(rig_connect(0), &call, PUT, &put.base);
        rig_wait(&call, 100);
        CHECK_EQ(call.code, RPC_OK);
        before = n_over();
        CHECK(before < CROWD / 2);
        rig_forget(&call);
        /* Nor does one more of the same wait for all of them. */
        rig_ask(rig_connect(0), &call, TXN, &t.q.base);
        rig_wait(&call, 1000);
        CHECK_EQ(call.code, RPC_OK);
        CHECK(n_over() < before + 2 * CROWD / 10);
        rig_forget(&call);
        for (size_t i = 0; i < CROWD; i++) {
                rig_wait(&calls[i], 2000);
                CHECK_EQ(calls[i].code, RPC_OK);
                rig_forget(&calls[i]);
        }
        rig_end();
}

TEST(transactions_that_write_wait_for_room_before_they_do)
{
        struct txn t;

        begin();
        txn(&t, "large", "", true);
        crowd(TXN, &t.q.base);
}

/* So many keys hang on lease 7, of @size bytes each. */
static void hang(unsigned n, size_t size)
{
        struct state *s = core_state(rig.core);
        char *key = malloc(size);
        struct lease *l;

        CHECK(key);
        memset(key, 'k', size);
        CHECK_EQ(leases_add(&s->leases, 7, 1000000, 1, NULL, 0, NULL, &l), 0);
        CHECK_EQ(deadlines_set(&s->deadlines, l->slot,
                               lease_time_add(s->time, 1000 * NSEC_PER_SEC)),
                 0);
        for (unsigned i = 0; i < n; i++) {
                struct kv_key *k;

                memcpy(key, &i, sizeof(i));
                CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, size, "v", 1, 7, &k), 0);
                leases_attach(k, l);
        }
        free(key);
}

static void crowd_asks_for_keys(unsigned n, size_t size)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

        begin();
        hang(n, size);
        q.id = 7;
        q.keys = true;
        crowd("/etcdserverpb.Lease/LeaseTimeToLive", &q.base);
}

/* So many leases, 1 and so on, with as many keys each: of lease i those that begin with its
 * number. */
static void hang_on_many(unsigned n_leases, unsigned n_keys)
{
        struct state *s = core_state(rig.core);

        for (unsigned i = 0; i < n_leases * n_keys; i++) {
                int64_t id = 1 + i / n_keys;
                struct kv_key *k;
                char key[32];
                struct lease *l = leases_find(&s->leases, id);

                if (!l) {
                        CHECK_EQ(leases_add(&s->leases, id, 1000000, 1, NULL, 0, NULL, &l), 0);
                        CHECK_EQ(deadlines_set(&s->deadlines, l->slot,
                                               lease_time_add(s->time, 1000 * NSEC_PER_SEC)),
                                 0);
                }
                snprintf(key, sizeof(key), "%03u/%06u", (unsigned) id, i);
                CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, strlen(key), "v", 1, id, &k), 0);
                leases_attach(k, l);
        }
}

/* Each client of a crowd requests something else of this kind: small requests do not wait for
 * all of them, and all are completed. */
static void removals(void (*ask)(size_t i, struct rig_conn *c))
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct rig_call call;

        begin();
        hang_on_many(CROWD, 4000);
        for (size_t i = 0; i < CROWD; i++) {
                conns[i] = i % 10 == 0 ? rig_connect(0) : conns[i - 1];
                ask(i, conns[i]);
        }
        put.key = put.value = pb_bytes("put", 3);
        rig_ask(rig_connect(0), &call, PUT, &put.base);
        rig_wait(&call, 100);
        CHECK_EQ(call.code, RPC_OK);
        CHECK(n_over() < CROWD / 2);
        rig_forget(&call);
        for (size_t i = 0; i < CROWD; i++) {
                rig_wait(&calls[i], 2000);
                CHECK_EQ(calls[i].code, RPC_OK);
                rig_forget(&calls[i]);
        }
        rig_end();
}

static void ask_to_delete(size_t i, struct rig_conn *c)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        char from[16], to[16];

        snprintf(from, sizeof(from), "%03zu/", i + 1);
        snprintf(to, sizeof(to), "%03zu0", i + 1);
        q.key = pb_bytes(from, 4);
        q.range_end = pb_bytes(to, 4);
        rig_ask(c, &calls[i], DELETE, &q.base);
}

static void ask_to_revoke(size_t i, struct rig_conn *c)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        q.id = (int64_t) i + 1;
        rig_ask(c, &calls[i], REVOKE, &q.base);
}

TEST(deletions_leave_the_log_to_others)
{
        removals(ask_to_delete);
}

TEST(revocations_leave_the_log_to_others)
{
        removals(ask_to_revoke);
}

/* The largest there is passes when nothing of its kind is on its way. */
TEST(a_deletion_of_more_than_the_log_has_for_all_comes_to_its_end)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;

        begin();
        hang_on_many(1, 50000);
        q.key = pb_bytes("001/", 4);
        q.range_end = pb_bytes("0010", 4);
        ask_once(0, DELETE, &q.base, 1000);
        rig_end();
}

/* The last part that was encoded, which is all of a small answer, was not charged. */
TEST(keys_of_a_lease_that_nobody_reads_wait_for_room)
{
        crowd_asks_for_keys(1, VALUE);
        crowd_asks_for_keys(VALUE / 4000, 4000);
}

TEST(leaders_that_nobody_reads_wait_for_room)
{
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;

        begin();
        rig_put("election/1", VALUE);
        q.name = pb_bytes("election", 8);
        crowd(LEADER, &q.base);
}

/* The first one gets the previous value; the others wait for the value that it may have put,
 * which is as large, until one with a small value has been applied. */
TEST(old_values_that_nobody_reads_wait_for_room)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        begin();
        q.key = pb_bytes("large", 5);
        q.ignore_value = q.prev_kv = true;
        crowd(PUT, &q.base);
}

/* Each deletes the key that has been put again by then: all waiting ones were charged for its
 * size. */
TEST(deletions_that_nobody_reads_wait_for_room)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        size_t n = 0;

        begin();
        q.key = pb_bytes("large", 5);
        q.prev_kv = true;
        for (size_t i = 0; i < CROWD; i++) {
                conns[i] = rig_connect(0);
                conns[i]->takes = 0;
                rig_put("large", VALUE);
                rig_ask(conns[i], &calls[i], DELETE, &q.base);
                for (unsigned turn = 0; turn < 10; turn++)
                        rig_turn();
        }
        CHECK(rig.most_held < BOUND / 2 + 2 * VALUE);
        CHECK(rig.account.wanted);
        for (size_t i = 0; i < CROWD; i++)
                conns[i]->takes = 1 << 20;
        for (size_t i = 0; i < CROWD; i++) {
                rig_wait(&calls[i], 5000);
                CHECK_EQ(calls[i].code, RPC_OK);
                n += calls[i].bytes > VALUE;
                rig_forget(&calls[i]);
        }
        CHECK(n >= 5);
        rig_end();
}

/* One confirmation of a majority lets 100 reads continue at once, each of which takes
 * milliseconds: a turn does one or two, and a client of another address waits for few of
 * them. */
TEST(reads_that_take_long_have_their_turns)
{
        struct txn t, other;
        struct rig_call first; /* of its address */
        struct rig_conn *c;
        unsigned n, turns = 0, at = 0;

        begin();
        put_many("k", 3300);
        costly_txn(&t, "k", "l", false);
        txn(&other, "k", "l", false);
        c = rig_connect(1);
        for (size_t i = 0; i < CROWD; i++)
                conns[i] = rig_connect(0);
        for (size_t i = 0; i < CROWD; i++)
                rig_ask(conns[i], &calls[i], TXN, &t.q.base);
        rig_ask(c, &first, TXN, &other.q.base);
        while ((n = n_over()) < CROWD && turns < 1000) {
                rig_turn();
                CHECK(n_over() - n <= 2);
                turns++;
                if (first.over && at == 0)
                        at = n_over();
        }
        CHECK(first.over && at <= 6);
        CHECK_EQ(n_over(), CROWD);
        for (size_t i = 0; i < CROWD; i++) {
                CHECK_EQ(calls[i].code, RPC_OK);
                rig_forget(&calls[i]);
        }
        rig_forget(&first);
        rig_end();
}

/* One that only reads is answered in one turn as well, in which renewals wait, and no log has
 * it: what it sorts or compares counts where it is answered. */
TEST(a_txn_that_reads_compares_so_many_bytes)
{
        static const char value[200000];
        Pb__Compare c = PB__COMPARE__INIT, *compares[] = {&c};
        struct rig_call call;
        struct rig_conn *conn;
        struct txn t;

        rig_begin();
        conn = rig_connect(0);
        conn->takes = 16 << 20;
        for (unsigned i = 0; i < 300; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, sizeof(value));
        }
        txn(&t, "k", "l", false);
        t.range.keys_only = true;
        rig_ask(conn, &call, TXN, &t.q.base);
        rig_wait(&call, 100);
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
        t.range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        t.range.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        rig_ask(conn, &call, TXN, &t.q.base);
        rig_wait(&call, 100);
        CHECK_EQ(call.code, RPC_INVALID_ARGUMENT);
        CHECK_STR(call.text, "etcdserver: too many operations in txn request");
        rig_forget(&call);

        c.key = pb_bytes("k", 1);
        c.range_end = pb_bytes("l", 1);
        c.target = PB__COMPARE__COMPARE_TARGET__VALUE;
        c.target_union_case = PB__COMPARE__TARGET_UNION_VALUE;
        c.value = pb_bytes(value, sizeof(value));
        t.q.compare = compares;
        t.q.n_compare = 1;
        t.q.n_success = 0;
        rig_ask(conn, &call, TXN, &t.q.base);
        rig_wait(&call, 100);
        CHECK_EQ(call.code, RPC_INVALID_ARGUMENT);
        rig_forget(&call);
        rig_end();
}
