/* Logins beside a client that guesses passwords without end, from any number of connections. */
#include "rig.h"

#define LOGIN "/etcdserverpb.Auth/Authenticate"
#define FLOODERS 70
#define GUESSES 20 /* of each: more than a connection may have */

static void ask(struct rig_conn *c, struct rig_call *call, const char *path,
                const ProtobufCMessage *m)
{
        rig_ask(c, call, path, m);
        for (unsigned i = 0; !call->over && i < 100; i++) {
                rig_turn();
                rig_hash();
        }
        CHECK(call->over);
        CHECK_STR(call->text, "");
        rig_forget(call);
}

static void enable(void)
{
        Pb__AuthUserAddRequest user = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthRoleAddRequest role = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthUserGrantRoleRequest may = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthEnableRequest on = PB__AUTH_ENABLE_REQUEST__INIT;
        char root[] = "root", password[] = "secret";
        struct rig_conn *c = rig_connect(7);
        struct rig_call call;

        user.name = role.name = may.user = may.role = root;
        user.password = password;
        ask(c, &call, "/etcdserverpb.Auth/UserAdd", &user.base);
        ask(c, &call, "/etcdserverpb.Auth/RoleAdd", &role.base);
        ask(c, &call, "/etcdserverpb.Auth/UserGrantRole", &may.base);
        ask(c, &call, "/etcdserverpb.Auth/AuthEnable", &on.base);
        rig_disconnect(c);
}

static void log_in(struct rig_conn *c, struct rig_call *call, const char *password)
{
        Pb__AuthenticateRequest q = PB__AUTHENTICATE_REQUEST__INIT;
        char root[] = "root", copy[32];

        snprintf(copy, sizeof(copy), "%s", password);
        q.name = root;
        q.password = copy;
        rig_ask(c, call, LOGIN, &q.base);
}

/* Hashes until it is answered; returns how many that were. */
static unsigned hashes_until(const struct rig_call *call, unsigned max)
{
        unsigned n = 0;

        for (unsigned i = 0; i < 5 && !call->over; i++)
                rig_turn(); /* it comes in, and its read is confirmed */
        for (; !call->over && n < max; n++) {
                rig_hash();
                rig_turn();
        }
        return n;
}

struct flood {
        struct rig_conn *conns[FLOODERS];
        struct rig_call calls[FLOODERS][GUESSES];
};

static struct flood flood;

static void flood_from(unsigned address, unsigned n_conns)
{
        for (unsigned i = 0; i < n_conns; i++) {
                flood.conns[i] = rig_connect(address);
                for (unsigned k = 0; k < GUESSES; k++)
                        log_in(flood.conns[i], &flood.calls[i][k], "guess");
        }
        for (unsigned i = 0; i < 10; i++)
                rig_turn();
}

/* However many connections an address has, another one's login waits for two hashes or so, and
 * is not refused. */
TEST(a_login_does_not_notice_who_guesses_from_another_address)
{
        struct rig_conn *honest;
        struct rig_call call;

        rig_begin();
        enable();
        flood_from(0, FLOODERS);
        honest = rig_connect(1);
        for (unsigned i = 0; i < 5; i++) {
                log_in(honest, &call, "secret");
                CHECK(hashes_until(&call, 100) <= 3);
                CHECK_STR(call.text, "");
                CHECK_EQ(call.code, RPC_OK);
                rig_forget(&call);
        }
        rig_end();
}

/* Nor does one from the same address, as far as its bound goes: each connection has its turn.
 */
TEST(a_login_is_not_refused_for_what_its_neighbours_guess)
{
        struct rig_conn *honest;
        struct rig_call call;

        rig_begin();
        enable();
        flood_from(0, FLOODERS);
        honest = rig_connect(0);
        log_in(honest, &call, "secret");
        CHECK(hashes_until(&call, 1000) <= FLOODERS + 2);
        CHECK_STR(call.text, "");
        rig_forget(&call);
        rig_end();
}

/* An address that goes, and comes back for each guess, is not always the next one because of
 * that. */
TEST(who_comes_again_and_again_waits_for_his_turn)
{
        struct rig_conn *honest, *guesser;
        struct rig_call calls[2], guesses[100];
        unsigned n = 0;

        rig_begin();
        enable();
        honest = rig_connect(1);
        log_in(honest, &calls[0], "secret");
        CHECK(hashes_until(&calls[0], 10) <= 1);
        guesser = rig_connect(0);
        log_in(guesser, &guesses[0], "guess");
        for (unsigned i = 0; i < 5; i++)
                rig_turn();
        log_in(honest, &calls[1], "secret");
        for (n = 1; !calls[1].over && n < 100; n++) {
                rig_disconnect(guesser);
                guesser = rig_connect(0);
                log_in(guesser, &guesses[n], "guess");
                for (unsigned i = 0; i < 5; i++)
                        rig_turn();
                rig_hash();
                rig_turn();
        }
        CHECK(n <= 5);
        CHECK_STR(calls[1].text, "");
        for (unsigned i = 0; i < 2; i++)
                rig_forget(&calls[i]);
        rig_end();
}

