/* Names of leases: what carries one, in the state and over a connection. */
#include "../whole.h"
#include "rig.h"
#include "state/lease_names.h"

#define NOW ((struct lease_time){100 * NSEC_PER_SEC})
#define RENEW "/etcdserverpb.Lease/LeaseKeepAlive"
#define TTL "/etcdserverpb.Lease/LeaseTimeToLive"
#define NODE "/tenure/default/nodes/"

static uint64_t next_index;
static int64_t renewed; /* the last answer's */

static ProtobufCBinaryData text(const char *s)
{
        return pb_bytes(s, strlen(s));
}

static enum state_outcome apply(struct state *s, enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = type};
        struct budget left;
        int r;

        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(s, ++next_index, NOW);
        do {
                left.left = 1; /* as little as may be, each time */
                r = state_apply_some(s, &c, &reply, &left);
        } while (r > 0);
        CHECK_EQ(r, 0);
        return reply.outcome;
}

static enum state_outcome grant(struct state *s, int64_t id, const char *name)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = 10000;
        q.name = text(name);
        return apply(s, CMD_GRANT, &q.base);
}

static enum state_outcome end(struct state *s, int64_t id, const char *name)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        q.id = id;
        q.name = text(name);
        return apply(s, CMD_REVOKE, &q.base);
}

static Pb__PutRequest put_request(const char *key, int64_t lease, const char *name)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = text(key);
        q.lease = lease;
        q.lease_name = text(name);
        return q;
}

static enum state_outcome put(struct state *s, const char *key, int64_t lease, const char *name)
{
        Pb__PutRequest q = put_request(key, lease, name);

        return apply(s, CMD_PUT, &q.base);
}

/* The id of the lease that has it; 0: none. */
static int64_t who_has(const struct state *s, const char *name)
{
        ProtobufCBinaryData n = text(name);
        const struct lease *l = names_find(s, &n);

        return l ? l->id : 0;
}

static int64_t lease_of(const struct state *s, const char *key)
{
        struct kv_key *k = kv_find(&s->kv, key, strlen(key));

        if (!k || !kv_live(k))
                return 0;
        CHECK_EQ(k->lease ? k->lease->id : 0, k->newest->lease);
        return k->newest->lease;
}

static bool is_name(const struct state *s, int64_t id, const char *name)
{
        struct view v = names_of(s, leases_find(&s->leases, id));

        return bytes_cmp(v.p, v.len, name, strlen(name)) == 0;
}

/* Saved, and loaded instead. */
static void load_again(struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint64_t hash = state_hash(s);

        state_save(s, &b);
        state_fini(s);
        CHECK_EQ(state_load(s, (struct view){b.data, buf_len(&b)}), 0);
        CHECK(state_hash(s) == hash);
}

TEST(one_lease_at_a_time_has_a_name)
{
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, "a"), STATE_OK);
        CHECK_EQ(grant(&s, 2, "a"), STATE_E_LEASE_NAME_USED);
        CHECK_EQ(grant(&s, 1, "b"), STATE_E_LEASE_EXISTS);
        CHECK_EQ(grant(&s, 2, "b"), STATE_OK);
        CHECK_EQ(put(&s, "k", PB_LEASE_BY_NAME, "a"), STATE_OK);
        CHECK_EQ(lease_of(&s, "k"), 1);
        CHECK_EQ(put(&s, "k", 0, "b"), STATE_OK); /* as good */
        CHECK_EQ(lease_of(&s, "k"), 2);
        CHECK_EQ(put(&s, "k", 1, "b"), STATE_E_LEASE_TWICE);
        CHECK_EQ(put(&s, "k", PB_LEASE_BY_NAME, "c"), STATE_E_LEASE_NAME_NOT_FOUND);
        CHECK_EQ(put(&s, "k", PB_LEASE_BY_NAME, ""), STATE_E_LEASE_NOT_FOUND);
        CHECK_EQ(lease_of(&s, "k"), 2);
        load_again(&s);
        CHECK_EQ(grant(&s, 3, "b"), STATE_E_LEASE_NAME_USED);
        CHECK_EQ(end(&s, 2, "b"), STATE_E_LEASE_TWICE);
        CHECK_EQ(end(&s, 0, "b"), STATE_OK);
        CHECK_EQ(lease_of(&s, "k"), 0);
        CHECK_EQ(end(&s, 0, "b"), STATE_E_LEASE_NAME_NOT_FOUND);
        CHECK_EQ(end(&s, 0, ""), STATE_E_LEASE_NOT_FOUND);
        CHECK_EQ(grant(&s, 3, "b"), STATE_OK);
        CHECK_EQ(who_has(&s, "b"), 3);
        load_again(&s);
        CHECK_EQ(who_has(&s, "a"), 1);
        CHECK_EQ(who_has(&s, "b"), 3);
        state_fini(&s);
}

