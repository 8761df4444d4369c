/*
 * Cache leases: streams on which clients ask for terms (state/cached.h), are asked to give them
 * back, and do so.
 *
 * Only this replica knows who holds a term that it gave, and only for as long as the term runs:
 * a client that is gone may still be reading what it has. Once a change waits for a range, all
 * holders of it here are asked to give it back; when there is none left, the log is notified.
 *
 * A range that nobody has cached yet counts in the share of the client that makes it one
 * (core/shares.h). And who holds up writes pays for it: for PAYS_TIMES as long as that took,
 * its address and its user get no further terms, but for what they hold up in SPARE.
 */
#include "base/probe.h"
#include "core/status.h"
#include "etcd/internal.h"

#define OUTSTANDING_MAX 16 /* unanswered requests of a stream: then we stop reading it */
#define HOLDINGS_MAX 1000  /* terms of a stream */
#define CACHED_BYTES_MAX ((size_t) 1 << 20)
#define LOOK_AGAIN (100 * NSEC_PER_MSEC) /* if lease time stood still, or the log refused */
#define SWEEP_EVERY NSEC_PER_SEC
#define ANSWERS_WITHIN (500 * NSEC_PER_MSEC) /* a holder that is asked to give back */
#define PAYS_TIMES 100
#define SPARE (CACHED_TERM_MAX_MS * NSEC_PER_MSEC)
#define PAYERS_AT_ONCE 2 /* looked at whenever somebody pays, whether they still have to */

static const struct status status_share = {
        RPC_RESOURCE_EXHAUSTED,
        "etcdserver: too many cached ranges: this client already has its share"};
static const struct status status_pays = {
        RPC_RESOURCE_EXHAUSTED,
        "etcdserver: too many requests: by its cache leases, the client's address or user has "
        "held up writes for too long"};

struct held_range;

struct cache_stream {
        LIST_ENTRY(cache_stream) next;
        struct cache_hub *hub;
        struct rpc_call *call; /* NULL: the client is gone */
        struct identity who;   /* when the stream began */
        LIST_HEAD(, holding) holdings;
        size_t n_holdings, outstanding;
};

/* A term that a client has, or has been asked to give back. */
struct holding {
        LIST_ENTRY(holding) of_stream;
        TAILQ_ENTRY(holding) of_range;
        struct held_range *range;
        struct cache_stream *stream;  /* NULL: the client is gone */
        struct party *address, *user; /* references; NULL: none */
        int64_t id;
        struct lease_time until;
        struct boot_time recalled_at;
        struct lease_time held_since; /* `recalled_at` in lease time */
        bool recalled;
};

struct held_range {
        LIST_ENTRY(held_range) next;
        uint64_t serial;
        TAILQ_HEAD(, holding) holdings;
        struct lease_time until; /* the end of the longest term that was given here */
        bool made;               /* it counts in the share of ... */
        struct requester maker;  /* ... this one, who asked for it first */
};

struct asking {
        struct core_write write;
        struct cache_stream *stream;
        Pb__CacheRequest *q;
        bool makes; /* a share of the ranges is taken for it */
};

struct cache_hub {
        struct api *api;
        LIST_HEAD(, cache_stream) streams;
        LIST_HEAD(, held_range) ranges;
        size_t n_made;
        TAILQ_HEAD(, party) payers; /* each has a reference */
        uint64_t n_awaited;         /* at the last check */
        bool look;                  /* something was given back: check */
        struct boot_time at;
};

int cache_hub_new(struct cache_hub **ret, struct api *a)
{
        struct cache_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        TAILQ_INIT(&h->payers);
        h->at = BOOT_TIME_NEVER;
        *ret = h;
        return 0;
}

#define HOLDING_COST (sizeof(struct holding) + sizeof(struct held_range) + 2 * BLOCK)

/* ---- what holding up a write costs ---- */

/* Terms end by the time in the log, which may stand still while nothing is written. This need
 * not be as exact, and must not stand still: a client would be refused for as long. */
static struct lease_time time_of(const struct cache_hub *h)
{
        return lease_time_max(core_state(h->api->core)->time, core_lease_time(h->api->core));
}

static void pays_no_more(struct cache_hub *h, struct party *who)
{
        TAILQ_REMOVE(&h->payers, who, next_payer);
        who->pays = false;
        party_unref(who);
}

static void forget_payers(struct cache_hub *h, struct lease_time now)
{
        struct party *who;

        for (int i = 0; i < PAYERS_AT_ONCE && (who = TAILQ_FIRST(&h->payers)); i++) {
                if (!lease_time_before(now, who->pays_until)) {
                        pays_no_more(h, who);
                        continue;
                }
                TAILQ_REMOVE(&h->payers, who, next_payer);
                TAILQ_INSERT_TAIL(&h->payers, who, next_payer);
        }
}

