/* What clients make a replica keep - watches, observers, requests that wait - counts for their
 * address, and an address that takes all it can leaves room for the others. The real services
 * on a single replica, without sockets. */
#include "etcd/api.h"
#include "one.h"
#include "test.h"

#define KB ((size_t) 1024)
#define MB (KB * KB)
#define ADDRESSES 4
#define RESETS 50
#define RESETS_MAX \
        500 /* of a connection: nghttp2 ends one that resets more than 1,000 at once */
#define WATCH "/etcdserverpb.Watch/Watch"
#define OBSERVE "/v3electionpb.Election/Observe"

struct client {
        struct rpc_conn *conn, *server;
        struct party *party;
        bool deaf; /* it reads nothing */
        unsigned created, refused, answers, statuses;
        enum rpc_code code; /* of the last status */
};

static struct {
        struct boot_time now;
        struct disk *disk;
        struct core *core;
        struct api *api;
        struct replica *replica;
        struct rpc_account all, address[ADDRESSES];
        struct client clients[ADDRESSES];
        bool busy;
        size_t most_held;
        struct rpc_call *resets[RESETS]; /* put_and_reset() is about to; NULL: it has ended */
} w;

static void kick(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        w.busy = true;
}

static void got_message(struct rpc_call *call, struct view m)
{
        struct client *c = call->userdata;
        Pb__WatchResponse *p;

        c->answers++;
        if (strcmp(call->path, WATCH) != 0)
                return;
        CHECK_EQ(pb_unpack(&pb__watch_response__descriptor, m, &p), 0);
        c->created += p->created && !p->canceled;
        if (p->created && p->canceled) {
                c->refused++;
                CHECK(strstr(p->cancel_reason, "too many requests"));
        }
        pb_free(p);
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *text)
{
        struct client *c = call->userdata;

        (void) text;
        c->statuses++;
        c->code = code;
}

static void got_close(struct rpc_call *call)
{
        for (unsigned i = 0; i < RESETS; i++)
                if (w.resets[i] == call)
                        w.resets[i] = NULL;
}

static const struct rpc_handler handler = {
        .on_message = got_message, .on_status = got_status, .on_close = got_close};

/* ---- the world ---- */

static struct client *client(unsigned i)
{
        struct client *c = &w.clients[i];
        struct party *host = shares_address(api_shares(w.api), (char[]){(char) ('a' + i), 0}),
                     *party = shares_connection(host);
        const struct rpc_limits limits = {.message_max = 1536 * KB,
                                          .calls_max = 8192,
                                          .too_large = "too large",
                                          .too_many = "too many",
                                          .account = &w.address[i],
                                          .party = party};

        party_unref(host);
        memset(c, 0, sizeof(*c));
        c->party = party;
        CHECK_EQ(rpc_conn_new_client(&c->conn, "test", false), 0);
        CHECK_EQ(rpc_conn_new_server(&c->server, &limits, api_accept, w.api), 0);
        return c;
}

static void leave(struct client *c)
{
        c->server = rpc_conn_free(c->server);
        c->conn = rpc_conn_free(c->conn);
        c->party = party_unref(c->party);
}

static void begin(size_t memory_max)
{
        static const struct api_conns conns = {.kick = kick};

        memset(&w, 0, sizeof(w));
        w.now = (struct boot_time){1000 * NSEC_PER_SEC};
        w.disk = sim_disk_new();
        w.all.max = w.all.kept_max = memory_max;
        for (unsigned i = 0; i < ADDRESSES; i++)
                w.address[i] = (struct rpc_account){
                        .parent = &w.all, .max = memory_max / 2, .kept_max = memory_max / 2};
        one_new(&w.core, &w.replica, w.disk, 1,
                &(struct core_config){.min_ttl = NSEC_PER_SEC,
                                      .timeout = 6 * NSEC_PER_SEC,
                                      .max_txn_ops = 128,
                                      .leader_timeout = NSEC_PER_SEC,
                                      .watch_progress = 600 * NSEC_PER_SEC},
                w.now);
        CHECK_EQ(api_new(&w.api, w.core, NULL, 300 * NSEC_PER_SEC), 0);
        api_set_conns(w.api, &conns, NULL);
}

