/* clang-format off */
/*
 * The cost and the exactness of leases on the etcd v3 API, for tenure-core and for etcd alike.
 *
 *     leases ENDPOINTS hold LEASES CONNECTIONS TTL-S SECONDS   keeps them alive at TTL/2; prints
 *                                                              "held" when all are, and at the end
 *                                                              how many were lost
 *     leases ENDPOINTS store LEASES CONNECTIONS TTL-S          grants, with a key on each; prints
 *                                                              "stored"
 *     leases ENDPOINTS expire LEASES TTL-S                     all renewed in one burst, then
 *                                                              abandoned: first to last key gone,
 *                                                              in ms
 *     leases ENDPOINTS late LEASES TTL-S                       each renewed once, at its own time:
 *                                                              how late its key goes, in ms: p50 p99
 *     leases ENDPOINTS once TTL-S                              one lease, never renewed: ms until its
 *                                                              key is gone
 *     leases ENDPOINTS connect CONNECTIONS SECONDS             a lease, a keep-alive and a watch
 *                                                              stream on each; prints "held"
 *     leases ENDPOINTS fanout WATCHERS CONNECTIONS EVENTS      from a put to each watcher: ms, p50 p99
 */
/* clang-format on */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/rnd.h"
#include "client/endpoint.h"
#include "wire/pb.h"

struct conn {
        struct endpoint *ep;
        bool up;
        struct rpc_call *keepalive, *watch;
};

struct item {
        size_t i;
        int64_t lease;
        struct conn *c;
        struct boot_time renewed, gone;
        struct boot_time due; /* when to renew next */
        bool kept;
};

static struct {
        struct loop *loop;
        struct resolver *rv;
        const char *mode;
        char prefix[32]; /* of our keys; another one in each run */
        struct conn *conns;
        size_t n_conns, n_up;
        struct item *items;
        size_t n_items, n_granted, n_stored, n_gone, n_answered, n_lost, next_grant;
        int64_t ttl; /* seconds */
        nsec_t run_for;
        bool running;
        struct boot_time until;
        struct loop_timer timer;
        struct rnd rnd;
        bool fanout;
        size_t n_watchers, n_created, n_events, event, seen;
        struct boot_time sent;
        nsec_t *latency;
        size_t n_latency;
} B;

static bool is(const char *mode)
{
        return strcmp(B.mode, mode) == 0;
}

static void say(const char *what)
{
        puts(what);
        fflush(stdout);
}

static int cmp(const void *a, const void *b)
{
        nsec_t x = *(const nsec_t *) a, y = *(const nsec_t *) b;

        return x < y ? -1 : x > y;
}

static double ms(nsec_t t)
{
        return (double) t / 1e6;
}

static void send_on(struct conn *c, struct rpc_call *call, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        if (rpc_call_send(call, b.data, buf_len(&b)) < 0)
                abort();
        endpoint_kick(c->ep);
}

static struct rpc_call *open_call(struct conn *c, const char *path, const struct rpc_handler *h,
                                  void *userdata)
{
        struct rpc_call *call;

        if (rpc_call_new(endpoint_rpc(c->ep), path, false, h, userdata, &call) < 0)
                abort();
        return call;
}

static void arm(struct boot_time t)
{
        loop_timer_arm(&B.timer, t);
}

/* ---- keep-alives ---- */

static void on_keepalive(struct rpc_call *call, struct view m)
{
        Pb__LeaseKeepAliveResponse *p = pb__lease_keep_alive_response__unpack(NULL, m.len, m.p);

        (void) call;
        B.n_answered++;
        B.n_lost += p && p->ttl <= 0;
        pb_free(p);
        if (is("expire") && B.n_answered == B.n_items)
                say("renewed");
}

static void no_close(struct rpc_call *call)
{
        (void) call;
}

/* The core may end the stream: the next renewal begins another one. */
static void keepalive_closed(struct rpc_call *call)
{
        struct conn *c = call->userdata;

        c->keepalive = NULL;
}

static const struct rpc_handler keepalive_handler = {.on_message = on_keepalive,
                                                     .on_close = keepalive_closed};