/* @who has held up a write from @since to @until, as others of it may have. While the core is
 * out of service nobody holds up anything, and lease time stands still. */
static void pay(struct cache_hub *h, struct party *who, struct lease_time since,
                struct lease_time until)
{
        struct lease_time now = time_of(h);

        if (!who)
                return;
        since = lease_time_max(since, who->paid_for);
        if (!lease_time_before(since, until))
                return;
        who->paid_for = until;
        who->pays_until = lease_time_add(lease_time_max(who->pays_until, now),
                                         PAYS_TIMES * lease_time_diff(until, since));
        if (!who->pays) {
                who->pays = true;
                party_ref(who);
                TAILQ_INSERT_TAIL(&h->payers, who, next_payer);
        }
        forget_payers(h, now);
}

static void pay_for(struct cache_hub *h, const struct holding *k)
{
        struct lease_time until = time_of(h);

        if (!k->recalled)
                return;
        if (lease_time_before(k->until, until))
                until = k->until;
        pay(h, k->address, k->held_since, until);
        pay(h, k->user, k->held_since, until);
}

static bool must_pay(const struct cache_hub *h, const struct party *who)
{
        return who && lease_time_diff(who->pays_until, time_of(h)) > PAYS_TIMES * SPARE;
}

/* ---- holdings ---- */

static void leave_stream(struct holding *k)
{
        LIST_REMOVE(k, of_stream);
        k->stream->n_holdings--;
        k->stream = NULL;
}

static void holding_drop(struct holding *k)
{
        if (k->stream) {
                rpc_call_drop_kept(k->stream->call, HOLDING_COST);
                leave_stream(k);
        }
        TAILQ_REMOVE(&k->range->holdings, k, of_range);
        party_unref(k->address);
        party_unref(k->user);
        free(k);
}

static void holding_free(struct cache_hub *h, struct holding *k)
{
        pay_for(h, k);
        holding_drop(k);
}

static void range_free(struct held_range *r)
{
        LIST_REMOVE(r, next);
        free(r);
}

/* When the replica ends, its core has done so already. */
static void range_forget(struct held_range *r)
{
        while (!TAILQ_EMPTY(&r->holdings))
                holding_drop(TAILQ_FIRST(&r->holdings));
        if (r->made) {
                party_unref(r->maker.conn);
                party_unref(r->maker.user);
        }
        range_free(r);
}

struct cache_hub *cache_hub_free(struct cache_hub *h)
{
        if (!h)
                return NULL;
        assert(LIST_EMPTY(&h->streams));
        while (!LIST_EMPTY(&h->ranges))
                range_forget(LIST_FIRST(&h->ranges));
        while (!TAILQ_EMPTY(&h->payers))
                pays_no_more(h, TAILQ_FIRST(&h->payers));
        free(h);
        return NULL;
}

static struct held_range *range_of(struct cache_hub *h, uint64_t serial)
{
        struct held_range *r;

        LIST_FOREACH (r, &h->ranges, next)
                if (r->serial == serial)
                        return r;
        return NULL;
}

static struct holding *holding_of(const struct cache_stream *s, int64_t id)
{
        struct holding *k;

        LIST_FOREACH (k, &s->holdings, of_stream)
                if (k->id == id)
                        return k;
        return NULL;
}

static void give_share(struct cache_hub *h, struct requester by)
{
        shares_give(core_shares(h->api->core), POT_CACHED, by, 1);
}

/* ---- recalls ---- */

static void recall(struct cache_hub *hub, struct holding *k)
{
        struct api *a = hub->api;
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        Pb__ResponseHeader h;

        if (k->recalled)
                return;
        k->recalled = true;
        k->recalled_at = core_now(a->core);
        k->held_since = time_of(hub);
        if (!k->stream)
                return;
        core_header(a->core, &h);
        p.header = &h;
        p.id = k->id;
        p.recall = true;
        api_send(a, k->stream->call, &p.base);
}

/* Drops the holders whose terms have ended by the time in the log; our clock may have counted
 * too much of a suspend. Returns after how long to look again. */
static nsec_t drop_ended(struct cache_hub *h, struct held_range *r, struct lease_time time)
{
        struct holding *k, *k_next;
        nsec_t next = SWEEP_EVERY;

        for (k = TAILQ_FIRST(&r->holdings); k; k = k_next) {
                nsec_t left = lease_time_diff(k->until, time);

                k_next = TAILQ_NEXT(k, of_range);
                if (left <= 0)
                        holding_free(h, k);
                else
                        next = min_of(next, left);
        }
        return max_of(next, LOOK_AGAIN);
}

