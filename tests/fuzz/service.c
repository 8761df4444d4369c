/*
 * The services on a live state: a replica alone, with its log on a disk in memory, and clients
 * that call any method with any message, hold streams open, go away in the middle, do not read,
 * and let time pass. Connections are the real ones of lib/rpc, both sides of them.
 */
#include <stdio.h>

#include "../sim/worker.h"
#include "base/log.h"
#include "disk.h"
#include "edge.h"
#include "fuzz.h"
#include "invariants.h"
#include "methods.h"
#include "rpc/conn.h"

#define CONNS_MAX 4
#define CALLS_MAX 32
#define MSEC NSEC_PER_MSEC

enum op {
        OP_CALL,
        OP_WATCH,
        OP_WATCH_MORE,
        OP_KEEPALIVE,
        OP_KEEPALIVE_MORE,
        OP_OBSERVE,
        OP_TIME,
        OP_CLOSE, /* a connection */
        OP_CANCEL,
        OP_END,
        OP_TOKEN,
        OP_DEAF, /* a connection that reads no more, or again */
        OP_SNAPSHOT,
        OP_LATE, /* calls go on without time for an answer */
        OP_DISK, /* fails */
        OP_LAST_ = OP_DISK
};

struct conn {
        struct rpc_conn *client, *server;
        bool deaf;
};

struct world {
        struct boot_time now;
        struct disk *disk;
        struct core *core;
        struct api *api;
        struct worker *passwords;
        struct replica *replica;
        struct conn conns[CONNS_MAX];
        struct rpc_call *calls[CALLS_MAX];
        size_t n_calls;
        bool busy;  /* somebody has something to say */
        bool late;  /* do not drive until time passes */
        bool fatal; /* the disk failed, and so the replica ended */
        bool fails;
        char token[512]; /* the last that was given out */
};

static struct world *W;

static enum op op_of(uint8_t b)
{
        b %= 2 * OP_LAST_;
        return b <= OP_LAST_ ? (enum op) b : OP_CALL;
}

/* [op] [connection] [method] [flags] message, or less. */
static const ProtobufCMessageDescriptor *message(struct view step, size_t *ret_at)
{
        if (step.len < 4)
                return NULL;
        *ret_at = 4;
        switch (op_of(step.p[0])) {
        case OP_CALL:
                return fuzz_method(step.p[2] % fuzz_methods())->request;
        case OP_WATCH:
        case OP_WATCH_MORE:
                return &pb__watch_request__descriptor;
        case OP_KEEPALIVE:
        case OP_KEEPALIVE_MORE:
                return &pb__lease_keep_alive_request__descriptor;
        case OP_OBSERVE:
                return &pb__leader_request__descriptor;
        default:
                return NULL;
        }
}

/* ---- the replica ---- */

static void on_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) peer;
        (void) frame;
}

static void on_fatal(void *u, const char *why)
{
        (void) u;
        (void) why;
        HOLDS(W->fails);
        W->fatal = true;
}

static const struct core_owner owner = {
        .send = on_send, .fatal = on_fatal, .expired = check_expired};

static void kick(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        W->busy = true;
}

static const char *common_name(struct rpc_conn *c, void *arg)
{
        (void) arg;
        /* The last connection shows a certificate. */
        return c == W->conns[CONNS_MAX - 1].server ? "root" : NULL;
}

/* All come from one address. */
static struct api_turn *turn(struct rpc_conn *c, void *arg)
{
        static struct api_turn address, turns[CONNS_MAX];

        (void) arg;
        for (size_t i = 0; i < CONNS_MAX; i++) {
                turns[i].of = &address;
                if (c == W->conns[i].server)
                        return &turns[i];
        }
        return &turns[0];
}