static void end(void)
{
        for (unsigned i = 0; i < ADDRESSES; i++) {
                leave(&w.clients[i]);
                CHECK_EQ(w.address[i].held, 0);
                CHECK_EQ(w.address[i].kept, 0);
                CHECK_EQ(w.address[i].calls, 0);
        }
        CHECK_EQ(w.all.held, 0);
        CHECK_EQ(w.all.kept, 0);
        api_free(w.api);
        core_free(w.core);
        disk_free(w.disk);
        replica_free(w.replica);
}

/* Delivers what is under way between a client and the services. */
static bool move(struct rpc_conn *from, struct rpc_conn *to)
{
        cleanup_(buf_fini) struct buf b = {0};

        CHECK_EQ(rpc_conn_output(from, &b, 64 * KB), 0);
        if (buf_len(&b) > 0)
                CHECK_EQ(rpc_conn_input(to, buf_head(&b), buf_len(&b)), 0);
        w.most_held = max_of(w.most_held, w.all.held);
        return buf_len(&b) > 0 || rpc_conn_can_go_on(from);
}

static void pump(void)
{
        bool more = true;

        while (more) {
                more = false;
                for (unsigned i = 0; i < ADDRESSES; i++)
                        if (w.clients[i].conn) {
                                more |= move(w.clients[i].conn, w.clients[i].server);
                                if (!w.clients[i].deaf)
                                        more |= move(w.clients[i].server, w.clients[i].conn);
                        }
        }
}

/* The replica does what there is to do, for @time. */
static void pass(nsec_t time)
{
        struct boot_time until = boot_add(w.now, time);

        for (;;) {
                do {
                        w.busy = false;
                        replica_run(w.replica, w.now);
                        core_run(w.core, w.now);
                        core_flush(w.core, w.now);
                        replica_flush(w.replica, w.now);
                        api_run(w.api, w.now);
                        for (; sim_disk_busy(w.disk); w.busy = true)
                                sim_disk_finish(w.disk);
                        pump();
                } while (w.busy);
                if (!boot_before(w.now, until))
                        return;
                w.now = boot_add(w.now, 5 * MSEC);
        }
}

/* ---- what clients ask for ---- */

static struct rpc_call *call(struct client *c, const char *path)
{
        struct rpc_call *k;

        CHECK_EQ(rpc_call_new(c->conn, path, false, &handler, c, &k), 0);
        return k;
}

static void send(struct rpc_call *k, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        CHECK_EQ(buf_error(&b), 0);
        CHECK_EQ(rpc_call_send(k, buf_head(&b), buf_len(&b)), 0);
}

/* A name of its own, of @len bytes or more. */
static ProtobufCBinaryData name_of(struct buf *b, unsigned i, size_t len)
{
        buf_clear(b);
        buf_printf(b, "%08u", i);
        while (buf_len(b) < len)
                buf_add(b, "0123456789abcdefghijklmnopqrstuv", min_of(len - buf_len(b), 32));
        CHECK_EQ(buf_error(b), 0);
        return pb_bytes(buf_head(b), buf_len(b));
}

static void watch(struct rpc_call *k, unsigned i, size_t len)
{
        cleanup_(buf_fini) struct buf b = {0};
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        create.key = name_of(&b, i, len);
        send(k, &q.base);
}

static void cancel(struct rpc_call *k, int64_t id)
{
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCancelRequest c = PB__WATCH_CANCEL_REQUEST__INIT;

        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
        q.cancel_request = &c;
        c.watch_id = id;
        send(k, &q.base);
}

static void observe(struct client *c, unsigned i, size_t len)
{
        cleanup_(buf_fini) struct buf b = {0};
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;
        struct rpc_call *k = call(c, OBSERVE);

        q.name = name_of(&b, i, len);
        send(k, &q.base);
        rpc_call_end(k);
}