static void renew(struct item *it)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        struct conn *c = it->c;

        if (!c->keepalive)
                c->keepalive = open_call(c, "/etcdserverpb.Lease/LeaseKeepAlive",
                                         &keepalive_handler, c);
        q.id = it->lease;
        it->renewed = boot_now();
        send_on(c, c->keepalive, &q.base);
}

/* ---- watches ---- */

static void seen_event(const Pb__Event *e)
{
        char digits[7] = "";
        size_t i;

        if (e->type != PB__EVENT__EVENT_TYPE__DELETE || e->kv->key.len < 6)
                return;
        memcpy(digits, e->kv->key.data + e->kv->key.len - 6, 6);
        i = strtoul(digits, NULL, 10);
        if (i >= B.n_items || B.items[i].gone.ns != 0)
                return;
        B.items[i].gone = boot_now();
        if (++B.n_gone == B.n_items)
                loop_stop(B.loop);
}

static void next_event(void);

/* A thousand messages for one event: this client must not be what takes the time, so it looks
 * for the fields `created` and `events` of WatchResponse and unpacks nothing. */
static void on_fanout(struct view m)
{
        struct view skipped;
        uint64_t tag, v;

        while (m.len > 0) {
                if (view_varint(&m, &tag) < 0 || view_varint(&m, &v) < 0)
                        abort();
                if (tag == (3 << 3 | 0))
                        B.n_created += v;
                if (tag == (11 << 3 | 2))
                        B.latency[B.n_latency++] = boot_diff(boot_now(), B.sent);
                if ((tag & 7) == 2 && view_take(&m, v, &skipped) < 0)
                        abort();
        }
        if (B.n_created == B.n_watchers && B.n_latency == B.event * B.n_watchers)
                next_event();
}

static void on_watch(struct rpc_call *call, struct view m)
{
        Pb__WatchResponse *p;

        (void) call;
        if (B.fanout)
                return on_fanout(m);
        p = pb__watch_response__unpack(NULL, m.len, m.p);
        for (size_t i = 0; p && i < p->n_events; i++)
                seen_event(p->events[i]);
        pb_free(p);
}

static void watch_closed(struct rpc_call *call)
{
        struct conn *c = call->userdata;

        c->watch = NULL;
}

static const struct rpc_handler watch_handler = {.on_message = on_watch,
                                                 .on_close = watch_closed};

static void watch(struct conn *c, const char *key, bool prefix)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        char end[64];

        if (!c->watch)
                c->watch = open_call(c, "/etcdserverpb.Watch/Watch", &watch_handler, c);
        snprintf(end, sizeof(end), "%s", key);
        end[strlen(end) - 1]++;
        create.key = pb_bytes(key, strlen(key));
        if (prefix)
                create.range_end = pb_bytes(end, strlen(end));
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        send_on(c, c->watch, &q.base);
}

/* ---- setting up: leases, and a key on each ---- */

static void ready(void);
static void grant_next(struct conn *c);

static void on_put(struct rpc_call *call, struct view m)
{
        (void) call;
        (void) m;
        if (++B.n_stored == B.n_items)
                ready();
}

static const struct rpc_handler put_handler = {.on_message = on_put, .on_close = no_close};

static void put(struct conn *c, const char *key, int64_t lease, const struct rpc_handler *h)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct rpc_call *call = open_call(c, "/etcdserverpb.KV/Put", h, c);

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes("v", 1);
        q.lease = lease;
        send_on(c, call, &q.base);
        rpc_call_end(call);
}

static void on_grant(struct rpc_call *call, struct view m)
{
        struct item *it = call->userdata;
        Pb__LeaseGrantResponse *p = pb__lease_grant_response__unpack(NULL, m.len, m.p);
        char key[32];

        it->lease = p ? p->id : 0;
        pb_free(p);
        B.n_granted++;
        if (!is("hold")) {
                snprintf(key, sizeof(key), "%s%06zu", B.prefix, it->i);
                put(it->c, key, it->lease, &put_handler);
        } else {
                /* Kept alive from the start, spread over the term. */
                it->kept = true;
                it->due = boot_add(boot_now(),
                                   (nsec_t) rnd_between(&B.rnd, 0, (uint64_t) B.ttl * 500) *
                                           NSEC_PER_MSEC);
                if (B.n_granted == B.n_items)
                        ready();
        }
        grant_next(it->c);
}

