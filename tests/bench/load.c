/*
 * A load on the etcd v3 API, for tenure-core and for etcd alike: a number of connections, and a
 * number of requests outstanding on each.
 *
 *     load ENDPOINTS grant|put|range|local|keepalive CONNECTIONS OUTSTANDING TOTAL [BYTES
 * [KEYS]]
 *
 * BYTES is the size of the values, 256 by default, and KEYS the number of keys that take turns,
 * 10,000. Prints requests per second and the latencies' median and 99th percentile. Built on
 * our own rpc/ and loop/, so that the client costs both sides the same.
 */
#include <signal.h>
#include <stdio.h>

#include "base/conf.h"
#include "client/endpoint.h"
#include "wire/pb.h"

enum what { GRANT, PUT, RANGE, LOCAL, KEEPALIVE };

struct conn {
        struct endpoint *ep;
        struct rpc_call *stream; /* keepalive */
        struct boot_time sent[512];
        size_t first, n_sent;
        int64_t lease;
};

struct one {
        struct conn *c;
        struct boot_time sent;
};

static struct {
        struct loop *loop;
        enum what what;
        size_t n_conns, n_up, outstanding, total, begun, done, failed;
        struct conn *conns;
        nsec_t *latency;
        struct boot_time start;
        uint64_t next_key, n_keys;
        uint8_t *value;
        size_t value_len;
} B;

static void next(struct conn *c);

static void finish(void)
{
        loop_stop(B.loop);
}

static void count(struct boot_time sent, bool ok)
{
        B.latency[B.done++] = boot_diff(boot_now(), sent);
        B.failed += !ok;
        if (B.done == B.total)
                finish();
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct one *o = call->userdata;

        if (code != RPC_OK && B.failed == 0)
                fprintf(stderr, "load: %s\n", message);
        count(o->sent, code == RPC_OK);
}

static void on_close(struct rpc_call *call)
{
        struct one *o = call->userdata;
        struct conn *c = o->c;

        free(o);
        if (B.begun < B.total)
                next(c);
}

static const struct rpc_handler unary = {.on_status = on_status, .on_close = on_close};