static void start(void)
{
        static const struct replica_peer self = {.id = 1, .address = "http://1:1"};
        struct store_error err;

        if (core_new(&W->core,
                     &(struct core_config){.cluster_id = 7,
                                           .member_id = 1,
                                           .min_ttl = 1000 * MSEC,
                                           .timeout = 6000 * MSEC,
                                           .max_txn_ops = 128,
                                           .quota = 64 << 10,
                                           .compact_keep = 100,
                                           .leader_timeout = 500 * MSEC,
                                           .watch_progress = 2000 * MSEC,
                                           .cache_term = 3 * NSEC_PER_SEC,
                                           .seed = 3},
                     W->now) < 0 ||
            worker_new(&W->passwords, NULL, "passwords") < 0 ||
            api_new(&W->api, W->core, W->passwords, 300 * NSEC_PER_SEC) < 0)
                abort();
        api_set_conns(
                W->api,
                &(struct api_conns){.kick = kick, .common_name = common_name, .turn = turn},
                NULL);
        core_set_owner(W->core, &owner, NULL);
        if (replica_new(&W->replica,
                        &(struct replica_config){.id = 1,
                                                 .cluster_id = 7,
                                                 .peers = &self,
                                                 .n_peers = 1,
                                                 .election = 500 * MSEC,
                                                 .heartbeat = 50 * MSEC,
                                                 .seed = 5,
                                                 .snapshot_entries = 20,
                                                 .snapshot_slice = 200,
                                                 .log_bytes = 8192,
                                                 .segment_size = 16384,
                                                 .apply_slice = 64},
                        W->disk, &core_replica_ops, W->core, W->now, &err) < 0)
                abort();
        core_attach(W->core, W->replica);
        if (replica_start(W->replica) < 0)
                abort();
}

/* What waits is done, as at the end of a turn of the loop. */
static void drive(void)
{
        for (unsigned turns = 0; turns < 50 && !W->fatal; turns++) {
                W->busy = false;
                replica_run(W->replica, W->now);
                core_run(W->core, W->now);
                api_recall(W->api, W->now);
                core_flush(W->core, W->now);
                replica_flush(W->replica, W->now);
                api_run(W->api, W->now);
                while (!W->fatal && fuzz_disk_step(W->disk))
                        W->busy = true;
                workers_run();
                for (size_t i = 0; i < CONNS_MAX; i++) {
                        struct conn *c = &W->conns[i];
                        cleanup_(buf_fini) struct buf b = {0};

                        if (!c->client)
                                continue;
                        (void) !rpc_conn_output(c->client, &b, 1 << 16);
                        if (buf_len(&b) > 0)
                                HOLDS(rpc_conn_input(c->server, b.data, buf_len(&b)) == 0);
                        W->busy = W->busy || buf_len(&b) > 0;
                        buf_clear(&b);
                        if (c->deaf)
                                continue;
                        (void) !rpc_conn_output(c->server, &b, 1 << 16);
                        if (buf_len(&b) > 0)
                                HOLDS(rpc_conn_input(c->client, b.data, buf_len(&b)) == 0);
                        W->busy = W->busy || buf_len(&b) > 0;
                }
                if (!W->busy && !*core_half_applied(W->core) &&
                    boot_before(W->now, replica_next(W->replica)))
                        break;
        }
}

static void pass(nsec_t time)
{
        struct boot_time end = boot_add(W->now, time);

        for (unsigned turns = 0; turns < 30 && boot_before(W->now, end) && !W->fatal; turns++) {
                struct boot_time next =
                        boot_min(boot_min(replica_next(W->replica), core_next(W->core)),
                                 api_next(W->api));

                W->now = boot_min(end, boot_max(next, boot_add(W->now, MSEC)));
                drive();
        }
        W->now = boot_max(W->now, end);
        drive();
}

/* ---- the clients ---- */

static void got_message(struct rpc_call *call, struct view m)
{
        if (strcmp(call->path, "/etcdserverpb.Auth/Authenticate") == 0) {
                Pb__AuthenticateResponse *p =
                        pb__authenticate_response__unpack(NULL, m.len, m.p);

                HOLDS(p);
                snprintf(W->token, sizeof(W->token), "%s", p->token);
                pb_free(p);
        }
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *text)
{
        (void) call;
        HOLDS(code <= RPC_UNAUTHENTICATED);
        /* Our own mistake: the services know their texts. */
        HOLDS(code != RPC_OK || *text == '\0');
}

static void got_close(struct rpc_call *call)
{
        for (size_t i = 0; i < W->n_calls; i++)
                if (W->calls[i] == call) {
                        W->calls[i] = W->calls[--W->n_calls];
                        return;
                }
}

static const struct rpc_handler handler = {
        .on_message = got_message, .on_status = got_status, .on_close = got_close};

static struct conn *connection(uint8_t i)
{
        const struct rpc_limits limits = {
                .message_max = 65536,
                .calls_max = 100,
                .too_large = "etcdserver: request is too large",
                .busy = api_busy(W->api),
        };
        struct conn *c = &W->conns[i % CONNS_MAX];

        if (c->client)
                return c;
        if (rpc_conn_new_client(&c->client, "fuzz", false) < 0 ||
            rpc_conn_new_server(&c->server, &limits, api_accept, W->api) < 0)
                abort();
        return c;
}