TEST(a_name_is_free_when_its_lease_has_expired)
{
        struct lease_time late = lease_time_add(NOW, 20 * NSEC_PER_SEC);
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_EXPIRE};
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, "a"), STATE_OK);
        CHECK_EQ(put(&s, "k", 0, "a"), STATE_OK);
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, NSEC_PER_SEC), 10, &body), 1);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(&s, ++next_index, late);
        CHECK_EQ(state_apply(&s, &c, &reply), 0);
        CHECK_EQ(who_has(&s, "a"), 0);
        CHECK_EQ(lease_of(&s, "k"), 0);
        CHECK_EQ(put(&s, "k", 0, "a"), STATE_E_LEASE_NAME_NOT_FOUND);
        CHECK_EQ(grant(&s, 2, "a"), STATE_OK);
        state_fini(&s);
}

TEST(what_a_put_cannot_say_of_its_lease)
{
        Pb__PutRequest q = put_request("k", PB_LEASE_BY_NAME, "a");
        char longest[STATE_LEASE_NAME_MAX + 2];
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, "a"), STATE_OK);
        CHECK_EQ(apply(&s, CMD_PUT, &q.base), STATE_OK);
        q.ignore_lease = true;
        CHECK_EQ(apply(&s, CMD_PUT, &q.base), STATE_E_LEASE_GIVEN);
        q.lease = 0;
        CHECK_EQ(apply(&s, CMD_PUT, &q.base), STATE_E_LEASE_GIVEN);
        q.lease_name.len = 0;
        CHECK_EQ(apply(&s, CMD_PUT, &q.base), STATE_OK);
        CHECK_EQ(lease_of(&s, "k"), 1);
        memset(longest, 'x', sizeof(longest));
        longest[sizeof(longest) - 1] = '\0';
        CHECK_EQ(put(&s, "k", 0, longest), STATE_E_LEASE_NAME);
        CHECK_EQ(end(&s, 0, longest), STATE_E_LEASE_NAME);
        CHECK_EQ(put(&s, "k", 0, longest + 1), STATE_E_LEASE_NAME_NOT_FOUND);
        state_fini(&s);
}

/* ---- the names of nodes ---- */

