/*
 * Two clients of one address that take all they can of what a replica bounds (core/shares.h):
 * reads, writes and cached ranges, in bursts; and they give no term of a cache back. Beside
 * them a client of another address asks for little, and is never told that there are too many.
 */
#include <stdio.h>

#include "asker.h"

#define N_GREEDY 2
#define BURST 95 /* calls, of 100 that a connection may have; or terms of caches */

struct greedy {
        struct wire link;
        struct rpc_call *stream;
        nsec_t act_at;
        unsigned open, terms;
};

enum ask { READ, PUT, CACHE, N_ASKS };

static struct greedy greedy[N_GREEDY];
static struct {
        struct asker asker;
        enum ask ask;
} modest;

/* ---- who takes all ---- */

static void on_close(struct rpc_call *call)
{
        struct greedy *g = call->userdata;

        if (call == g->stream)
                g->stream = NULL;
        else
                g->open--;
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct greedy *g = call->userdata;

        (void) message;
        W->met.greedy_refused += code == RPC_RESOURCE_EXHAUSTED;
        if (call == g->stream || code == RPC_UNAVAILABLE)
                g->link.broken = true;
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct greedy *g = call->userdata;
        Pb__CacheResponse *p;

        if (call != g->stream)
                return;
        p = pb__cache_response__unpack(NULL, m.len, m.p);
        if (!p)
                abort();
        W->met.greedy_refused += p->code == RPC_RESOURCE_EXHAUSTED;
        pb_free(p);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static struct rpc_call *call(struct greedy *g, const char *path)
{
        struct rpc_call *k;

        if (rpc_call_new(g->link.client, path, false, &handler, g, &k) < 0)
                return NULL;
        return k;
}

static bool send(struct rpc_call *k, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        return rpc_call_send(k, buf_head(&b), buf_len(&b)) == 0;
}

static bool ask(struct greedy *g, const char *path, const ProtobufCMessage *m)
{
        struct rpc_call *k = call(g, path);

        if (!k || !send(k, m))
                return false;
        g->open++;
        rpc_call_end(k);
        return true;
}

/* Of keys of its own, or of one that others write. */
static bool cache(struct greedy *g)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;
        char key[16];

        if (!g->stream)
                g->stream = call(g, "/tenurepb.Cache/Cache");
        if (chance(W, 75))
                snprintf(key, sizeof(key), "greedy/%u", g->terms % 300);
        else
                snprintf(key, sizeof(key), "k%02d", (int) rnd_between(&W->rnd, 0, N_KEYS - 1));
        q.id = ++g->terms;
        q.key = pb_bytes(key, strlen(key));
        q.term_ms = W->cache_ms;
        return g->stream && send(g->stream, &q.base);
}

static bool take(struct greedy *g, enum ask what)
{
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;

        get.key = put.key = pb_bytes("greedy", 6);
        switch (what) {
        case READ:
                return ask(g, "/etcdserverpb.KV/Range", &get.base);
        case PUT:
                return ask(g, "/etcdserverpb.KV/Put", &put.base);
        default:
                return cache(g);
        }
}

static void disconnect(void *arg)
{
        struct greedy *g = arg;

        wire_close(&g->link);
        g->act_at = W->now + some_time(W, 5 * MSEC, 300 * MSEC);
}

static void act(void *arg)
{
        struct greedy *g = arg;
        enum ask what = (enum ask) rnd_between(&W->rnd, 0, N_ASKS - 1);

        /* Until then it is done with the last burst. */
        g->act_at = W->now + some_time(W, 100 * MSEC, 1000 * MSEC);
        g->link.client_dirty = true;
        if (load_ended(W)) {
                g->link.broken = g->link.client;
                g->act_at = NEVER;
        } else if (!g->link.client) {
                (void) wire_connect(&g->link,
                                    (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1));
        } else if (chance(W, 5)) {
                g->link.broken = true;
        } else {
                for (unsigned i = g->open; i < BURST && take(g, what); i++)
                        ;
        }
}

/* ---- who is modest ---- */

static void ask_modestly(struct asker *a)
{
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__CacheRequest cached = PB__CACHE_REQUEST__INIT;

        modest.ask = (enum ask) rnd_between(&W->rnd, 0, N_ASKS - 1);
        get.key = put.key = cached.key = pb_bytes("modest", 6);
        cached.id = 1;
        cached.term_ms = CACHED_TERM_MIN_MS;
        switch (modest.ask) {
        case READ:
                return asker_ask(a, "/etcdserverpb.KV/Range", &get.base);
        case PUT:
                return asker_ask(a, "/etcdserverpb.KV/Put", &put.base);
        default:
                return asker_ask(a, "/tenurepb.Cache/Cache", &cached.base);
        }
}

/* Full disks, and full queues to the leader, refuse writes of everybody. */
static bool may_be_refused(void)
{
        return W->faults.memory ||
               (modest.ask != READ && (W->faults.full || W->queued_bytes > 0 || W->quota > 0));
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        Pb__CacheResponse *p = NULL;

        /* The stream of a cache ends before its request does. */
        a->act_at = W->now + some_time(W, 0, modest.ask == CACHE ? 1000 * MSEC : 100 * MSEC);
        if (modest.ask == CACHE && !lost && m.len > 0)
                p = pb__cache_response__unpack(NULL, m.len, m.p);
        if (p)
                code = p->code ? (enum rpc_code) p->code : code;
        W->counts.modest += code == RPC_OK;
        if (code == RPC_RESOURCE_EXHAUSTED && !may_be_refused())
                fail(W, "shares: a client that asks for little is refused request %u %s",
                     (unsigned) modest.ask, p ? p->error : "");
        pb_free(p);
}

static const struct asker_ops ops = {.act = ask_modestly, .answered = answered};

/* ---- all of them ---- */

void greedy_begin(struct world *w)
{
        for (unsigned i = 0; i < N_GREEDY; i++) {
                greedy[i] = (struct greedy){.act_at = w->greedy ? some_time(w, 0, 2000 * MSEC)
                                                                : NEVER};
                wire_init(&greedy[i].link, NULL, NULL);
                greedy[i].link.from = "greedy";
        }
        if (w->greedy)
                asker_begin(&modest.asker, 0, &ops);
}

void greedy_end(void)
{
        for (unsigned i = 0; i < N_GREEDY; i++)
                disconnect(&greedy[i]);
}

void greedy_run(void)
{
        for (unsigned i = 0; i < N_GREEDY; i++)
                wire_run(&greedy[i].link, &greedy[i].act_at, act, disconnect, &greedy[i]);
}

nsec_t greedy_next(void)
{
        nsec_t at = NEVER;

        for (unsigned i = 0; i < N_GREEDY; i++) {
                at = min_of(at, greedy[i].act_at);
                at = min_of(at, wire_next(&greedy[i].link));
        }
        return at;
}