static struct rpc_call *begin_put(struct client *c, const char *key, size_t value_len)
{
        cleanup_(freep) uint8_t *value = calloc(1, value_len + 1);
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct rpc_call *k = call(c, "/etcdserverpb.KV/Put");

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, value_len);
        send(k, &q.base);
        rpc_call_end(k);
        return k;
}

static void put(struct client *c, const char *key, size_t value_len)
{
        begin_put(c, key, value_len);
        pass(20 * MSEC);
}

/* Puts from address @a, @at_once at a time, whose calls are reset as soon as they have
 * arrived. */
static void put_and_reset(unsigned a, unsigned n, unsigned at_once, size_t value_len)
{
        struct client *c = client(a);

        for (unsigned done = 0; done < n; done += at_once) {
                if (done % RESETS_MAX == 0) {
                        leave(c);
                        c = client(a);
                }
                for (unsigned i = 0; i < at_once; i++)
                        w.resets[i] = begin_put(c, "k", value_len);
                pump();
                for (unsigned i = 0; i < at_once; i++)
                        if (w.resets[i])
                                rpc_call_cancel(w.resets[i]);
                pump();
        }
        leave(c);
}

/* Runs until the replica leads, and knows the current revision. */
static void settle(void)
{
        struct client *c = client(ADDRESSES - 1);

        watch(call(c, WATCH), 0, 8);
        pass(NSEC_PER_SEC);
        CHECK_EQ(c->created, 1);
        leave(c);
}

static unsigned watch_until_refused(struct client *c, struct rpc_call *k, size_t len)
{
        unsigned before = c->created, n = 0;

        for (c->refused = 0; c->refused == 0 && n < 100000;) {
                for (unsigned i = 0; i < 100; i++)
                        watch(k, n++, len);
                pump();
        }
        CHECK(c->refused > 0);
        return c->created - before;
}

/* ---- tests ---- */

/* All watches together had one limit, charged to nobody: the first clients could use all of
 * it. */
TEST(watches_of_one_address_leave_room_for_others)
{
        struct client *greedy, *honest, *late;
        struct rpc_call *k;
        unsigned n;

        begin(2 * MB);
        settle();
        greedy = client(0);
        k = call(greedy, WATCH);
        n = watch_until_refused(greedy, k, 900);
        CHECK(n > 500 && n < 1024); /* their keys alone are 900 bytes each */
        CHECK(w.address[0].kept <= 1 * MB);
        CHECK_EQ(watch_until_refused(greedy, call(greedy, WATCH), 900), 0);

        /* Others get half of what is left, each of them. */
        honest = client(1);
        CHECK(watch_until_refused(honest, call(honest, WATCH), 900) > 250);
        late = client(2);
        CHECK(watch_until_refused(late, call(late, WATCH), 900) > 120);
        CHECK(w.all.kept <= 2 * MB);

        /* Canceled and ended watches make room for others. */
        for (int64_t id = 0; id < 100; id++)
                cancel(k, id);
        pump();
        n = watch_until_refused(late, call(late, WATCH), 900);
        CHECK(n >= 30 && n < 100);
        leave(greedy);
        CHECK_EQ(w.address[0].kept, 0);
        CHECK(watch_until_refused(late, call(late, WATCH), 900) > 200);
        end();
}

/* 250 streams with names of 1.5 MB were 731 MiB that were charged to nobody. */
TEST(observers_count_for_their_address)
{
        struct client *greedy, *honest;
        unsigned n;

        begin(64 * MB);
        settle();
        greedy = client(0);
        for (n = 0; greedy->statuses == 0 && n < 100; n++) {
                observe(greedy, n, 1400 * KB);
                pump();
                if (greedy->statuses == 0)
                        CHECK(w.address[0].kept >= (n + 1) * 2 * 1400 * KB);
        }
        CHECK_EQ(n, 12);
        CHECK_EQ(greedy->code, RPC_RESOURCE_EXHAUSTED);
        CHECK(w.all.kept <= 32 * MB);
        CHECK(w.all.held < 64 * KB);

        honest = client(1);
        put(honest, "00000007/a", 10);
        CHECK_EQ(honest->code, RPC_OK);
        n = honest->answers;
        observe(honest, 7, 8);
        pass(20 * MSEC);
        CHECK_EQ(honest->answers, n + 1);
        CHECK_EQ(honest->statuses, 1);
        end();
}

