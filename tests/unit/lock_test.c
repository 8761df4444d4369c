/* Which waiter gets a lock next, and what that costs: the services on a single replica, with
 * clients on both sides of real connections. */
#include <stdlib.h>

#include "../whole.h"
#include "compares.h"
#include "etcd/api.h"
#include "nomem.h"
#include "one.h"
#include "test.h"
#include "wire/pb.h"

#define KB ((size_t) 1024)
#define N_CONNS 2

/* One call, as its client sees it. */
struct ask {
        struct rpc_call *call; /* NULL: it is over */
        bool ended;
        enum rpc_code code;
        char text[64];
        struct buf reply;
};

static struct {
        struct boot_time now;
        struct disk *disk;
        struct core *core;
        struct api *api;
        struct replica *replica;
        struct rpc_account account;
        struct conn {
                struct rpc_conn *client, *server;
                struct rpc_account account;
                bool kicked;
        } conns[N_CONNS];
        bool stalled;     /* the disk */
        bool logged_in;   /* the clients, as "root" and "user" */
        unsigned n_ended; /* of all calls */
} one;

/* ---- a replica and its clients ---- */

static void kick(struct rpc_conn *c, void *arg)
{
        (void) arg;
        for (size_t i = 0; i < N_CONNS; i++)
                if (one.conns[i].server == c)
                        one.conns[i].kicked = true;
}

static const char *common_name(struct rpc_conn *c, void *arg)
{
        (void) arg;
        if (!one.logged_in)
                return NULL;
        return c == one.conns[0].server ? "root" : "user";
}

static struct api_turn *turn_of(struct rpc_conn *c, void *arg)
{
        static struct api_turn address, turn = {.of = &address};

        (void) c;
        (void) arg;
        return &turn;
}

static bool move(struct rpc_conn *from, struct rpc_conn *to)
{
        cleanup_(buf_fini) struct buf wire = {0};

        CHECK_EQ(rpc_conn_output(from, &wire, 64 * KB), 0);
        CHECK_EQ(rpc_conn_input(to, buf_head(&wire), buf_len(&wire)), 0);
        return buf_len(&wire) > 0;
}

/* A turn of the loop: input, the log, the disk, and output. A connection that was not kicked is
 * not looked at. */
static bool turn(void)
{
        bool moved = false;

        one.now = boot_add(one.now, 100 * NSEC_PER_USEC);
        for (struct conn *c = one.conns; c < one.conns + N_CONNS; c++)
                if (c->client && move(c->client, c->server))
                        moved = c->kicked = true;
        replica_run(one.replica, one.now);
        core_run(one.core, one.now);
        core_flush(one.core, one.now);
        replica_flush(one.replica, one.now);
        for (; sim_disk_busy(one.disk) && !one.stalled; moved = true)
                sim_disk_finish(one.disk);
        api_run(one.api, one.now);
        nomem_pause(true);
        for (struct conn *c = one.conns; c < one.conns + N_CONNS; c++) {
                if (!c->kicked)
                        continue;
                c->kicked = false;
                moved = true;
                if (move(c->server, c->client) || rpc_conn_can_go_on(c->server))
                        c->kicked = true;
        }
        nomem_pause(false);
        return moved;
}

static void settle(void)
{
        for (unsigned quiet = 0; quiet < 5;)
                quiet = turn() ? 0 : quiet + 1;
}

static void connect_to(struct conn *c)
{
        const struct rpc_limits limits = {.message_max = 1536 * KB,
                                          .calls_max = 8192,
                                          .too_large = "too large",
                                          .too_many = "too many",
                                          .account = &c->account};

        c->account.parent = &one.account;
        c->account.max = one.account.max;
        CHECK_EQ(rpc_conn_new_server(&c->server, &limits, api_accept, one.api), 0);
        CHECK_EQ(rpc_conn_new_client(&c->client, "localhost:1", false), 0);
}

static void disconnect(struct conn *c)
{
        c->server = rpc_conn_free(c->server);
        c->client = rpc_conn_free(c->client);
}

static void begin(void)
{
        static const struct api_conns conns = {
                .kick = kick, .common_name = common_name, .turn = turn_of};

        memset(&one, 0, sizeof(one));
        one.account.max = 256 * KB * KB;
        one.now.ns = 1000 * NSEC_PER_SEC;
        one.disk = sim_disk_new();
        one_new(&one.core, &one.replica, one.disk, 1,
                &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .max_txn_ops = 128},
                one.now);
        CHECK_EQ(api_new(&one.api, one.core, NULL, NSEC_PER_SEC), 0);
        api_set_conns(one.api, &conns, NULL);
        while (!core_status(one.core).ready)
                turn();
        for (size_t i = 0; i < N_CONNS; i++)
                connect_to(&one.conns[i]);
}

static void end(void)
{
        for (size_t i = 0; i < N_CONNS; i++)
                disconnect(&one.conns[i]);
        while (sim_disk_busy(one.disk))
                sim_disk_finish(one.disk);
        core_free(one.core);
        api_free(one.api);
        replica_free(one.replica);
        disk_free(one.disk);
        CHECK_EQ(one.account.held, 0);
        CHECK_EQ(one.account.calls, 0);
}

/* ---- calls ---- */

static void got_reply(struct rpc_call *call, struct view m)
{
        struct ask *k = call->userdata;

        buf_clear(&k->reply);
        buf_add(&k->reply, m.p, m.len);
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *text)
{
        struct ask *k = call->userdata;

        k->ended = true;
        k->code = code;
        snprintf(k->text, sizeof(k->text), "%s", text);
        one.n_ended++;
}

static void got_close(struct rpc_call *call)
{
        struct ask *k = call->userdata;

        k->call = NULL;
}

static const struct rpc_handler handler = {
        .on_message = got_reply, .on_status = got_status, .on_close = got_close};

