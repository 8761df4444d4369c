#include "fake_core.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nomem.h"
#include "virtual_time.h"

struct fake fake;

static struct {
        int listener, fd;
        struct rpc_conn *conn;
        bool hang_up;
        struct rpc_call *later[16]; /* to be refused */
        size_t n_later;
        struct rpc_call *late; /* a put that was done at this revision, and is not answered */
        int64_t late_at;
} own;

static Pb__ResponseHeader header(void)
{
        Pb__ResponseHeader h = PB__RESPONSE_HEADER__INIT;

        h.cluster_id = fake.cluster;
        h.member_id = 1;
        h.revision = fake.revision;
        return h;
}

static void answer(struct rpc_call *call, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        CHECK_EQ(rpc_call_send(call, b.data, buf_len(&b)), 0);
        if (call != fake.watch && call != fake.cache)
                rpc_call_finish(call, RPC_OK, "");
}

static void say_who(struct rpc_call *call)
{
        Pb__ResponseHeader h = header();
        Pb__StatusResponse p = PB__STATUS_RESPONSE__INIT;

        fake.statuses++;
        p.header = &h;
        p.leader = fake.leader;
        p.clients = fake.extended ? 1 : 0;
        answer(call, &p.base);
}

static void let_in(struct rpc_call *call)
{
        Pb__ResponseHeader h = header();
        Pb__AuthenticateResponse p = PB__AUTHENTICATE_RESPONSE__INIT;

        fake.logins++;
        p.header = &h;
        p.token = (char *) (uintptr_t) "token";
        answer(call, &p.base);
}

static void range(struct rpc_call *call)
{
        Pb__ResponseHeader h = header();
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;

        if (fake.content)
                p = *fake.content;
        p.header = &h;
        answer(call, &p.base);
}

static void confirm_put(struct rpc_call *call, int64_t revision)
{
        Pb__ResponseHeader h = header();
        Pb__PutResponse p = PB__PUT_RESPONSE__INIT;

        h.revision = revision;
        p.header = &h;
        answer(call, &p.base);
}

static void put(struct rpc_call *call)
{
        confirm_put(call, ++fake.revision);
}

void fake_answer_late(void)
{
        CHECK(own.late);
        confirm_put(take_ptr(own.late), own.late_at);
}

static void txn(struct rpc_call *call, struct view m)
{
        Pb__ResponseHeader h = header();
        Pb__TxnResponse p = PB__TXN_RESPONSE__INIT;

        buf_clear(&fake.txn);
        buf_add(&fake.txn, m.p, m.len);
        p.succeeded = true;
        if (fake.outcome)
                p = *fake.outcome;
        p.header = &h;
        answer(call, &p.base);
}

static void watch(struct rpc_call *call, struct view m)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__WatchRequest *q;

        fake.watch = call;
        CHECK_EQ(pb_unpack(&pb__watch_request__descriptor, m, &q), 0);
        if (q->request_union_case == PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST) {
                fake.creates++;
                fake.asked_at = fake.revision;
                fake.start = q->create_request->start_revision;
                fake.id = p.watch_id = q->create_request->watch_id;
                /* What follows the membership takes its responses whole. */
                CHECK(q->create_request->fragment ||
                      memcmp(q->create_request->key.data, "/tenure/", 8) == 0);
                p.created = true;
                if (!fake.create_silently)
                        fake_tell(&p);
        } else if (q->request_union_case == PB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST) {
                fake.cancels++;
        }
        pb_free(q);
}

void fake_tell(Pb__WatchResponse *p)
{
        Pb__ResponseHeader h = header();

        CHECK(fake.watch);
        p->header = &h;
        answer(fake.watch, &p->base);
}

void fake_tell_cache(Pb__CacheResponse *p)
{
        Pb__ResponseHeader h = header();

        CHECK(fake.cache);
        p->header = &h;
        p->id = fake.cache_id;
        answer(fake.cache, &p->base);
}

static void cache(struct rpc_call *call, struct view m)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        Pb__CacheRequest *q;

        if (fake.term_ms == 0)
                return rpc_call_finish(call, RPC_UNIMPLEMENTED, "unknown service");
        fake.cache = call;
        CHECK_EQ(pb_unpack(&pb__cache_request__descriptor, m, &q), 0);
        fake.cache_id = q->id;
        fake.have = q->have;
        fake.cached += !q->release;
        fake.returned += q->release ? 1 : 0;
        if (!q->release && fake.term_ms > 0) {
                p.term_ms = fake.term_ms;
                p.unchanged = q->have;
                if (fake.content && !q->have) {
                        p.kvs = fake.content->kvs;
                        p.n_kvs = fake.content->n_kvs;
                }
                fake_tell_cache(&p);
        }
        pb_free(q);
}

static void time_to_live(struct rpc_call *call)
{
        Pb__LeaseTimeToLiveResponse p = PB__LEASE_TIME_TO_LIVE_RESPONSE__INIT;
        const char *owner = fake.owner ? fake.owner : "";
        ProtobufCBinaryData keys[] = {pb_bytes("a", 1), pb_bytes("bc", 2),
                                      pb_bytes(owner, strlen(owner))};
        Pb__ResponseHeader h = header();

        p.header = &h;
        p.id = 5;
        p.ttl = 9;
        p.keys = keys;
        p.n_keys = fake.owner ? 3 : 2;
        if (fake.lease_name)
                p.name = pb_bytes(fake.lease_name,
                                  strlen(fake.lease_name) + fake.lease_name_more);
        answer(call, &p.base);
}