static const struct rpc_handler grant_handler = {.on_message = on_grant, .on_close = no_close};

static void grant_next(struct conn *c)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        struct rpc_call *call;
        struct item *it;

        if (B.next_grant == B.n_items)
                return;
        it = &B.items[B.next_grant++];
        it->c = c;
        it->renewed = boot_now();
        call = open_call(c, "/etcdserverpb.Lease/LeaseGrant", &grant_handler, it);
        q.ttl = B.ttl;
        send_on(c, call, &q.base);
        rpc_call_end(call);
}

/* ---- what each mode does ---- */

static void next_event(void)
{
        if (B.event == B.n_events)
                return loop_stop(B.loop);
        B.event++;
        B.sent = boot_now();
        put(&B.conns[0], "fanout/k", 0, &put_handler);
}

static void ready(void)
{
        if (is("hold") || is("connect") || is("store")) {
                say(is("store") ? "stored" : "held");
                if (is("store"))
                        return loop_stop(B.loop);
                B.until = boot_add(boot_now(), B.run_for);
                for (size_t i = 0; is("connect") && i < B.n_items; i++)
                        renew(&B.items[i]);
                arm(boot_now());
        } else if (is("expire")) {
                for (size_t i = 0; i < B.n_items; i++)
                        renew(&B.items[i]);
        } else if (is("late")) {
                for (size_t i = 0; i < B.n_items; i++)
                        B.items[i].due =
                                boot_add(boot_now(),
                                         (nsec_t) rnd_between(&B.rnd, 0, 1000) * NSEC_PER_MSEC);
                arm(boot_now());
        } else if (is("once")) {
                say("granted");
        }
}

static void on_timer(struct loop_timer *t)
{
        struct boot_time now = boot_now();

        for (size_t i = 0; i < B.n_items; i++) {
                struct item *it = &B.items[i];

                if (it->due.ns == 0 || boot_before(now, it->due))
                        continue;
                it->due = it->kept ? boot_add(it->due, B.ttl * NSEC_PER_SEC / 2)
                                   : (struct boot_time){0};
                renew(it);
        }
        if (B.until.ns != 0 && !boot_before(now, B.until))
                return loop_stop(B.loop);
        loop_timer_arm(t, boot_add(now, 10 * NSEC_PER_MSEC));
}

static void begin(void)
{
        B.running = true;
        if (is("expire") || is("late"))
                watch(&B.conns[0], B.prefix, true);
        if (is("once"))
                for (size_t i = 0; i < B.n_conns; i++)
                        watch(&B.conns[i], B.prefix, true);
        if (is("fanout")) {
                for (size_t i = 0; i < B.n_watchers; i++)
                        watch(&B.conns[i % B.n_conns], "fanout/k", false);
                return;
        }
        if (is("connect")) {
                for (size_t i = 0; i < B.n_conns; i++) {
                        char key[32];

                        snprintf(key, sizeof(key), "%s%06zu", B.prefix, i);
                        watch(&B.conns[i], key, false);
                        grant_next(&B.conns[i]);
                }
                return;
        }
        for (size_t k = 0; k < 4; k++)
                for (size_t i = 0; i < B.n_conns; i++)
                        grant_next(&B.conns[i]);
        if (is("hold"))
                arm(boot_now());
}

static void on_up(struct endpoint *e, void *userdata)
{
        struct conn *c = userdata;

        (void) e;
        c->up = true;
        if (B.running && is("once"))
                return watch(c, B.prefix, true);
        if (!B.running && ++B.n_up == B.n_conns)
                begin();
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        struct conn *c = userdata;

        c->up = false;
        c->watch = c->keepalive = NULL;
        if (is("once"))
                return endpoint_want(e); /* its replica was killed: that is the test */
        fprintf(stderr, "leases: %s: %s\n", endpoint_name(e), why);
        exit(1);
}