/* @k lives until the call is over. */
static void start(unsigned conn, const char *path, const ProtobufCMessage *m, struct ask *k)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        CHECK_EQ(buf_error(&b), 0);
        buf_fini(&k->reply);
        *k = (struct ask){0};
        CHECK_EQ(rpc_call_new(one.conns[conn].client, path, false, &handler, k, &k->call), 0);
        CHECK_EQ(rpc_call_send(k->call, b.data, buf_len(&b)), 0);
        rpc_call_end(k->call);
}

/* One that is answered at once, and well. */
static void do_now(unsigned conn, const char *path, const ProtobufCMessage *m)
{
        struct ask k = {0};

        start(conn, path, m, &k);
        settle();
        CHECK(k.ended);
        CHECK_EQ(k.code, RPC_OK);
        buf_fini(&k.reply);
}

static ProtobufCBinaryData text(const char *s)
{
        return pb_bytes(s, strlen(s));
}

static void grant(int64_t first, int64_t last)
{
        struct ask *k = calloc((size_t) (last - first + 1), sizeof(*k));
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.ttl = 100000;
        for (q.id = first; q.id <= last; q.id++)
                start(0, "/etcdserverpb.Lease/LeaseGrant", &q.base, &k[q.id - first]);
        settle();
        for (int64_t i = 0; i <= last - first; i++) {
                CHECK(k[i].ended && k[i].code == RPC_OK);
                buf_fini(&k[i].reply);
        }
        free(k);
}

static void add_user(char *name, char *role)
{
        Pb__AuthUserAddRequest user = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__UserAddOptions options = PB__USER_ADD_OPTIONS__INIT;
        Pb__AuthUserGrantRoleRequest has = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthRoleAddRequest add = PB__AUTH_ROLE_ADD_REQUEST__INIT;

        options.no_password = true;
        user.name = has.user = name;
        user.options = &options;
        add.name = has.role = role;
        do_now(0, "/etcdserverpb.Auth/UserAdd", &user.base);
        do_now(0, "/etcdserverpb.Auth/RoleAdd", &add.base);
        do_now(0, "/etcdserverpb.Auth/UserGrantRole", &has.base);
}

/* Leases 1 and 2; the second connection's client is a user who may use the lock "l". */
static void with_users(void)
{
        Pb__AuthRoleGrantPermissionRequest may = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__Permission perm = PB__PERMISSION__INIT;
        Pb__AuthEnableRequest on = PB__AUTH_ENABLE_REQUEST__INIT;

        grant(1, 2);
        add_user("root", "root");
        add_user("user", "locks");
        perm.permtype = PB__PERMISSION__TYPE__READWRITE;
        perm.key = text("l/");
        perm.range_end = text("l0");
        may.name = "locks";
        may.perm = &perm;
        do_now(0, "/etcdserverpb.Auth/RoleGrantPermission", &may.base);
        do_now(0, "/etcdserverpb.Auth/AuthEnable", &on.base);
        one.logged_in = true;
}

static void end_lease(int64_t lease)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        q.id = lease;
        do_now(0, "/etcdserverpb.Lease/LeaseRevoke", &q.base);
}

static void lock(unsigned conn, const char *name, int64_t lease, struct ask *k)
{
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;

        q.name = text(name);
        q.lease = lease;
        start(conn, "/v3lockpb.Lock/Lock", &q.base, k);
}

static void campaign(unsigned conn, const char *name, int64_t lease, const char *value,
                     struct ask *k)
{
        Pb__CampaignRequest q = PB__CAMPAIGN_REQUEST__INIT;

        q.name = text(name);
        q.lease = lease;
        q.value = text(value);
        start(conn, "/v3electionpb.Election/Campaign", &q.base, k);
}

static void start_delete(const char *key, struct ask *k)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;

        q.key = text(key);
        start(0, "/etcdserverpb.KV/DeleteRange", &q.base, k);
}

static void remove_key(const char *key)
{
        struct ask k = {0};

        start_delete(key, &k);
        settle();
        CHECK(k.ended && k.code == RPC_OK);
        buf_fini(&k.reply);
}

static void start_put(const char *key, int64_t lease, struct ask *k)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = text(key);
        q.lease = lease;
        start(0, "/etcdserverpb.KV/Put", &q.base, k);
}

static void put(const char *key, int64_t lease)
{
        struct ask k = {0};

        start_put(key, lease, &k);
        settle();
        CHECK(k.ended && k.code == RPC_OK);
        buf_fini(&k.reply);
}

static void start_compact(int64_t revision, struct ask *k)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;

        q.revision = revision;
        start(0, "/etcdserverpb.KV/Compact", &q.base, k);
}

static bool cut_through;

static void compaction_done(struct core_write *w, struct status st, struct view reply)
{
        (void) w;
        (void) reply;
        cut_through = st.code == RPC_OK;
}

/* Straight into the log, as another replica's compaction may come right behind a change. */
static void propose_compact(int64_t revision, struct core_write *w)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};

        cut_through = false;
        w->done = compaction_done;
        q.revision = revision;
        pb_append(&b, &q.base);
        CHECK_EQ(core_write(one.core, w, CMD_COMPACT, NULL, buf_head(&b), buf_len(&b), 0), 0);
}

static int64_t revision(void)
{
        return core_state(one.core)->revision;
}

static bool is_live(const char *key)
{
        const struct kv_key *k = kv_find(&core_state(one.core)->kv, key, strlen(key));

        return k && kv_live(k);
}

/* It got the answer that it holds @key. */
static void check_holds(struct ask *k, const char *key)
{
        Pb__LockResponse *p;

        CHECK(k->ended);
        CHECK_STR(k->text, "");
        CHECK_EQ(k->code, RPC_OK);
        p = pb__lock_response__unpack(NULL, buf_len(&k->reply), buf_head(&k->reply));
        CHECK(p);
        CHECK_EQ(p->key.len, strlen(key));
        CHECK(memcmp(p->key.data, key, p->key.len) == 0);
        pb_free(p);
        buf_fini(&k->reply);
}