static void disconnect(struct conn *c)
{
        c->server = rpc_conn_free(c->server);
        c->client = rpc_conn_free(c->client);
        c->deaf = false;
}

static void send(struct rpc_call *call, struct view m)
{
        if (rpc_call_send(call, m.len > 0 ? m.p : (const uint8_t *) "", m.len) < 0)
                abort();
}

static void begin(struct conn *c, const char *path, uint8_t flags, struct view m, bool end)
{
        struct rpc_call *call;

        if (W->n_calls == CALLS_MAX ||
            rpc_call_new(c->client, path, flags & 1, &handler, NULL, &call) < 0)
                return;
        W->calls[W->n_calls++] = call;
        if ((flags & 6) != 6)
                send(call, m);
        if (flags & 8)
                send(call, m);
        if (end != ((flags & 16) != 0))
                rpc_call_end(call);
}

/* The open stream of that kind, or NULL. */
static struct rpc_call *find(uint8_t which, const char *path)
{
        for (size_t i = 0; i < W->n_calls; i++) {
                struct rpc_call *call = W->calls[(i + which) % W->n_calls];

                if (!path || strcmp(call->path, path) == 0)
                        return call;
        }
        return NULL;
}

static void run_step(struct view step)
{
        static const char watch[] = "/etcdserverpb.Watch/Watch",
                          keepalive[] = "/etcdserverpb.Lease/LeaseKeepAlive",
                          observe[] = "/v3electionpb.Election/Observe";
        enum op op = op_of(take_u8(&step));
        uint8_t conn = take_u8(&step), which = take_u8(&step), flags = take_u8(&step);
        struct conn *c = connection(conn);
        struct rpc_call *call = NULL;

        switch (op) {
        case OP_CALL:
                begin(c, fuzz_method(which % fuzz_methods())->path, flags, step, true);
                break;
        case OP_WATCH:
                begin(c, watch, flags, step, false);
                break;
        case OP_KEEPALIVE:
                begin(c, keepalive, flags, step, false);
                break;
        case OP_OBSERVE:
                begin(c, observe, flags, step, true);
                break;
        case OP_WATCH_MORE:
        case OP_KEEPALIVE_MORE:
                call = find(which, op == OP_WATCH_MORE ? watch : keepalive);
                for (unsigned n = flags & 64 ? flags & 63 : 0; call && n > 0; n--)
                        send(call, step);
                if (call)
                        send(call, step);
                break;
        case OP_TIME:
                W->late = false;
                pass((nsec_t) (which + 1) * (flags + 1) * MSEC / 4);
                break;
        case OP_CLOSE:
                disconnect(c);
                break;
        case OP_CANCEL:
                call = find(which, NULL);
                if (call)
                        rpc_call_cancel(call);
                break;
        case OP_END:
                call = find(which, NULL);
                if (call)
                        rpc_call_end(call);
                break;
        case OP_TOKEN: {
                char own[128];

                snprintf(own, sizeof(own), "%.*s", (int) min_of(step.len, (size_t) 100),
                         (const char *) step.p);
                if (rpc_conn_set_token(c->client, which & 1 ? own : W->token) < 0)
                        abort();
                break;
        }
        case OP_DEAF:
                c->deaf = which & 1;
                break;
        case OP_SNAPSHOT:
                replica_want_snapshot(W->replica);
                break;
        case OP_LATE:
                W->late = which & 1;
                break;
        case OP_DISK:
                if (which == 77) {
                        W->fails = true;
                        fuzz_disk_fail(W->disk, flags & 1 ? -EIO : -ENOSPC);
                }
                break;
        }
        if (!W->late)
                drive();
}

static void run(struct view in)
{
        struct world w = {.now = {1000 * NSEC_PER_SEC}};
        struct view step;

        log_set_level(0);
        W = &w;
        w.disk = fuzz_disk_new();
        start();
        pass(1200 * MSEC);
        HOLDS(core_status(w.core).ready);
        while (!w.fatal && step_next(&in, &step))
                run_step(step);
        if (!w.fatal)
                pass(100 * MSEC);
        check_state(core_state(w.core));
        for (size_t i = 0; i < CONNS_MAX; i++)
                disconnect(&w.conns[i]);
        HOLDS(w.n_calls == 0);
        if (!w.fatal)
                drive();
        /* As the program ends. */
        w.passwords = worker_free(w.passwords);
        w.core = core_free(w.core);
        w.api = api_free(w.api);
        w.replica = replica_free(w.replica);
        w.disk = disk_free(w.disk);
}

const struct fuzzer fuzz_service = {
        .name = "service", .run = run, .steps = true, .message = message};