/* As many as a client honestly has; of that and of the default bounds a tenth. */
TEST(an_address_may_have_200000_watches)
{
        struct client *c;
        struct rpc_call *k;

        begin(256 * MB / 10);
        settle();
        c = client(0);
        k = call(c, WATCH);
        for (unsigned i = 0; i < 20000; i++) {
                watch(k, i, 40);
                if (i % 500 == 0)
                        pump();
        }
        pump();
        CHECK_EQ(c->created, 20000);
        CHECK(w.most_held < 2 * MB); /* what is kept delays nobody */
        end();
}

/* 200,000 watches that ended with their connection held the loop for 60 to 250 ms. */
TEST(many_watches_go_in_slices)
{
        struct client *gone, *other;
        struct rpc_call *k;

        begin(64 * MB);
        settle();
        gone = client(0);
        other = client(1);
        k = call(gone, WATCH);
        for (unsigned i = 0; i < 20000; i++) {
                watch(k, i, 40);
                if (i % 500 == 0)
                        pump();
        }
        pump();
        CHECK_EQ(gone->created, 20000);
        watch(call(other, WATCH), 7, 40);
        pump();
        leave(gone);
        CHECK_EQ(w.address[0].kept, 0);
        for (unsigned i = 0; i < 8; i++) { /* 1,000 at once, 2,000 in each turn */
                CHECK(!boot_before(w.now, api_next(w.api)));
                api_run(w.api, w.now);
        }
        put(other, "00000007", 10); /* which one of those that are left wanted, too */
        pass(20 * MSEC);
        CHECK_EQ(other->code, RPC_OK);
        CHECK_EQ(other->answers, 2); /* the put's, and the event */
        CHECK(boot_before(w.now, api_next(w.api)));
        leave(other);
        /* The rest of a stream is freed with the hub. */
        gone = client(2);
        k = call(gone, WATCH);
        for (unsigned i = 0; i < 5000; i++) {
                watch(k, i, 40);
                if (i % 500 == 0)
                        pump();
        }
        pump();
        leave(gone);
        end();
}

/* Before a replica knew the current revision, everything that a stream sent was held for it. */
TEST(watches_from_now_on_wait_in_their_window)
{
        struct client *c;
        struct rpc_call *k;

        begin(64 * MB);
        c = client(0);
        k = call(c, WATCH);
        for (unsigned i = 0; i < 4000; i++)
                watch(k, i, 1000);
        pump();
        CHECK_EQ(c->created, 0);
        CHECK(w.most_held < 160 * KB); /* 4 MB are sent */
        pass(NSEC_PER_SEC);
        CHECK_EQ(c->created, 4000);
        CHECK_EQ(c->refused + c->statuses, 0);
        end();
}

/* The headers of a call are kept as long as the call. */
TEST(headers_count)
{
        cleanup_(buf_fini) struct buf token = {0};
        struct client *c;

        begin(64 * MB);
        settle();
        c = client(0);
        name_of(&token, 0, 3000);
        buf_add_u8(&token, 0);
        CHECK_EQ(rpc_conn_set_token(c->conn, (const char *) buf_head(&token)), 0);
        for (unsigned i = 0; i < 4000; i++) {
                watch(call(c, WATCH), i, 8);
                if (i % 100 == 0)
                        pump();
        }
        pump();
        CHECK_EQ(c->created, 4000);
        CHECK(w.all.calls > 4000 * 3000);
        put(c, "a large request goes on", 10 * KB);
        CHECK_EQ(c->statuses, 1);
        CHECK_EQ(c->code, RPC_OK);
        end();
}