static void check_gone(struct ask *k)
{
        CHECK(k->ended);
        CHECK_EQ(k->code, RPC_UNKNOWN);
        CHECK_STR(k->text, "mutex: session is expired");
}

/* ---- what it costs ---- */

#define CROWD 4000
#define SOME 50

static struct ask crowd[CROWD + 1];

/* @to - @from + 1 more of them wait; returns how much was compared for each. */
static uint64_t join(int64_t from, int64_t to)
{
        uint64_t before = compares();

        for (int64_t i = from; i <= to; i++)
                lock(0, "l", i, &crowd[i]);
        settle();
        return (compares() - before) / (uint64_t) (to - from + 1);
}

/* Like join(), as each but the last releases. */
static uint64_t release(int64_t from, int64_t to)
{
        uint64_t before = compares();
        char key[32];

        for (int64_t i = from; i < to; i++) {
                snprintf(key, sizeof(key), "l/%" PRIx64, (uint64_t) i);
                check_holds(&crowd[i], key);
                remove_key(key);
                CHECK(crowd[i + 1].ended && !crowd[i + 2].ended);
        }
        return (compares() - before) / (uint64_t) (to - from);
}

/* 16,000 waiters for one lock stopped the loop for 3.7 s when they came, and again as each had
 * its turn. */
TEST(one_of_a_crowd_that_waits_does_not_look_at_all_of_it)
{
        uint64_t few, many;

        memset(crowd, 0, sizeof(crowd));
        begin();
        grant(1, CROWD);
        (void) join(1, 400);
        few = join(401, 400 + SOME) + release(1, SOME);
        (void) join(401 + SOME, CROWD - SOME);
        many = join(CROWD - SOME + 1, CROWD) + release(SOME, 2 * SOME);
        CHECK(many < 2 * few);
        end();
}

/* A deletion that is compacted in the same turn may concern any waiter: 18,000 waiters were
 * checked in one go, each time. */
TEST(a_compaction_does_not_look_at_a_crowd_at_once)
{
        struct core_write cut = {0};
        struct ask gone = {0};
        uint64_t all, most = 0;
        int64_t was;

        memset(crowd, 0, sizeof(crowd));
        begin();
        grant(1, CROWD);
        (void) join(1, CROWD);
        check_holds(&crowd[1], "l/1");
        all = compares();
        was = revision();
        start_delete("l/1", &gone);
        (void) turn();
        CHECK_EQ(revision(), was); /* it is on its way */
        propose_compact(was + 1, &cut);
        for (unsigned quiet = 0; quiet < 5;) {
                uint64_t from = compares();

                quiet = turn() ? 0 : quiet + 1;
                most = max_of(most, compares() - from);
        }
        all = compares() - all;
        CHECK(cut_through && gone.code == RPC_OK);
        CHECK(all > 10 * CROWD); /* it was one of those */
        CHECK(most < all / 4);
        check_holds(&crowd[2], "l/2");
        CHECK(!crowd[3].ended);
        buf_fini(&gone.reply);
        end();
}

/* All keys of a crowd go at once, and it is answered in slices. */
TEST(a_crowd_that_loses_its_keys_is_answered_in_slices)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        struct ask gone = {0};
        unsigned turns = 0;

        memset(crowd, 0, sizeof(crowd));
        begin();
        grant(1, CROWD);
        (void) join(1, CROWD);
        buf_fini(&crowd[1].reply);
        q.key = text("l/");
        q.range_end = text("l0");
        start(1, "/etcdserverpb.KV/DeleteRange", &q.base, &gone);
        while (!crowd[CROWD].ended || !crowd[2].ended || !crowd[CROWD / 2].ended) {
                CHECK(turns++ < 5000);
                (void) turn();
        }
        settle();
        for (size_t i = 2; i <= CROWD; i++)
                check_gone(&crowd[i]);
        CHECK(turns >= 5);
        buf_fini(&gone.reply);
        end();
}

/* ---- who is next ---- */

TEST(each_has_its_turn_in_the_order_of_the_keys)
{
        struct ask k[6] = {0};
        char key[8];

        begin();
        grant(1, 5);
        for (int64_t i = 1; i <= 5; i++) {
                lock((unsigned) i % N_CONNS, "l", i, &k[i]);
                settle();
        }
        for (int64_t i = 1; i <= 5; i++) {
                snprintf(key, sizeof(key), "l/%d", (int) i);
                check_holds(&k[i], key);
                for (int64_t later = i + 1; later <= 5; later++)
                        CHECK(!k[later].ended);
                remove_key(key);
        }
        end();
}

/* Keys that one txn made are equally old: as with etcd, both hold. */
TEST(keys_of_one_txn_hold_together)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__PutRequest puts[] = {PB__PUT_REQUEST__INIT, PB__PUT_REQUEST__INIT};
        Pb__RequestOp ops[] = {PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT},
                      *both[] = {&ops[0], &ops[1]};
        struct ask k[4] = {0};

        begin();
        grant(1, 3);
        put("t/0", 0);
        for (size_t i = 0; i < 2; i++) {
                puts[i].key = text(i == 0 ? "t/1" : "t/2");
                puts[i].lease = (int64_t) i + 1;
                ops[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                ops[i].request_put = &puts[i];
        }
        txn.success = both;
        txn.n_success = 2;
        do_now(0, "/etcdserverpb.KV/Txn", &txn.base);
        for (int64_t i = 1; i <= 3; i++)
                lock((unsigned) i % N_CONNS, "t", i, &k[i]);
        settle();
        CHECK(!k[1].ended && !k[2].ended && !k[3].ended);
        remove_key("t/0");
        check_holds(&k[1], "t/1");
        check_holds(&k[2], "t/2");
        CHECK(!k[3].ended);
        remove_key("t/2");
        CHECK(!k[3].ended);
        remove_key("t/1");
        check_holds(&k[3], "t/3");
        end();
}