/* Whether a term on @r may still run, though its holder may be gone. */
static bool may_run(const struct cache_hub *h, const struct held_range *r)
{
        struct lease_time now = time_of(h);
        const struct cached_range *c;

        if (!lease_time_before(now, r->until))
                return false;
        if (!TAILQ_EMPTY(&r->holdings))
                return true;
        c = cached_find(&core_state(h->api->core)->cached, r->serial);
        return c && lease_time_before(now, core_cached_until(h->api->core, c));
}

static void look_at(struct cache_hub *h, const struct cached_range *c, struct boot_time now)
{
        struct core *core = h->api->core;
        const struct state *s = core_state(core);
        struct held_range *r;
        struct holding *k;

        if (!c->awaited || !lease_time_before(s->time, core_cached_until(core, c)))
                return;
        r = range_of(h, c->serial);
        if (r) {
                TAILQ_FOREACH (k, &r->holdings, of_range)
                        recall(h, k);
                h->at = boot_min(h->at, boot_add(now, drop_ended(h, r, s->time)));
        }
        /* A term without a holder here was never answered, or has ended. */
        if (!r || TAILQ_EMPTY(&r->holdings)) {
                core_uncache(core, c->serial);
                h->at = boot_min(h->at, boot_add(now, LOOK_AGAIN));
        }
}

void cache_hub_flush(struct cache_hub *h, struct boot_time now)
{
        const struct cached *cached = &core_state(h->api->core)->cached;
        struct held_range *r, *r_next;

        if (h->n_awaited == cached->n_awaited && !h->look && boot_before(now, h->at))
                return;
        h->n_awaited = cached->n_awaited;
        h->look = false;
        h->at = LIST_EMPTY(&h->ranges) ? BOOT_TIME_NEVER : boot_add(now, SWEEP_EVERY);
        for (size_t i = 0; i < cached->n; i++)
                look_at(h, cached->ranges[i], now);
        for (r = LIST_FIRST(&h->ranges); r; r = r_next) {
                r_next = LIST_NEXT(r, next);
                (void) drop_ended(h, r, core_state(h->api->core)->time);
                if (r->made && !may_run(h, r)) {
                        r->made = false;
                        h->n_made--;
                        give_share(h, r->maker);
                }
                if (!r->made && TAILQ_EMPTY(&r->holdings))
                        range_free(r);
        }
}

struct boot_time cache_hub_next(const struct cache_hub *h)
{
        return h->look || h->n_awaited != core_state(h->api->core)->cached.n_awaited
                       ? core_now(h->api->core)
                       : h->at;
}

/* ---- requests ---- */

static void stream_unref(struct cache_stream *s)
{
        if (s->call || s->outstanding > 0)
                return;
        identity_fini(&s->who);
        free(s);
}

static void refuse(struct cache_stream *s, int64_t id, struct status st)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        Pb__ResponseHeader h;

        core_header(s->hub->api->core, &h);
        p.header = &h;
        p.id = id;
        p.error = (char *) (uintptr_t) st.text;
        p.code = (int32_t) st.code;
        api_send(s->hub->api, s->call, &p.base);
}

/* The range of a term that was given; NULL: no memory. */
static struct held_range *range_given(struct cache_hub *h, struct asking *ask,
                                      const Pb__CacheTerm *given)
{
        struct held_range *r = range_of(h, given->serial);

        if (!r) {
                r = calloc(1, sizeof(*r));
                if (!r)
                        return NULL;
                r->serial = given->serial;
                TAILQ_INIT(&r->holdings);
                LIST_INSERT_HEAD(&h->ranges, r, next);
        }
        if (ask->makes && !r->made) {
                ask->makes = false;
                r->made = true;
                r->maker = ask->write.by;
                h->n_made++;
        }
        r->until = lease_time_max(r->until, lease_time_add(core_state(h->api->core)->time,
                                                           given->term_ms * NSEC_PER_MSEC));
        h->at = boot_min(h->at, boot_add(core_now(h->api->core), SWEEP_EVERY));
        return r;
}