TEST(the_lease_of_a_node_has_the_name_of_the_node)
{
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, ""), STATE_OK);
        CHECK_EQ(grant(&s, 2, ""), STATE_OK);
        CHECK(is_name(&s, 1, ""));
        CHECK_EQ(put(&s, "/tenure/default/claims/db1", 1, ""), STATE_OK);
        CHECK_EQ(put(&s, "/tenure/default/services/x/db1", 1, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 0);
        CHECK_EQ(put(&s, NODE "db1", 1, ""), STATE_OK);
        CHECK_EQ(put(&s, "/tenure/east/nodes/db1", 2, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 1);
        CHECK_EQ(who_has(&s, "east/nodes/db1"), 2);
        CHECK_EQ(who_has(&s, "default/nodes/db1"), 0); /* it has one name */
        CHECK(is_name(&s, 1, "db1") && is_name(&s, 2, "east/nodes/db1"));
        CHECK_EQ(grant(&s, 3, "db1"), STATE_E_LEASE_NAME_USED);
        load_again(&s);
        CHECK_EQ(who_has(&s, "db1"), 1);
        CHECK_EQ(put(&s, "k", 0, "db1"), STATE_OK);
        CHECK_EQ(lease_of(&s, "k"), 1);

        /* Another life takes the place over. */
        CHECK_EQ(grant(&s, 3, ""), STATE_OK);
        CHECK_EQ(put(&s, NODE "db1", 3, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 3);
        CHECK(is_name(&s, 1, ""));
        /* Its name goes with the first of its keys, and it ends all the same. */
        CHECK_EQ(put(&s, "/tenure/default/services/y/db1", 3, ""), STATE_OK);
        CHECK_EQ(put(&s, "z", 3, ""), STATE_OK);
        CHECK_EQ(end(&s, 0, "db1"), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 0);
        CHECK(!leases_find(&s.leases, 3));
        CHECK_EQ(lease_of(&s, "z"), 0);
        CHECK_EQ(lease_of(&s, "k"), 1);
        state_fini(&s);
}

/* A name that was granted is not taken away, and a lease has one name. */
TEST(a_node_takes_no_name_from_who_was_granted_it)
{
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, "db1"), STATE_OK);
        CHECK_EQ(grant(&s, 2, ""), STATE_OK);
        CHECK_EQ(put(&s, NODE "db1", 2, ""), STATE_OK);
        CHECK_EQ(put(&s, NODE "db2", 2, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 1);
        CHECK_EQ(who_has(&s, "db2"), 0); /* db1 is before it */
        CHECK(is_name(&s, 2, ""));
        CHECK_EQ(end(&s, 1, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db1"), 2);
        CHECK_EQ(grant(&s, 3, "backup"), STATE_OK);
        CHECK_EQ(put(&s, NODE "db3", 3, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "db3"), 0);
        CHECK(is_name(&s, 3, "backup"));
        CHECK_EQ(put(&s, "/tenure//nodes/x", 3, ""), STATE_OK);
        CHECK_EQ(who_has(&s, "/nodes/x"), 0);
        CHECK_EQ(who_has(&s, "nodes/"), 0);
        state_fini(&s);
}

/* ---- in a transaction ---- */

static enum state_outcome txn(struct state *s, Pb__PutRequest *puts, size_t n, bool nested)
{
        Pb__TxnRequest inner = PB__TXN_REQUEST__INIT, outer = PB__TXN_REQUEST__INIT;
        Pb__RequestOp ops[8], *all[8], in = PB__REQUEST_OP__INIT, *in_p = &in;

        for (size_t i = 0; i < n; i++) {
                pb__request_op__init(&ops[i]);
                ops[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                ops[i].request_put = &puts[i];
                all[i] = &ops[i];
        }
        inner.success = all;
        inner.n_success = n;
        in.request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
        in.request_txn = &inner;
        outer.success = &in_p;
        outer.n_success = 1;
        return apply(s, CMD_TXN, nested ? &outer.base : &inner.base);
}

/* By what the names are before it: it may itself move the key that one comes of. */
TEST(a_transaction_attaches_by_the_names_that_it_finds)
{
        struct state s;

        state_init(&s);
        CHECK_EQ(grant(&s, 1, ""), STATE_OK);
        CHECK_EQ(grant(&s, 2, ""), STATE_OK);
        CHECK_EQ(put(&s, NODE "n", 1, ""), STATE_OK);
        for (int nested = 0; nested < 2; nested++) {
                Pb__PutRequest puts[] = {
                        put_request(NODE "n", 3 - who_has(&s, "n"), ""),
                        put_request("a", PB_LEASE_BY_NAME, "n"),
                        put_request("b", 0, ""),
                };
                int64_t had = who_has(&s, "n");

                CHECK_EQ(txn(&s, puts, 3, nested), STATE_OK);
                CHECK_EQ(who_has(&s, "n"), 3 - had);
                CHECK_EQ(lease_of(&s, "a"), had);
                CHECK_EQ(lease_of(&s, "b"), 0);
                puts[0] = put_request("c", 0, "");
                puts[1] = put_request("d", PB_LEASE_BY_NAME, "nobody");
                CHECK_EQ(txn(&s, puts, 2, nested), STATE_E_LEASE_NAME_NOT_FOUND);
                CHECK(!kv_find(&s.kv, "c", 1));
                puts[1] = put_request("d", 1, "n");
                CHECK_EQ(txn(&s, puts, 2, nested), STATE_E_LEASE_TWICE);
        }
        state_fini(&s);
}

/* ---- over a connection ---- */

/* Past the log. */
static struct lease *grant_now(int64_t id, const char *name)
{
        struct state *s = core_state(rig.core);
        struct lease *l;

        CHECK_EQ(leases_add(&s->leases, id, 10000, 1, name, strlen(name), NULL, &l), 0);
        CHECK_EQ(deadlines_set(&s->deadlines, l->slot,
                               lease_time_add(s->time, 10 * NSEC_PER_SEC)),
                 0);
        return l;
}

static void end_now(int64_t id)
{
        struct state *s = core_state(rig.core);
        struct lease *l = leases_find(&s->leases, id);

        deadlines_clear(&s->deadlines, l->slot);
        leases_remove(&s->leases, l);
}

static void put_now(const char *key, struct lease *l)
{
        struct state *s = core_state(rig.core);
        struct kv_key *k;

        CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, strlen(key), "v", 1, l->id, &k), 0);
        leases_attach(k, l);
}

static Pb__LeaseTimeToLiveResponse *ask_ttl(struct rig_conn *c, int64_t id, const char *name,
                                            bool keys)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        Pb__LeaseTimeToLiveResponse *p = NULL;
        struct rig_call call;

        q.id = id;
        q.name = text(name);
        q.keys = keys;
        rig_ask(c, &call, TTL, &q.base);
        rig_wait(&call, 500);
        if (call.code == RPC_OK)
                CHECK_EQ(pb_unpack(
                                 &pb__lease_time_to_live_response__descriptor,
                                 (struct view){buf_head(&call.message), buf_len(&call.message)},
                                 &p),
                         0);
        else
                CHECK_EQ(call.code, RPC_INVALID_ARGUMENT);
        rig_forget(&call);
        return p;
}

static bool says(const ProtobufCBinaryData *name, const char *is)
{
        return bytes_cmp(name->data, name->len, is, strlen(is)) == 0;
}

TEST(a_lease_is_looked_up_by_its_name)
{
        Pb__LeaseTimeToLiveResponse *p;
        struct rig_conn *c;
        struct lease *l;

        rig_begin();
        c = rig_connect(0);
        c->takes = 1 << 20;
        l = grant_now(7, "a");
        put_now("k1", l);
        put_now("k2", l);
        p = ask_ttl(c, 0, "a", true);
        CHECK_EQ(p->id, 7);
        CHECK_EQ(p->n_keys, 2);
        CHECK_EQ(p->granted_ttl_ms, 10000);
        CHECK(says(&p->name, "a") && says(&p->keys[0], "k1"));
        pb_free(p);
        p = ask_ttl(c, 7, "", false);
        CHECK(says(&p->name, "a") && p->n_keys == 0);
        pb_free(p);
        p = ask_ttl(c, 0, "b", true);
        CHECK(p->ttl == -1 && p->id == 0 && says(&p->name, "b"));
        pb_free(p);
        CHECK(!ask_ttl(c, 7, "a", false));
        rig_end();
}

static void on_renewed(struct rig_call *call, struct view m)
{
        Pb__LeaseKeepAliveResponse *p;

        (void) call;
        CHECK_EQ(pb_unpack(&pb__lease_keep_alive_response__descriptor, m, &p), 0);
        renewed = p->id;
        CHECK(says(&p->name, "a"));
        CHECK_EQ(p->ttl > 0, p->id > 0);
        pb_free(p);
}

/* The one that has the name when it is applied, not the one that had it when it was asked. */
TEST(a_renewal_by_name_is_of_who_has_it_then)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        struct rig_call call;
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(0);
        c->takes = 1 << 20;
        grant_now(7, "a");
        q.name = text("a");
        rig_open(c, &call, RENEW, &q.base);
        call.got = on_renewed;
        for (unsigned i = 0; i < 50 && call.messages < 1; i++)
                rig_turn();
        CHECK_EQ(call.messages, 1);
        CHECK_EQ(renewed, 7);

        /* It ends, and another one gets the name, while the renewal waits for its batch. */
        CHECK_EQ(rpc_call_send(call.call,
                               "\x92\xb3\x04\x01"
                               "a",
                               5),
                 0);
        for (unsigned i = 0; i < 50 && call.messages < 2; i++) {
                if (i == 1) {
                        end_now(7);
                        grant_now(8, "a");
                }
                rig_turn();
        }
        CHECK_EQ(call.messages, 2);
        CHECK_EQ(renewed, 8);

        end_now(8);
        CHECK_EQ(rpc_call_send(call.call,
                               "\x92\xb3\x04\x01"
                               "a",
                               5),
                 0);
        for (unsigned i = 0; i < 50 && call.messages < 3; i++)
                rig_turn();
        CHECK_EQ(call.messages, 3);
        CHECK_EQ(renewed, 0);
        CHECK(!call.over); /* for the sake of the others on it */
        /* With both id and name: refused. */
        CHECK_EQ(rpc_call_send(call.call,
                               "\x08\x07\x92\xb3\x04\x01"
                               "a",
                               7),
                 0);
        for (unsigned i = 0; i < 50 && !call.over; i++)
                rig_turn();
        CHECK_EQ(call.code, RPC_INVALID_ARGUMENT);
        rig_forget(&call);
        rig_end();
}