/* The same client may ask twice: it is one key. */
TEST(a_client_that_asks_twice_is_answered_twice)
{
        struct ask first = {0}, k[2] = {0};

        begin();
        grant(1, 2);
        lock(0, "l", 1, &first);
        settle();
        lock(0, "l", 2, &k[0]);
        lock(1, "l", 2, &k[1]);
        settle();
        remove_key("l/1");
        check_holds(&k[0], "l/2");
        check_holds(&k[1], "l/2");
        check_holds(&first, "l/1");
        end();
}

/* The keys of `a/b` are keys of `a`, too. */
TEST(a_lock_waits_for_those_below_it)
{
        struct ask holder = {0}, above = {0}, below = {0}, beside = {0};

        begin();
        grant(1, 4);
        lock(0, "a/b", 1, &holder);
        settle();
        check_holds(&holder, "a/b/1");
        lock(0, "a", 2, &above);
        settle();
        lock(1, "a/b", 3, &below);
        settle();
        lock(1, "a/c", 4, &beside);
        settle();
        check_holds(&beside, "a/c/4");
        CHECK(!above.ended && !below.ended);
        remove_key("a/b/1");
        check_holds(&above, "a/2"); /* its key is older than those of 3 and 4 */
        check_holds(&below, "a/b/3");
        end();
}

TEST(a_lock_keeps_waiting_for_the_next_below_it)
{
        struct ask holder = {0}, above = {0}, below = {0};

        begin();
        grant(1, 3);
        lock(0, "a/b", 1, &holder);
        settle();
        lock(1, "a/b", 3, &below);
        settle();
        lock(0, "a", 2, &above);
        settle();
        remove_key("a/b/1");
        check_holds(&below, "a/b/3");
        CHECK(!above.ended);
        remove_key("a/b/3");
        check_holds(&above, "a/2");
        buf_fini(&holder.reply);
        end();
}

/* A claim is made in the same moment in which the holder releases: whoever waited is next. */
TEST(who_comes_as_the_holder_goes_takes_nobodys_turn)
{
        struct ask holder = {0}, waits = {0}, comes = {0}, gone = {0};

        begin();
        grant(1, 3);
        lock(0, "l", 1, &holder);
        settle();
        lock(0, "l", 2, &waits);
        settle();
        start_delete("l/1", &gone);
        lock(0, "l", 3, &comes);
        settle();
        check_holds(&waits, "l/2");
        CHECK(!comes.ended);
        remove_key("l/2");
        check_holds(&comes, "l/3");
        buf_fini(&holder.reply);
        buf_fini(&gone.reply);
        end();
}

/* Whatever of the history is gone before anybody has looked at it. */
TEST(a_compaction_wakes_who_is_next)
{
        for (int64_t beyond = 0; beyond <= 2; beyond++) {
                struct ask holder = {0}, k[2] = {0}, gone = {0}, more[2] = {0}, cut = {0};

                begin();
                grant(1, 3);
                lock(0, "l", 1, &holder);
                settle();
                lock(0, "l", 2, &k[0]);
                settle();
                lock(1, "l", 3, &k[1]);
                settle();
                start_delete("l/1", &gone);
                start_put("other", 0, &more[0]);
                start_put("other", 0, &more[1]);
                start_compact(revision() + 1 + beyond, &cut);
                settle();
                CHECK_EQ(core_state(one.core)->kv.compacted, revision() - 2 + beyond);
                CHECK_EQ(cut.code, RPC_OK);
                check_holds(&k[0], "l/2");
                CHECK(!k[1].ended);
                remove_key("l/2");
                check_holds(&k[1], "l/3");
                buf_fini(&holder.reply);
                buf_fini(&gone.reply);
                buf_fini(&more[0].reply);
                buf_fini(&more[1].reply);
                buf_fini(&cut.reply);
                end();
        }
}

/* What another replica has sent us, in which @key is gone and @compacted revisions are cut
 * off. */
static void install_without(const char *key, bool compacted)
{
        const char *wrong;
        cleanup_(buf_fini) struct buf before = {0}, after = {0};
        size_t all = SIZE_MAX;
        struct kv_key *k;
        struct state s;

        state_save(core_state(one.core), &before);
        CHECK_EQ(state_load(&s, (struct view){before.data, buf_len(&before)}), 0);
        k = kv_find(&s.kv, key, strlen(key));
        CHECK(k);
        s.revision++;
        CHECK_EQ(kv_delete(&s.kv, s.revision, 0, k), 0);
        if (compacted)
                kv_compact(&s.kv, s.revision);
        state_save(&s, &after);
        state_fini(&s);
        CHECK_EQ(core_replica_ops.load(one.core, (struct view){after.data, buf_len(&after)}),
                 0);
        CHECK_EQ(core_replica_ops.load_more(one.core, &all, &wrong), 0);
        (void) core_replica_ops.adopt(one.core);
}

TEST(a_snapshot_that_is_installed_wakes_who_is_next)
{
        for (int compacted = 0; compacted <= 1; compacted++) {
                struct ask k[3] = {0};

                begin();
                put("l/0", 0);
                grant(1, 3);
                for (int64_t i = 1; i <= 3; i++) {
                        lock((unsigned) i % N_CONNS, "l", i, &k[i - 1]);
                        settle();
                }
                install_without("l/0", compacted);
                settle();
                check_holds(&k[0], "l/1");
                CHECK(!k[1].ended);
                /* Not the key before it: the key of a waiter. */
                install_without("l/2", compacted);
                settle();
                check_gone(&k[1]);
                CHECK(!k[2].ended);
                remove_key("l/1");
                check_holds(&k[2], "l/3");
                end();
        }
}

static void alarm_of_corruption(Pb__AlarmRequest__AlarmAction action)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        q.action = action;
        q.alarm = PB__ALARM_TYPE__CORRUPT;
        q.memberid = 1;
        do_now(0, "/etcdserverpb.Maintenance/Alarm", &q.base);
}