/* A request is kept until it is answered, which may take until there is a leader. */
TEST(requests_that_wait_for_a_read_count)
{
        cleanup_(buf_fini) struct buf key = {0};
        struct client *c;

        begin(64 * MB);
        c = client(0);
        for (unsigned i = 0; i < 400; i++) {
                Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
                struct rpc_call *k = call(c, "/etcdserverpb.KV/Range");

                q.key = name_of(&key, i, 100 * KB);
                send(k, &q.base);
                rpc_call_end(k);
                pump();
        }
        CHECK(w.all.held > 8 * MB);
        CHECK(w.most_held < 32 * MB); /* 40 MB are sent: what waits in its windows, too */
        pass(NSEC_PER_SEC);
        CHECK_EQ(c->statuses, 400);
        CHECK_EQ(c->code, RPC_OK);
        end();
}

/* Each stream of one that does not read had one more message, however large: 500 of them. */
static void nobody_reads(bool watches)
{
        struct client *c, *writer;

        begin(64 * MB);
        settle();
        c = client(0);
        for (unsigned i = 0; i < 500; i++)
                if (watches)
                        watch(call(c, WATCH), 7, 8);
                else
                        observe(c, 7, 8);
        pump();
        c->deaf = true;
        writer = client(1);
        put(writer, watches ? "00000007" : "00000007/a", MB);
        pass(NSEC_PER_SEC);
        CHECK_EQ(writer->code, RPC_OK);
        CHECK(w.address[0].held > 4 * MB);
        CHECK(w.most_held < 16 * MB);

        /* A client that reads gets everything. */
        c->deaf = false;
        c->answers = 0;
        pass(5 * NSEC_PER_SEC);
        CHECK_EQ(c->answers, 500);
        end();
}

TEST_BULK(large_events_wait_for_a_connection_that_reads)
{
        nobody_reads(true);
}

TEST_BULK(large_leaders_wait_for_a_connection_that_reads)
{
        nobody_reads(false);
}

static size_t has(unsigned address, enum pot pot)
{
        struct party *h =
                shares_address(api_shares(w.api), (char[]){(char) ('a' + address), 0});
        size_t n = h->has[pot];

        party_unref(h);
        return n;
}

/* Writes whose calls were reset kept waiting, charged to nobody: 100,000 of them, while there
 * was no leader, and all other clients got "too many requests". */
TEST(writes_of_one_address_leave_room_for_others)
{
        struct client *greedy, *honest;

        begin(64 * MB);
        put_and_reset(0, 100000, RESETS, 10);
        honest = client(1);
        begin_put(honest, "mine", 10);
        pump();
        CHECK_EQ(honest->statuses, 0); /* it waits for a leader */
        greedy = client(0);            /* what it left behind is still charged to its address */
        begin_put(greedy, "one more", 10);
        pump();
        CHECK_EQ(greedy->statuses, 1);
        CHECK_EQ(greedy->code, RPC_RESOURCE_EXHAUSTED);
        pass(NSEC_PER_SEC);
        CHECK_EQ(honest->statuses, 1);
        CHECK_EQ(honest->code, RPC_OK);
        begin_put(greedy, "now", 10);
        pass(NSEC_PER_SEC);
        CHECK_EQ(greedy->statuses, 2);
        CHECK_EQ(greedy->code, RPC_OK);
        CHECK_EQ(has(0, POT_WRITES), 0);
        CHECK_EQ(has(0, POT_WRITE_BYTES), 0);
        end();
}

/* Writes of one address are bounded by their size, too: here are large ones, each reset. */
TEST(bytes_of_writes_of_one_address_leave_room_for_others)
{
        struct client *honest;

        begin(64 * MB);
        put_and_reset(0, 200, 2, 400 * KB);
        CHECK(has(0, POT_WRITE_BYTES) <= 32 * MB);
        honest = client(1);
        begin_put(honest, "mine", 100 * KB);
        pump();
        CHECK_EQ(honest->statuses, 0);
        pass(NSEC_PER_SEC);
        CHECK_EQ(honest->code, RPC_OK);
        CHECK_EQ(has(0, POT_WRITE_BYTES), 0);
        end();
}