/* Returns false if there is no memory, or no room. */
static bool hold(struct cache_stream *s, struct asking *ask, const Pb__CacheTerm *given)
{
        struct requester by = ask->write.by;
        struct cache_hub *h = s->hub;
        struct held_range *r = range_of(h, given->serial);
        struct holding *k = holding_of(s, ask->q->id);

        if (k && k->range != r) { /* its range has changed, or the id was for another one */
                holding_free(h, k);
                k = NULL;
        }
        if (!r)
                return false;
        if (!k) {
                if (!rpc_call_keep(s->call, HOLDING_COST))
                        return false;
                k = calloc(1, sizeof(*k));
                if (!k) {
                        rpc_call_drop_kept(s->call, HOLDING_COST);
                        return false;
                }
                k->range = r;
                k->stream = s;
                k->id = ask->q->id;
                k->address = by.conn ? party_ref(by.conn->of) : NULL;
                k->user = by.user ? party_ref(by.user) : NULL;
                LIST_INSERT_HEAD(&s->holdings, k, of_stream);
                TAILQ_INSERT_TAIL(&r->holdings, k, of_range);
                s->n_holdings++;
        }
        pay_for(h, k);
        k->recalled = false;
        k->until = lease_time_max(k->until, lease_time_add(core_state(h->api->core)->time,
                                                           given->term_ms * NSEC_PER_MSEC));
        return true;
}

static void answer(struct cache_stream *s, struct asking *ask, const Pb__CacheTerm *given)
{
        const Pb__CacheRequest *q = ask->q;
        struct api *a = s->hub->api;
        const struct state *state = core_state(a->core);
        cleanup_(arena_fini) struct arena arena = {0};
        const struct holding *had = holding_of(s, q->id);
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        Pb__RangeResponse all = PB__RANGE_RESPONSE__INIT;
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        Pb__ResponseHeader h;
        struct budget left = BUDGET_ALL;
        size_t size;
        bool nomem;

        core_header(a->core, &h);
        p.header = &h;
        p.id = q->id;
        p.term_ms = given->term_ms;
        /* A change ends the range, so a range with the same serial has changed only by leases
         * that ended; no term is promised beyond that. */
        p.unchanged = q->have && had && given->term_ms > 0 &&
                      had->range->serial == given->serial &&
                      lease_time_before(state->time, had->until);
        if (!p.unchanged) {
                range.key = q->key;
                range.range_end = q->range_end;
                (void) state_range(state, &range, &arena, &all, &left, &nomem);
                if (nomem)
                        return refuse(s, q->id, status_nomem);
                p.kvs = all.kvs;
                p.n_kvs = all.n_kvs;
        }
        size = protobuf_c_message_get_packed_size(&p.base);
        if (size > CACHED_BYTES_MAX + 4096)
                return refuse(s, q->id, status_of(STATE_E_CACHE_TOO_LARGE));
        if (rpc_call_queued_patient(s->call, size) > API_QUEUED_MAX ||
            (!had && s->n_holdings >= HOLDINGS_MAX))
                return refuse(s, q->id, status_too_many);
        if (given->term_ms > 0 && !hold(s, ask, given))
                return refuse(s, q->id, status_too_many);
        api_send(a, s->call, &p.base);
}

static void asked(struct core_write *w, struct status st, struct view reply)
{
        struct asking *ask = container_of(w, struct asking, write);
        struct cache_stream *s = ask->stream;
        cleanup_(pb_freep) Pb__CacheTerm *given = NULL;

        s->outstanding--;
        s->hub->look = true;
        if (st.code == RPC_OK)
                st = status_unpacked(pb_unpack(&pb__cache_term__descriptor, reply, &given));
        if (given && given->term_ms > 0)
                (void) range_given(s->hub, ask, given);
        if (s->call && !given)
                refuse(s, ask->q->id, st);
        else if (s->call)
                answer(s, ask, given);
        if (ask->makes)
                give_share(s->hub, ask->write.by);
        if (s->call && s->outstanding < OUTSTANDING_MAX)
                rpc_call_release(s->call);
        pb_free(ask->q);
        free(ask);
        stream_unref(s);
}

/* If a holder takes long to give back, we go on waiting as if it had not answered. So it cannot
 * get the next term as soon as the write is through, and make every write wait that long. */
static void give_back(struct holding *k)
{
        struct cache_stream *s = k->stream;
        struct boot_time now = core_now(s->hub->api->core);

        s->hub->look = true;
        if (!k->recalled || boot_diff(now, k->recalled_at) < ANSWERS_WITHIN)
                return holding_free(s->hub, k);
        PROBE("a cache gives a range back so late that its term goes on");
        leave_stream(k);
        rpc_call_drop_kept(s->call, HOLDING_COST);
}

static void release(struct cache_stream *s, int64_t id)
{
        struct holding *k = holding_of(s, id);

        if (k)
                give_back(k);
}