/* The key before its own goes, in the eyes of a replica that may be wrong. */
TEST(nobody_holds_next_while_the_replicas_may_differ)
{
        struct ask holder = {0}, next = {0};

        begin();
        grant(1, 2);
        lock(0, "l", 1, &holder);
        lock(1, "l", 2, &next);
        settle();
        alarm_of_corruption(PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE);
        install_without("l/1", false);
        settle();
        CHECK(next.ended);
        CHECK_EQ(next.code, RPC_DATA_LOSS);
        CHECK_STR(next.text, "etcdserver: corrupt cluster");
        buf_fini(&holder.reply);
        buf_fini(&next.reply);
        end();
}

/* ---- who has lost its key, or gone away ---- */

/* Who brings no lease gets one, which is renewed for as long as it waits, and goes with it. */
TEST(who_brings_no_lease_waits_as_long_as_it_takes)
{
        struct ask holder = {0}, waits = {0};

        begin();
        grant(1, 1);
        lock(0, "l", 1, &holder);
        settle();
        lock(1, "l", 0, &waits);
        settle();
        for (unsigned i = 0; i < 10000; i++) {
                one.now = boot_add(one.now, 20 * NSEC_PER_MSEC);
                settle();
                CHECK(!waits.ended);
        }
        remove_key("l/1");
        CHECK(waits.ended);
        CHECK_EQ(waits.code, RPC_OK);
        buf_fini(&holder.reply);
        buf_fini(&waits.reply);
        end();
}

TEST(a_waiter_whose_key_is_gone_is_answered_at_once)
{
        struct ask k[4] = {0};

        begin();
        grant(1, 3);
        for (int64_t i = 1; i <= 3; i++) {
                lock((unsigned) i % N_CONNS, "l", i, &k[i]);
                settle();
        }
        end_lease(2);
        check_gone(&k[2]);
        CHECK(!k[3].ended);
        remove_key("l/1");
        check_holds(&k[3], "l/3");
        buf_fini(&k[1].reply);
        end();
}

/* Its key comes again, as another one: that is not the one for which it waited. */
TEST(a_key_that_is_made_again_is_another_one)
{
        struct ask holder = {0}, waits = {0}, gone = {0}, again = {0};

        begin();
        grant(1, 2);
        lock(0, "l", 1, &holder);
        settle();
        lock(1, "l", 2, &waits);
        settle();
        start_delete("l/2", &gone);
        start_put("l/2", 2, &again);
        settle();
        CHECK(gone.ended && again.ended && is_live("l/2"));
        check_gone(&waits);
        buf_fini(&holder.reply);
        buf_fini(&gone.reply);
        buf_fini(&again.reply);
        end();
}

/* The client goes at any moment of its claim: the one behind it does not wait for it. */
TEST(who_goes_away_takes_its_key_along)
{
        for (unsigned turns = 0; turns < 12; turns++) {
                struct ask holder = {0}, goes = {0}, next = {0};

                begin();
                grant(1, 3);
                lock(0, "l", 1, &holder);
                settle();
                lock(1, "l", 2, &goes);
                for (unsigned i = 0; i < turns; i++)
                        turn();
                CHECK(!goes.ended);
                rpc_call_cancel(goes.call);
                lock(0, "l", 3, &next);
                settle();
                CHECK(!is_live("l/2") && is_live("l/3") && !next.ended);
                remove_key("l/1");
                check_holds(&next, "l/3");
                buf_fini(&holder.reply);
                end();
        }
}

/* Longer than a request may take. */
static void time_out(struct ask *k)
{
        for (unsigned i = 0; i < 60000 && !k->ended; i++)
                turn();
        CHECK(k->ended);
        CHECK_EQ(k->code, RPC_UNAVAILABLE);
}

/* The log stalls for longer than a claim may take. When it continues, the claim is made, and
 * its client is gone. */
TEST(a_claim_that_timed_out_takes_its_key_along)
{
        struct ask gone = {0}, next = {0};

        begin();
        grant(1, 2);
        one.stalled = true;
        lock(0, "l", 1, &gone);
        time_out(&gone);
        one.stalled = false;
        settle();
        CHECK(!is_live("l/1"));
        lock(0, "l", 2, &next);
        settle();
        check_holds(&next, "l/2");
        buf_fini(&gone.reply);
        end();
}

/* But the same holder has asked again, by another connection or another replica, and has it. */
TEST(a_claim_that_timed_out_takes_nothing_from_a_client_that_returned)
{
        struct ask gone = {0}, back = {0};

        begin();
        grant(1, 1);
        one.stalled = true;
        lock(0, "l", 1, &gone);
        for (unsigned i = 0; i < 40000; i++)
                turn();
        lock(1, "l", 1, &back);
        time_out(&gone);
        CHECK(!back.ended);
        one.stalled = false;
        settle();
        check_holds(&back, "l/1");
        CHECK(is_live("l/1"));
        buf_fini(&gone.reply);
        end();
}

/* A waiter comes back on another connection, and the first one ends late. */
TEST(a_client_that_returns_keeps_its_key)
{
        struct ask gone = {0}, back = {0};

        begin();
        grant(1, 1);
        lock(0, "l/first", 1, &gone);
        settle();
        check_holds(&gone, "l/first/1");
        lock(0, "l", 1, &gone); /* waits for that one */
        settle();
        CHECK(!gone.ended);
        lock(1, "l", 1, &back);
        settle();
        rpc_call_cancel(gone.call);
        settle();
        CHECK(is_live("l/1") && !back.ended);
        remove_key("l/first/1");
        check_holds(&back, "l/1");
        end();
}

/* Both calls of one lease end, in either order, and the one before them goes at any moment of
 * that: their key goes, too, unless it is first by then. */