static void unary_call(struct conn *c, const char *path, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct one *o = calloc(1, sizeof(*o));
        struct rpc_call *call;

        pb_append(&b, m);
        o->c = c;
        o->sent = boot_now();
        B.begun++;
        if (rpc_call_new(endpoint_rpc(c->ep), path, false, &unary, o, &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0)
                abort();
        rpc_call_end(call);
        endpoint_kick(c->ep);
}

static void stream_message(struct rpc_call *call, struct view m)
{
        struct conn *c = call->userdata;
        struct boot_time sent = c->sent[c->first++ % ARRAY_SIZE(c->sent)];

        (void) m;
        c->n_sent--;
        count(sent, true);
        if (B.begun < B.total)
                next(c);
}

static void stream_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler stream = {.on_message = stream_message,
                                          .on_close = stream_close};

static void next(struct conn *c)
{
        char key[32];

        switch (B.what) {
        case GRANT: {
                Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

                q.ttl = 600;
                unary_call(c, "/etcdserverpb.Lease/LeaseGrant", &q.base);
                break;
        }
        case PUT: {
                Pb__PutRequest q = PB__PUT_REQUEST__INIT;

                snprintf(key, sizeof(key), "bench/%06u", (unsigned) (B.next_key++ % B.n_keys));
                q.key = pb_bytes(key, strlen(key));
                q.value = pb_bytes(B.value, B.value_len);
                unary_call(c, "/etcdserverpb.KV/Put", &q.base);
                break;
        }
        case RANGE:
        case LOCAL: {
                Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

                q.key = pb_bytes("bench/000001", 12);
                q.serializable = B.what == LOCAL;
                unary_call(c, "/etcdserverpb.KV/Range", &q.base);
                break;
        }
        case KEEPALIVE: {
                Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
                cleanup_(buf_fini) struct buf b = {0};

                if (!c->stream &&
                    rpc_call_new(endpoint_rpc(c->ep), "/etcdserverpb.Lease/LeaseKeepAlive",
                                 false, &stream, c, &c->stream) < 0)
                        abort();
                q.id = c->lease;
                pb_append(&b, &q.base);
                c->sent[(c->first + c->n_sent++) % ARRAY_SIZE(c->sent)] = boot_now();
                B.begun++;
                if (rpc_call_send(c->stream, b.data, buf_len(&b)) < 0)
                        abort();
                endpoint_kick(c->ep);
                break;
        }
        }
}

static void begin(void)
{
        B.start = boot_now();
        for (size_t k = 0; k < B.outstanding; k++)
                for (size_t i = 0; i < B.n_conns && B.begun < B.total; i++)
                        next(&B.conns[i]);
}

/* Each connection's lease, before the clock starts. */
static void got_lease(struct rpc_call *call, struct view m)
{
        struct conn *c = call->userdata;
        Pb__LeaseGrantResponse *p = pb__lease_grant_response__unpack(NULL, m.len, m.p);

        c->lease = p ? p->id : 0;
        pb_free(p);
        if (++B.n_up == 2 * B.n_conns)
                begin();
}

static const struct rpc_handler lease_handler = {.on_message = got_lease,
                                                 .on_close = stream_close};

static void on_up(struct endpoint *e, void *userdata)
{
        struct conn *c = userdata;

        (void) e;
        if (B.what == KEEPALIVE) {
                Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
                cleanup_(buf_fini) struct buf b = {0};
                struct rpc_call *call;

                B.n_up++;
                q.ttl = 600;
                pb_append(&b, &q.base);
                if (rpc_call_new(endpoint_rpc(c->ep), "/etcdserverpb.Lease/LeaseGrant", false,
                                 &lease_handler, c, &call) < 0 ||
                    rpc_call_send(call, b.data, buf_len(&b)) < 0)
                        abort();
                rpc_call_end(call);
                endpoint_kick(c->ep);
        } else if (++B.n_up == B.n_conns) {
                begin();
        }
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        (void) userdata;
        if (B.done < B.total) {
                fprintf(stderr, "load: %s: %s\n", endpoint_name(e), why);
                exit(1);
        }
}

static const struct endpoint_ops ops = {.up = on_up, .down = on_down};

static int cmp(const void *a, const void *b)
{
        nsec_t x = *(const nsec_t *) a, y = *(const nsec_t *) b;

        return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
        static const char *const names[] = {"grant", "put", "range", "local", "keepalive"};
        struct resolver *rv;
        double s;

        if (argc < 6 || argc > 8) {
                fprintf(stderr,
                        "usage: load ENDPOINTS grant|put|range|local|keepalive CONNECTIONS "
                        "OUTSTANDING TOTAL [BYTES [KEYS]]\n");
                return 2;
        }
        signal(SIGPIPE, SIG_IGN);
        while (B.what < KEEPALIVE && strcmp(names[B.what], argv[2]) != 0)
                B.what++;
        B.n_conns = strtoul(argv[3], NULL, 10);
        B.outstanding = strtoul(argv[4], NULL, 10);
        B.total = strtoul(argv[5], NULL, 10);
        B.value_len = argc > 6 ? strtoul(argv[6], NULL, 10) : 256;
        B.n_keys = argc > 7 ? strtoul(argv[7], NULL, 10) : 10000;
        B.value = calloc(B.value_len + 1, 1);
        B.conns = calloc(B.n_conns, sizeof(*B.conns));
        B.latency = calloc(B.total, sizeof(*B.latency));
        if (!B.conns || !B.latency || !B.value || B.n_keys == 0 || loop_new(&B.loop) < 0 ||
            resolver_new(&rv, B.loop) < 0)
                abort();
        for (size_t i = 0; i < B.n_conns;) {
                const char *cursor = argv[1];
                char url[320];

                while (i < B.n_conns && list_next(&cursor, url, sizeof(url))) {
                        if (endpoint_new(&B.conns[i].ep, B.loop, rv, url, NULL, NULL, &ops,
                                         &B.conns[i]) < 0)
                                return 2;
                        endpoint_want(B.conns[i++].ep);
                }
        }
        loop_run(B.loop);
        s = (double) boot_diff(boot_now(), B.start) / 1e9;
        qsort(B.latency, B.done, sizeof(*B.latency), cmp);
        printf("%.0f %.3f %.3f %zu\n", (double) B.done / s,
               (double) B.latency[B.done / 2] / 1e6,
               (double) B.latency[B.done * 99 / 100] / 1e6, B.failed);
        return B.failed ? 1 : 0;
}