/* Takes the share for a range that is not cached yet. */
static struct status admit(struct cache_hub *h, struct asking *ask, const Pb__CacheTerm *term)
{
        const struct state *s = core_state(h->api->core);
        struct shares *shares = core_shares(h->api->core);
        struct kv_span span = kv_span(&term->key, &term->range_end);
        struct requester by = ask->write.by;
        size_t n;

        if (must_pay(h, by.conn ? by.conn->of : NULL) || must_pay(h, by.user)) {
                PROBE("who held up writes gets no term for its cache");
                return status_pays;
        }
        if (cached_has(&s->cached, &span, time_of(h), &n))
                return status_ok;
        shares->pots[POT_CACHED].elsewhere = n - min_of(n, h->n_made);
        ask->makes = shares_take(shares, POT_CACHED, by, 1);
        return ask->makes ? status_ok : status_share;
}

static struct status ask_for(struct cache_stream *s, Pb__CacheRequest *q)
{
        struct cache_hub *h = s->hub;
        Pb__CacheTerm term = PB__CACHE_TERM__INIT;
        struct asking *ask;
        struct status st;
        int64_t most;

        term.key = q->key;
        term.range_end = q->range_end;
        most = min_of(core_config(s->hub->api->core)->cache_term / NSEC_PER_MSEC,
                      (nsec_t) CACHED_TERM_MAX_MS);
        term.term_ms = min_of(q->term_ms, most);
        term.term_ms = max_of(term.term_ms, (int64_t) CACHED_TERM_MIN_MS);
        st = identify_late(s->hub->api, s->call, &s->who);
        if (st.code != RPC_OK)
                return st;
        ask = calloc(1, sizeof(*ask));
        if (!ask)
                return status_nomem;
        ask->stream = s;
        ask->q = q;
        ask->write.done = asked;
        ask->write.by = requester_of(s->call, &s->who);
        st = admit(h, ask, &term);
        if (st.code == RPC_OK)
                st = core_cache(h->api->core, &ask->write, &s->who.user, &term, 0);
        if (st.code != RPC_OK) {
                if (ask->makes)
                        give_share(h, ask->write.by);
                free(ask);
                return st;
        }
        if (++s->outstanding >= OUTSTANDING_MAX)
                rpc_call_hold(s->call);
        return status_ok;
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct cache_stream *s = call->userdata;
        Pb__CacheRequest *q = NULL;
        struct status st = status_unpacked(pb_unpack(&pb__cache_request__descriptor, m, &q));

        if (!q)
                return rpc_call_finish(call, st.code, st.text);
        if (q->release) {
                release(s, q->id);
        } else {
                int64_t id = q->id;

                st = ask_for(s, q);
                if (st.code == RPC_OK)
                        return;
                refuse(s, id, st);
        }
        pb_free(q);
}

/* The client asks for nothing more, and gives everything back. */
static void on_end(struct rpc_call *call)
{
        struct cache_stream *s = call->userdata;

        while (!LIST_EMPTY(&s->holdings))
                give_back(LIST_FIRST(&s->holdings));
        rpc_call_finish(call, RPC_OK, "");
}

/* The client may go on reading what it has until its terms have ended. */
static void on_close(struct rpc_call *call)
{
        struct cache_stream *s = call->userdata;

        while (!LIST_EMPTY(&s->holdings))
                leave_stream(LIST_FIRST(&s->holdings));
        LIST_REMOVE(s, next);
        s->call = NULL;
        stream_unref(s);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_end = on_end, .on_close = on_close};

static void cache_accept(struct api *a, struct rpc_call *call)
{
        struct cache_stream *s;
        struct status st;

        if (core_config(a->core)->cache_term == 0)
                return rpc_call_finish(
                        call, RPC_UNIMPLEMENTED,
                        "etcdserver: no cache leases are given here (CacheTerm=0)");
        s = calloc(1, sizeof(*s));
        st = s ? identify(a, call, &s->who) : status_nomem;

        if (s && st.code == RPC_OK)
                st = status_of(permit_user(core_state(a->core), &s->who.user));
        if (!s || st.code != RPC_OK) {
                if (s)
                        identity_fini(&s->who);
                free(s);
                return rpc_call_finish(call, st.code, st.text);
        }
        s->hub = a->caches;
        s->call = call;
        LIST_INSERT_HEAD(&s->hub->streams, s, next);
        call->userdata = s;
        call->handler = &handler;
}

const struct method cache_methods[] = {
        {"/tenurepb.Cache/Cache", .stream = cache_accept, .kind = BIDI_STREAM},
};
const size_t n_cache_methods = ARRAY_SIZE(cache_methods);