TEST(who_comes_back_and_goes_takes_its_key_along)
{
        for (unsigned turns = 0; turns < 24; turns++) {
                struct ask holder = {0}, second = {0}, gone = {0}, back = {0}, next = {0},
                           released = {0};

                begin();
                grant(1, 4);
                lock(0, "l", 1, &holder);
                settle();
                check_holds(&holder, "l/1");
                lock(0, "l", 2, &second);
                settle();
                lock(0, "l", 3, &gone);
                settle();
                lock(1, "l", 3, &back);
                settle();
                rpc_call_cancel(turns % 2 == 0 ? gone.call : back.call);
                if (turns < 12)
                        start_delete("l/1", &released);
                rpc_call_cancel(turns % 2 == 0 ? back.call : gone.call);
                for (unsigned i = 0; i < turns / 2; i++)
                        turn();
                if (turns >= 12)
                        start_delete("l/1", &released);
                settle();
                CHECK(!is_live("l/3"));
                check_holds(&second, "l/2");
                lock(0, "l", 4, &next);
                settle();
                remove_key("l/2");
                check_holds(&next, "l/4");
                buf_fini(&released.reply);
                end();
        }
}

/* The key is first when the second call ends: then the first one may have been told so. */
TEST(who_comes_back_and_goes_leaves_a_key_that_may_hold)
{
        struct ask holder = {0}, gone = {0}, back = {0}, released = {0};

        begin();
        grant(1, 2);
        lock(0, "l", 1, &holder);
        settle();
        check_holds(&holder, "l/1");
        lock(0, "l", 2, &gone);
        settle();
        lock(1, "l", 2, &back);
        settle();
        start_delete("l/1", &released);
        rpc_call_cancel(back.call);
        settle();
        check_holds(&gone, "l/2");
        CHECK(is_live("l/2"));
        buf_fini(&released.reply);
        end();
}

/* The holder asks again, and goes away, or gets a timeout, at any moment of that call. */
TEST(a_holder_that_asks_again_keeps_its_lock)
{
        for (unsigned turns = 0; turns < 24; turns++) {
                struct ask holder = {0}, again = {0};

                begin();
                grant(1, 1);
                lock(0, "l", 1, &holder);
                settle();
                lock(1, "l", 1, &again);
                for (unsigned i = 0; i < turns / 2; i++)
                        turn();
                if (again.ended) {
                        check_holds(&again, "l/1");
                } else if (turns % 2 == 0) {
                        rpc_call_cancel(again.call);
                } else {
                        one.stalled = true;
                        for (unsigned i = 0; i < 60000 && !again.ended; i++)
                                turn();
                        one.stalled = false;
                }
                settle();
                CHECK(is_live("l/1"));
                check_holds(&holder, "l/1");
                buf_fini(&again.reply);
                end();
        }
}

/* It has its turn, but whether it still has its key cannot be confirmed in time. */
TEST(a_call_that_is_not_confirmed_takes_its_key_along)
{
        unsigned n_failed = 0;

        for (unsigned turns = 0; turns < 12; turns++) {
                struct ask holder = {0}, next = {0}, released = {0};

                begin();
                grant(1, 2);
                lock(0, "l", 1, &holder);
                settle();
                lock(1, "l", 2, &next);
                settle();
                start_delete("l/1", &released);
                for (unsigned i = 0; i < turns; i++)
                        turn();
                one.now = boot_add(one.now, 6 * NSEC_PER_SEC);
                settle();
                CHECK(next.ended);
                CHECK_EQ(is_live("l/2"), next.code == RPC_OK);
                n_failed += next.code != RPC_OK;
                buf_fini(&holder.reply);
                buf_fini(&next.reply);
                buf_fini(&released.reply);
                end();
        }
        CHECK(n_failed > 0);
}

/* A user who may no longer write the key goes away, or has its turn: its key goes in both
 * cases. */
TEST(who_lost_its_permission_takes_its_key_along)
{
        for (unsigned has_turn = 0; has_turn < 2; has_turn++) {
                struct ask holder = {0}, next = {0};
                Pb__AuthUserRevokeRoleRequest revoke = PB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

                begin();
                with_users();
                lock(0, "l", 1, &holder);
                settle();
                lock(1, "l", 2, &next);
                settle();
                CHECK(is_live("l/2") && !next.ended);
                revoke.name = "user";
                revoke.role = "locks";
                do_now(0, "/etcdserverpb.Auth/UserRevokeRole", &revoke.base);
                if (has_turn) {
                        remove_key("l/1");
                        CHECK(next.ended);
                        CHECK_EQ(next.code, RPC_PERMISSION_DENIED);
                } else {
                        rpc_call_cancel(next.call);
                        settle();
                }
                CHECK(!is_live("l/2"));
                buf_fini(&holder.reply);
                buf_fini(&next.reply);
                end();
        }
}

/* The core cannot take the deletion at that moment, so it is proposed again. */
TEST(a_deletion_that_is_refused_is_repeated)
{
        bool came = true;

        for (size_t n = 0; came; n++) {
                struct ask holder = {0}, next = {0};

                begin();
                grant(1, 2);
                lock(0, "l", 1, &holder);
                lock(1, "l", 2, &next);
                settle();
                CHECK(is_live("l/2"));
                nomem_after(n);
                disconnect(&one.conns[1]);
                came = nomem_end();
                settle();
                one.now = boot_add(one.now, 200 * NSEC_PER_MSEC);
                settle();
                CHECK(!is_live("l/2"));
                buf_fini(&holder.reply);
                end();
        }
}

/* It is withdrawn once there may be writes again; meanwhile nothing is proposed. */
TEST(a_claim_is_withdrawn_after_the_alarm_about_corruption)
{
        struct ask holder = {0}, next = {0};
        uint64_t last;

        begin();
        grant(1, 2);
        lock(0, "l", 1, &holder);
        lock(1, "l", 2, &next);
        settle();
        alarm_of_corruption(PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE);
        disconnect(&one.conns[1]);
        settle();
        last = core_status(one.core).last;
        for (unsigned i = 0; i < 5; i++) {
                one.now = boot_add(one.now, 200 * NSEC_PER_MSEC);
                settle();
                CHECK(boot_before(one.now, api_next(one.api)));
        }
        CHECK(is_live("l/2"));
        CHECK(core_status(one.core).last <= last + 5); /* the lease time */
        alarm_of_corruption(PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE);
        settle();
        CHECK(!is_live("l/2"));
        CHECK(is_live("l/1"));
        buf_fini(&holder.reply);
        end();
}