static const struct endpoint_ops ops = {.up = on_up, .down = on_down};

static void results(void)
{
        nsec_t *v = calloc(B.n_items + 1, sizeof(*v)), first = INT64_MAX, last = 0;

        if (!v)
                abort();
        for (size_t i = 0; i < B.n_items; i++) {
                first = min_of(first, B.items[i].gone.ns);
                last = max_of(last, B.items[i].gone.ns);
                v[i] = B.items[i].gone.ns - B.items[i].renewed.ns;
                if (is("late"))
                        v[i] -= B.ttl * NSEC_PER_SEC;
        }
        qsort(v, B.n_items, sizeof(*v), cmp);
        if (is("hold"))
                printf("lost %zu of %zu, %zu renewals\n", B.n_lost, B.n_items, B.n_answered);
        else if (is("expire"))
                printf("%.1f\n", ms(last - first));
        else if (is("late"))
                printf("%.2f %.2f\n", ms(v[B.n_items / 2]), ms(v[B.n_items * 99 / 100]));
        else if (is("once"))
                printf("%.1f\n", ms(v[0]));
        if (is("fanout")) {
                qsort(B.latency, B.n_latency, sizeof(*B.latency), cmp);
                printf("%.3f %.3f\n", ms(B.latency[B.n_latency / 2]),
                       ms(B.latency[B.n_latency * 99 / 100]));
        }
        free(v);
}

int main(int argc, char **argv)
{
        size_t a[4] = {0};

        if (argc < 4) {
                fprintf(stderr, "usage: see the head of tests/bench/leases.c\n");
                return 2;
        }
        signal(SIGPIPE, SIG_IGN);
        B.mode = argv[2];
        B.fanout = is("fanout");
        snprintf(B.prefix, sizeof(B.prefix), "lease-%d/", (int) getpid());
        for (int i = 3; i < argc && i < 7; i++)
                a[i - 3] = strtoul(argv[i], NULL, 10);
        B.n_conns = 3;
        if (is("hold") || is("store")) {
                B.n_items = a[0], B.n_conns = a[1], B.ttl = (int64_t) a[2];
                B.run_for = (nsec_t) a[3] * NSEC_PER_SEC;
        } else if (is("expire") || is("late")) {
                B.n_items = a[0], B.n_conns = is("late") ? 3 : 10, B.ttl = (int64_t) a[1];
        } else if (is("once")) {
                B.n_items = 1, B.ttl = (int64_t) a[0];
        } else if (is("connect")) {
                B.n_items = B.n_conns = a[0], B.ttl = 600;
                B.run_for = (nsec_t) a[1] * NSEC_PER_SEC;
        } else if (is("fanout")) {
                B.n_watchers = a[0], B.n_conns = a[1], B.n_events = a[2];
                B.latency = calloc(B.n_watchers * B.n_events, sizeof(*B.latency));
        } else {
                return 2;
        }
        B.items = calloc(B.n_items + 1, sizeof(*B.items));
        B.conns = calloc(B.n_conns + 1, sizeof(*B.conns));
        rnd_init(&B.rnd, (uint64_t) boot_now().ns);
        if (!B.items || !B.conns || loop_new(&B.loop) < 0 || resolver_new(&B.rv, B.loop) < 0)
                abort();
        loop_timer_init(&B.timer, B.loop, on_timer);
        for (size_t i = 0; i < B.n_items; i++)
                B.items[i].i = i;
        for (size_t i = 0; i < B.n_conns;) {
                const char *cursor = argv[1];
                char url[320];

                while (i < B.n_conns && list_next(&cursor, url, sizeof(url))) {
                        if (endpoint_new(&B.conns[i].ep, B.loop, B.rv, url, NULL, NULL, &ops,
                                         &B.conns[i]) < 0)
                                return 2;
                        endpoint_want(B.conns[i++].ep);
                }
        }
        loop_run(B.loop);
        results();
        return 0;
}