static void on_message(struct rpc_call *call, struct view m)
{
        bool is_put = strcmp(call->path, "/etcdserverpb.KV/Put") == 0;
        bool is_range = strcmp(call->path, "/etcdserverpb.KV/Range") == 0;

        if (strcmp(call->path, "/etcdserverpb.Watch/Watch") == 0)
                return watch(call, m);
        if (strcmp(call->path, "/tenurepb.Cache/Cache") == 0)
                return cache(call, m);
        if (strcmp(call->path, "/etcdserverpb.Maintenance/Status") == 0)
                return say_who(call);
        if (strcmp(call->path, "/etcdserverpb.Auth/Authenticate") == 0)
                return let_in(call);
        if (strcmp(call->path, "/etcdserverpb.Lease/LeaseTimeToLive") == 0)
                return time_to_live(call);
        fake.puts += is_put;
        fake.ranges += is_range;
        fake.txns += !is_put && !is_range;
        if (fake.times > 0) {
                fake.times--;
                if (fake.does == FAKE_REFUSES && fake.one_by_one && own.n_later < 16)
                        own.later[own.n_later++] = call;
                else if (fake.does == FAKE_REFUSES)
                        rpc_call_finish(call, fake.code, fake.text);
                else if (fake.does == FAKE_IS_LATE && is_put) {
                        own.late = call;
                        own.late_at = ++fake.revision;
                }
                own.hang_up |= fake.does == FAKE_HANGS_UP;
                if (fake.does != FAKE_ANSWERS)
                        return;
        }
        if (is_put)
                put(call);
        else if (is_range)
                range(call);
        else
                txn(call, m);
}

static void on_close(struct rpc_call *call)
{
        if (call == fake.watch)
                fake.watch = NULL;
        if (call == fake.cache)
                fake.cache = NULL;
}

static void on_end(struct rpc_call *call)
{
        if (call == fake.cache)
                rpc_call_finish(call, RPC_OK, "");
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_end = on_end, .on_close = on_close};

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        call->handler = &handler;
}

void fake_hang_up(void)
{
        own.hang_up = false;
        own.n_later = 0;
        own.late = NULL;
        own.conn = rpc_conn_free(own.conn);
        if (own.fd >= 0)
                close(own.fd);
        own.fd = -1;
}

static void accept_one(void)
{
        static const struct rpc_limits limits = {
                .message_max = 1 << 20, .calls_max = 20000, .too_large = "too large"};
        int fd = accept4(own.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        int on = 1;

        if (fd < 0)
                return;
        fake_hang_up();
        CHECK_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
        own.fd = fd;
        fake.connections++;
        CHECK_EQ(rpc_conn_new_server(&own.conn, &limits, accept_call, NULL), 0);
}

static void turn(void)
{
        cleanup_(buf_fini) struct buf out = {0};
        static uint8_t bytes[65536];
        ssize_t n;

        accept_one();
        if (own.fd < 0)
                return;
        n = read(own.fd, bytes, sizeof(bytes));
        if (n == 0 || (n > 0 && rpc_conn_input(own.conn, bytes, (size_t) n) < 0))
                return fake_hang_up();
        if (own.hang_up)
                return fake_hang_up();
        if (own.n_later > 0)
                rpc_call_finish(own.later[--own.n_later], fake.code, fake.text);
        if (rpc_conn_output(own.conn, &out, 65536) < 0)
                return fake_hang_up();
        while (buf_len(&out) > 0) {
                n = write(own.fd, buf_head(&out), buf_len(&out));
                if (n < 0 && errno == EAGAIN)
                        continue; /* the other side has a buffer, and is not of this thread */
                if (n < 0)
                        return fake_hang_up();
                buf_consume(&out, (size_t) n);
        }
}

void fake_turn(void)
{
        nomem_pause(true);
        turn();
        nomem_pause(false);
}

void fake_begin(void)
{

        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof(a);

        virtual_time_begin();
        fake = (struct fake){.cluster = 7, .revision = 4, .extended = true, .leader = 1};
        own.fd = -1;
        own.conn = NULL;
        own.hang_up = false;
        own.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(own.listener >= 0);
        CHECK_EQ(bind(own.listener, (struct sockaddr *) &a, n), 0);
        CHECK_EQ(listen(own.listener, 10), 0);
        CHECK_EQ(getsockname(own.listener, (struct sockaddr *) &a, &n), 0);
        snprintf(fake.url, sizeof(fake.url), "http://127.0.0.1:%d", ntohs(a.sin_port));
}

void fake_end(void)
{
        fake_hang_up();
        close(own.listener);
        buf_fini(&fake.txn);
}

struct tenure *fake_tie(void)
{
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_set_endpoints(t, fake.url), 0);
        CHECK_EQ(tenure_set_user(t, fake.user, "secret"), 0);
        CHECK_EQ(tenure_start(t), 0);
        return t;
}

static void one_turn(struct tenure *t)
{
        struct pollfd p[] = {{.fd = tenure_get_fd(t), .events = POLLIN},
                             {.fd = own.fd >= 0 ? own.fd : own.listener, .events = POLLIN}};

        poll(p, 2, 2);
        CHECK_EQ(tenure_dispatch(t), 0);
        fake_turn();
}

void fake_turns(struct tenure *t, unsigned n)
{
        while (n-- > 0)
                one_turn(t);
}

void fake_until(struct tenure *t, bool (*done)(void *arg), void *arg)
{
        struct boot_time end = boot_add(boot_now(), 20 * NSEC_PER_SEC);

        while (!done(arg)) {
                CHECK(boot_before(boot_now(), end));
                one_turn(t);
        }
}

static bool has_result(void *arg)
{
        return tenure_call_result(arg) != -EINPROGRESS;
}

int fake_result(struct tenure *t, struct tenure_call *c)
{
        fake_until(t, has_result, c);
        return tenure_call_result(c);
}