/* A snapshot of another replica takes the place of what we proposed, and has none of it. */
static void lose_proposals(void)
{
        one_skips = true;
        one.stalled = false;
        settle();
        one_skips = false;
        core_replica_ops.skipped(one.core);
        settle();
}

/* The client of @next, which waits behind @holder, goes away while nothing is committed: the
 * deletion of its key waits. */
static void begin_with_deletion(struct ask *holder, struct ask *next)
{
        begin();
        grant(1, 2);
        lock(0, "l", 1, holder);
        lock(1, "l", 2, next);
        settle();
        one.stalled = true;
        disconnect(&one.conns[1]);
}

/* Nobody says that the deletion was applied: however often that happens, it is proposed
 * again. */
TEST(a_deletion_that_is_lost_is_repeated)
{
        struct ask holder = {0}, next = {0};

        begin_with_deletion(&holder, &next);
        for (unsigned i = 0; i < 3; i++) {
                lose_proposals();
                CHECK(is_live("l/2"));
                one.stalled = true;
                one.now = boot_add(one.now, 200 * NSEC_PER_MSEC);
                settle();
        }
        one.stalled = false;
        settle();
        CHECK(!is_live("l/2"));
        CHECK(is_live("l/1"));
        buf_fini(&holder.reply);
        end();
}

/* Whether it was made is in the state that the snapshot brought, so its client waits for the
 * next claim instead of an error. */
TEST(a_claim_that_is_lost_is_made_again)
{
        for (int made = 0; made <= 1; made++) {
                struct ask k = {0}, next = {0};

                begin();
                grant(1, 2);
                one.stalled = true;
                lock(0, "l", 1, &k);
                settle();
                if (made) {
                        core_replica_ops.skipped(one.core);
                        settle(); /* claims again behind the first claim, which is applied */
                        one.stalled = false;
                } else {
                        lose_proposals();
                }
                settle();
                check_holds(&k, "l/1");
                lock(1, "l", 2, &next);
                settle();
                CHECK(is_live("l/1") && !next.ended);
                remove_key("l/1");
                check_holds(&next, "l/2");
                end();
        }
}

/* Nor does its client get an error if the lease is lost that the call gets by itself, or what
 * makes a key its own that it has found. */
TEST(a_call_whose_lease_or_key_is_lost_continues)
{
        for (int64_t lease = 0; lease <= 1; lease++) {
                struct ask k = {0};
                cleanup_(pb_freep) Pb__LockResponse *p = NULL;

                begin();
                grant(1, 1);
                if (lease != 0)
                        put("l/1", 1);
                one.stalled = true;
                lock(0, "l", lease, &k);
                settle();
                if (lease != 0) { /* it finds the key */
                        one.stalled = false;
                        turn();
                        one.stalled = true;
                        settle();
                        CHECK(!k.ended);
                }
                lose_proposals();
                settle();
                CHECK(k.ended);
                CHECK_EQ(k.code, RPC_OK);
                CHECK_EQ(pb_unpack(&pb__lock_response__descriptor,
                                   (struct view){buf_head(&k.reply), buf_len(&k.reply)}, &p),
                         0);
                CHECK(core_state(one.core)->kv.n_keys == 1);
                buf_fini(&k.reply);
                end();
        }
}

/* It ends with the replica. */
TEST(a_deletion_that_waits_ends_with_the_replica)
{
        struct ask holder = {0}, next = {0};

        begin_with_deletion(&holder, &next);
        buf_fini(&holder.reply);
        end();
}

/* A leader that proclaims without naming its lease still goes with it. */
TEST(a_proclamation_leaves_the_key_on_its_lease)
{
        struct ask leads = {0};
        Pb__LeaderKey key = PB__LEADER_KEY__INIT;
        Pb__ProclaimRequest q = PB__PROCLAIM_REQUEST__INIT;

        begin();
        grant(1, 1);
        campaign(0, "e", 1, "one", &leads);
        settle();
        key.name = text("e");
        key.key = text("e/1");
        key.rev = revision();
        q.leader = &key;
        q.value = text("two");
        do_now(0, "/v3electionpb.Election/Proclaim", &q.base);
        CHECK_EQ(revision(), key.rev + 1);
        CHECK(is_live("e/1"));
        end_lease(1);
        CHECK(!is_live("e/1"));
        buf_fini(&leads.reply);
        end();
}

/* ---- what is kept for who waits ---- */

#define CAMPAIGNS 90
#define LARGE ((size_t) 100 * KB)

static char large[LARGE + 1];

static void make_large(char c)
{
        memset(large, c, LARGE);
}

static size_t held(unsigned conn)
{
        return one.conns[conn].account.held + one.conns[conn].account.calls;
}

/* A Range, which may come to wait. */
static bool range_is_answered(struct ask *k)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        q.key = text("other");
        start(0, "/etcdserverpb.KV/Range", &q.base, k);
        settle();
        return k->ended;
}

/* They come while the disk stalls, with a holder on another replica, so nothing is answered
 * that could move their connection on. */