/* A connection of root, with its token, while authentication is off again. */
static struct rig_conn *come_too_early(void)
{
        Pb__AuthDisableRequest off = PB__AUTH_DISABLE_REQUEST__INIT;
        Pb__AuthenticateResponse *p;
        struct rig_call call;
        struct rig_conn *c;

        rig_begin();
        enable();
        c = rig_connect(1);
        log_in(c, &call, "secret");
        CHECK(hashes_until(&call, 100) <= 3);
        p = pb__authenticate_response__unpack(NULL, buf_len(&call.message), call.message.data);
        CHECK(p != NULL);
        CHECK_EQ(rpc_conn_set_token(c->client, p->token), 0);
        pb_free(p);
        rig_forget(&call);
        ask(c, &call, "/etcdserverpb.Auth/AuthDisable", &off.base);
        return c;
}

/* A replica that is behind learns that authentication is on only after a request has come. A
 * token is not refused for that. */
TEST(a_token_may_come_before_its_replica_needs_one)
{
        Pb__AuthEnableRequest on = PB__AUTH_ENABLE_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        struct rig_call call, write, read;
        struct rig_conn *c = come_too_early();

        put.key = range.key = pb_bytes("k", 1);
        rig_ask(c, &call, "/etcdserverpb.Auth/AuthEnable", &on.base);
        rig_ask(c, &write, "/etcdserverpb.KV/Put", &put.base);
        rig_ask(c, &read, "/etcdserverpb.KV/Range", &range.base);
        rig_wait(&call, 100);
        rig_wait(&write, 100);
        rig_wait(&read, 100);
        CHECK_EQ(call.code, RPC_OK);
        CHECK_EQ(write.code, RPC_UNAVAILABLE);
        CHECK_STR(read.text, "");
        CHECK_EQ(read.code, RPC_OK);
        rig_forget(&call);
        rig_forget(&write);
        rig_forget(&read);
        rig_end();
}

/* The message is that of another method, and would not parse. */
TEST(a_request_is_not_unpacked_for_who_may_not_make_it)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        struct rig_call call;

        rig_begin();
        enable();
        grant.ttl = 60;
        rig_ask(rig_connect(1), &call, "/etcdserverpb.KV/Put", &grant.base);
        rig_wait(&call, 100);
        CHECK_STR(call.text, "etcdserver: user name is empty");
        rig_forget(&call);
        rig_end();
}

static void turn_until_message(const struct rig_call *call, unsigned n)
{
        for (unsigned i = 0; call->messages < n && !call->over && i < 100; i++)
                rig_turn();
        CHECK_STR(call->text, "");
        CHECK_EQ(call->messages, n);
}

/* Nor do a watch and renewals end that began then. */
TEST(a_stream_with_a_token_may_begin_before_its_replica_needs_one)
{
        Pb__AuthEnableRequest on = PB__AUTH_ENABLE_REQUEST__INIT;
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseKeepAliveRequest renew = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest watch = PB__WATCH_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct rig_call call, watched, renewed;
        struct rig_conn *c = come_too_early();
        cleanup_(buf_fini) struct buf again = {0};
        Pb__WatchResponse *p;

        put.key = create.key = pb_bytes("k", 1);
        watch.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        watch.create_request = &create;
        rig_open(c, &watched, "/etcdserverpb.Watch/Watch", &watch.base);
        turn_until_message(&watched, 1);
        grant.id = renew.id = 7;
        grant.ttl = 60;
        ask(c, &call, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
        rig_open(c, &renewed, "/etcdserverpb.Lease/LeaseKeepAlive", &renew.base);
        turn_until_message(&renewed, 1);
        ask(c, &call, "/etcdserverpb.Auth/AuthEnable", &on.base);
        ask(c, &call, "/etcdserverpb.KV/Put", &put.base);
        turn_until_message(&watched, 2);
        p = pb__watch_response__unpack(NULL, buf_len(&watched.message), watched.message.data);
        CHECK(p && !p->canceled);
        CHECK_EQ(p->n_events, 1);
        pb_free(p);
        pb_append(&again, &renew.base);
        CHECK_EQ(rpc_call_send(renewed.call, again.data, buf_len(&again)), 0);
        turn_until_message(&renewed, 2);
        rig_disconnect(c);
        rig_forget(&watched);
        rig_forget(&renewed);
        rig_end();
}