static void wait_with_large(bool name)
{
        static struct ask k[CAMPAIGNS + 1];
        struct ask range = {0};

        memset(k, 0, sizeof(k));
        begin();
        make_large('x');
        grant(1, CAMPAIGNS + 1);
        campaign(1, name ? large : "e", 1, "v", &k[0]);
        settle();
        CHECK(k[0].ended);
        one.stalled = true;
        for (int64_t i = 1; i <= CAMPAIGNS; i++)
                campaign(0, name ? large : "e", i + 1, name ? "v" : large, &k[i]);
        settle();
        one.stalled = false;
        settle();
        CHECK_EQ(kv_span_count(
                         &core_state(one.core)->kv,
                         &(struct kv_span){.from = {(const uint8_t *) "a", 1}, .to_end = true}),
                 CAMPAIGNS + 1);
        CHECK(held(0) < (name ? 3 : 1) * LARGE + CAMPAIGNS * 2 * KB);
        CHECK(range_is_answered(&range));
        CHECK_EQ(one.n_ended, CAMPAIGNS + 1 + 2);
        for (int64_t i = 1; i <= CAMPAIGNS; i++) {
                end_lease(i);
                CHECK(k[i].ended && (i == CAMPAIGNS || !k[i + 1].ended));
                CHECK_EQ(k[i].code, RPC_OK);
        }
        CHECK(held(0) < 4 * KB);
        for (size_t i = 0; i < ARRAY_SIZE(k); i++)
                buf_fini(&k[i].reply);
        buf_fini(&range.reply);
        end();
}

/* They kept a Range that came with them waiting until they were through. */
TEST(campaigns_with_large_values_leave_room_for_a_range)
{
        wait_with_large(false);
}

TEST(campaigns_with_one_large_name_leave_room_for_a_range)
{
        wait_with_large(true);
}

/* It is its turn, and there is no memory to tell it. */
TEST(a_call_that_finds_no_memory_for_its_answer_leaves_no_key)
{
        unsigned n_failed = 0;
        bool came = true;
        char key[LARGE + 8];

        make_large('x');
        snprintf(key, sizeof(key), "%s/2", large);
        for (size_t n = 0; came; n++) {
                struct ask holder = {0}, next = {0}, ends = {0};
                Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

                begin();
                grant(1, 2);
                campaign(0, large, 1, "v", &holder);
                campaign(1, large, 2, "v", &next);
                settle();
                q.id = 1;
                start(0, "/etcdserverpb.Lease/LeaseRevoke", &q.base, &ends);
                while (!ends.ended)
                        turn();
                nomem_after(n);
                turn();
                came = nomem_end();
                settle();
                CHECK(next.ended);
                CHECK_EQ(is_live(key), next.code == RPC_OK);
                n_failed += next.code != RPC_OK;
                buf_fini(&holder.reply);
                buf_fini(&next.reply);
                buf_fini(&ends.reply);
                end();
        }
        CHECK(n_failed > 0);
}

/* The message and what the claim writes are charged; also while a lease is granted for the
 * claim. */
TEST(who_makes_its_claim_is_charged_for_its_message)
{
        for (int64_t lease = 0; lease <= 1; lease++) {
                struct ask k = {0};

                begin();
                grant(1, 1);
                make_large('x');
                one.stalled = true;
                campaign(0, "e", lease, large, &k);
                settle();
                CHECK(held(0) > (size_t) (1 + lease) * LARGE);
                one.stalled = false;
                settle();
                CHECK(k.ended && k.code == RPC_OK);
                CHECK(held(0) < 4 * KB);
                buf_fini(&k.reply);
                end();
        }
}

/* Kept names are charged to their calls, since they stay for as long as others hold: they are
 * nothing that a Range could wait for. */
TEST(many_large_names_are_charged)
{
        static struct ask k[CAMPAIGNS];
        struct ask range = {0};
        char key[LARGE + 8];

        memset(k, 0, sizeof(k));
        begin();
        grant(1, CAMPAIGNS);
        make_large('x');
        for (int64_t i = 0; i < CAMPAIGNS; i++) {
                large[0] = (char) (' ' + i);
                snprintf(key, sizeof(key), "%s/0", large);
                put(key, 0);
        }
        for (int64_t i = 0; i < CAMPAIGNS; i++) {
                large[0] = (char) (' ' + i);
                campaign(0, large, i + 1, "v", &k[i]);
        }
        settle();
        CHECK(one.account.calls > 80 * LARGE);
        CHECK(range_is_answered(&range));
        disconnect(&one.conns[0]);
        settle();
        CHECK_EQ(one.account.held, 0);
        CHECK_EQ(one.account.calls, 0);
        buf_fini(&range.reply);
        end();
}

/* A name is stored once for all its waiters, and charged to one of them, as long as there is
 * one. */
TEST(a_name_is_charged_to_one_who_is_there)
{
        struct ask k[4] = {0};

        begin();
        grant(1, 4);
        make_large('x');
        campaign(1, large, 1, "v", &k[0]);
        settle();
        campaign(0, large, 2, "v", &k[1]);
        settle();
        campaign(1, large, 3, "v", &k[2]);
        settle();
        campaign(1, large, 4, "v", &k[3]);
        settle();
        CHECK(k[0].ended && !k[1].ended && !k[2].ended);
        CHECK(held(0) > LARGE && held(1) < LARGE / 2);
        rpc_call_cancel(k[1].call);
        settle();
        CHECK(held(0) < LARGE / 2 && held(1) > LARGE && held(1) < 3 * LARGE);
        end_lease(3);
        check_gone(&k[2]);
        CHECK(held(1) > LARGE && held(1) < 3 * LARGE);
        rpc_call_cancel(k[3].call);
        settle();
        CHECK(held(1) < 4 * KB);
        buf_fini(&k[0].reply);
        end();
}

/* By then its request has been freed; a second message on its call is not a second request. */
TEST(a_second_message_of_who_waits_is_nothing)
{
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        struct ask holder = {0}, waits = {0};

        begin();
        grant(1, 2);
        lock(0, "l", 1, &holder);
        settle();
        q.name = text("l");
        q.lease = 2;
        pb_append(&b, &q.base);
        CHECK_EQ(rpc_call_new(one.conns[0].client, "/v3lockpb.Lock/Lock", false, &handler,
                              &waits, &waits.call),
                 0);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(rpc_call_send(waits.call, b.data, buf_len(&b)), 0);
                settle();
        }
        rpc_call_end(waits.call);
        settle();
        CHECK(!waits.ended);
        remove_key("l/1");
        check_holds(&waits, "l/2");
        buf_fini(&holder.reply);
        end();
}
