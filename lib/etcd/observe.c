/*
 * Election/Observe: reports the leaders of an election to its observers.
 *
 * The observers of one election are kept together, in an index by its keys: a change costs what
 * the observers of that election cost, and they are answered in slices. A stream begins with a
 * linearizable read: a replica without a majority reports no leader that may have been
 * replaced.
 */
#include "etcd/claim.h"
#include "state/span_index.h"

#define TURN_MAX 2048   /* observers answered in one turn of the loop */
#define LOOKS 4000      /* in one turn: at changes, and at the elections that each concerns */
#define BEHIND_MAX 4096 /* an observer that is further behind is told of no earlier ones */
#define STEPS_OF_ONE 16 /* versions that are passed, for one that is told */
#define LATE_LOOKS 1000 /* observers without room that are looked at in one turn ... */
#define LATE_AGAIN (20 * NSEC_PER_MSEC)
#define LATE_PAUSE (2 * NSEC_PER_MSEC) /* ... and until the others are */

struct observer {
        TAILQ_ENTRY(observer) next; /* in the list of its election */
        struct observe_hub *hub;
        struct election *election; /* NULL: the request has not come yet */
        struct rpc_call *call;
        struct identity who;
        TAILQ_ENTRY(observer) next_late; /* while it has no room for its next report ... */
        size_t wants;                    /* ... the size of that; 0: it has */
        uint64_t round;                  /* the last round in which it was checked */
        int64_t sent;                    /* the mod_revision that was sent last ... */
        uint32_t sent_sub;               /* ... and which change of that revision it was */
        struct core_read first; /* confirms that our state is recent enough to begin ... */
        bool reading, begun;    /* ... while `reading`; then it has `begun` */
};

TAILQ_HEAD(elections, election);

struct election {
        struct span_entry range;
        TAILQ_ENTRY(election) next; /* in the list to which `in` points */
        struct elections *in;
        TAILQ_HEAD(, observer) observers;
        uint64_t round;  /* the round of notifications; 0: not begun */
        uint8_t bytes[]; /* of `range` */
};

struct observe_hub {
        struct api *api;
        struct span_index index;
        TAILQ_HEAD(late_observers, observer) late; /* those that have to read first */
        struct elections idle, touched; /* touched: there may be news for its observers */
        uint64_t rounds;
        struct kv_place place;    /* of the changes that are to be checked next */
        size_t looks;             /* that are left in this turn */
        struct boot_time late_at; /* when to check the late ones next */
};

int observe_hub_new(struct observe_hub **ret, struct api *a)
{
        struct observe_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        span_index_init(&h->index);
        TAILQ_INIT(&h->idle);
        TAILQ_INIT(&h->touched);
        TAILQ_INIT(&h->late);
        *ret = h;
        return 0;
}

struct observe_hub *observe_hub_free(struct observe_hub *h)
{
        assert(!h || !span_index_any(&h->index));
        free(h);
        return NULL;
}

static void put_in(struct election *e, struct elections *list)
{
        if (e->in)
                TAILQ_REMOVE(e->in, e, next);
        e->in = list;
        TAILQ_INSERT_TAIL(list, e, next);
}

static void election_free(struct observe_hub *h, struct election *e)
{
        if (e->in) {
                TAILQ_REMOVE(e->in, e, next);
                span_index_remove(&h->index, &e->range);
        }
        free(e);
}

/* Counts the whole election for each observer: any of them may be the last that is left. */
static size_t election_cost(ProtobufCBinaryData name)
{
        return sizeof(struct election) + CLAIM_RANGE_SIZE(name) + BLOCK;
}

/* The election named @name, created if needed; NULL: no memory. */
static struct election *election_of(struct observe_hub *h, ProtobufCBinaryData name)
{
        struct election *e = calloc(1, sizeof(*e) + CLAIM_RANGE_SIZE(name));
        struct span_entry *same;

        if (!e)
                return NULL;
        TAILQ_INIT(&e->observers);
        e->range.span = claim_range(name, e->bytes);
        same = span_index_find(&h->index, &e->range.span);
        if (same) {
                election_free(h, e);
                return container_of(same, struct election, range);
        }
        span_index_add(&h->index, &e->range);
        put_in(e, &h->idle);
        return e;
}

/* ---- notifying ---- */

/* The next version of the leader's key to report to @o: each proclamation in order; of a new
 * leader the present value first, as in etcd. */
static const struct kv_version *next_of(const struct observer *o, const struct kv_key *k,
                                        unsigned *left)
{
        const struct kv_version *v = k->newest;
        unsigned n = 0;

        if (o->sent >= v->create_revision)
                for (; n < BEHIND_MAX && v->older && v->older->mod_revision > o->sent; n++)
                        v = v->older;
        *left -= min_of(*left, n / STEPS_OF_ONE);
        return v;
}

static void send(struct observer *o, const struct kv_version *v)
{
        struct api *a = o->hub->api;
        Pb__LeaderResponse p = PB__LEADER_RESPONSE__INIT;
        Pb__ResponseHeader h;
        Pb__KeyValue kv;

        o->sent = v->mod_revision;
        o->sent_sub = v->sub;
        core_header(a->core, &h);
        kv_fill(v, &kv);
        p.header = &h;
        p.kv = &kv;
        api_send(a, o->call, &p.base);
}

static bool has_room(const struct observer *o, size_t n)
{
        return rpc_call_queued_patient(o->call, n) <= API_QUEUED_MAX;
}

static bool was_sent(const struct observer *o, const struct kv_version *v)
{
        return v->mod_revision == o->sent && v->sub == o->sent_sub;
}

static void tell(struct observer *o, const struct kv_key *k, unsigned *left)
{
        struct api *a = o->hub->api;
        struct status st;

        if (!o->begun || o->wants > 0 || was_sent(o, k->newest))
                return;
        st = identify_late(a, o->call, &o->who);
        if (st.code == RPC_OK)
                st = claim_may_look(a, &o->who, &o->election->range.span);
        if (st.code != RPC_OK) {
                rpc_call_finish(o->call, st.code, st.text);
                return api_kick(a, o->call);
        }
        for (const struct kv_version *v = next_of(o, k, left); v; v = v->newer) {
                size_t n = k->len + v->value_len;

                if (!has_room(o, n)) {
                        o->wants = n;
                        TAILQ_INSERT_TAIL(&a->observers->late, o, next_late);
                        return;
                }
                *left -= min_of(*left, 1U);
                send(o, v);
        }
}

static const struct kv_key *leader_of(const struct observe_hub *h, const struct election *e)
{
        return kv_span_eldest(&core_state(h->api->core)->kv, &e->range.span);
}

/* Those that have been looked at are at the end. Returns true when all have been. */
static bool tell_late(struct observe_hub *h, unsigned *left)
{
        struct observer *o, *last = TAILQ_LAST(&h->late, late_observers);

        for (unsigned n = 0; n<LATE_LOOKS && * left> 0 && (o = TAILQ_FIRST(&h->late)); n++) {
                const struct kv_key *k;

                TAILQ_REMOVE(&h->late, o, next_late);
                if (!has_room(o, o->wants)) {
                        TAILQ_INSERT_TAIL(&h->late, o, next_late);
                } else {
                        o->wants = 0;
                        k = leader_of(h, o->election);
                        if (k)
                                tell(o, k, left);
                }
                if (o == last)
                        return true;
        }
        return TAILQ_EMPTY(&h->late);
}

/* Returns true when all observers of @e have been checked. */
static bool tell_all(struct observe_hub *h, struct election *e, unsigned *left)
{
        const struct kv_key *k = leader_of(h, e);
        struct observer *o;

        if (!k)
                return true;
        if (e->round == 0)
                e->round = ++h->rounds;
        /* Observers that had their turn are at the end. */
        while ((o = TAILQ_FIRST(&e->observers))->round != e->round) {
                if (*left == 0)
                        return false;
                --*left;
                o->round = e->round;
                TAILQ_REMOVE(&e->observers, o, next);
                TAILQ_INSERT_TAIL(&e->observers, o, next);
                tell(o, k, left);
        }
        return true;
}

static void touch(struct span_entry *r, void *arg)
{
        struct election *e = container_of(r, struct election, range);
        struct observe_hub *h = arg;

        e->round = 0;
        if (e->in != &h->touched)
                put_in(e, &h->touched);
}

static void on_change(struct span_entry *r, void *arg)
{
        struct observe_hub *h = arg;

        h->looks = sub_sat(h->looks, 1);
        touch(r, h);
}

/* One deletion may have had 100,000 keys, and a key may be one of thousands of elections. */
static void look_at_changes(struct observe_hub *h)
{
        const struct state *s = core_state(h->api->core);
        const struct kv *kv = &s->kv;
        struct election *e;

        if (h->place.next > s->revision)
                return;
        /* If the history is compacted there, anything may have changed. */
        if (h->place.next < kv->compacted) {
                while ((e = TAILQ_FIRST(&h->idle)))
                        touch(&e->range, h);
        } else if (span_index_any(&h->index)) {
                h->looks = LOOKS;
                for (size_t i = kv_place_seek(kv, &h->place); i < kv->history_to; i++) {
                        const struct kv_version *v = kv_history_at(kv, i);

                        if (h->looks == 0)
                                return;
                        h->looks--;
                        kv_place_read(&h->place, v);
                        span_index_each(&h->index, (struct view){v->key->bytes, v->key->len},
                                        on_change, h);
                }
        }
        kv_place_pass(&h->place, s->revision + 1);
}

void observe_hub_flush(struct observe_hub *h, struct boot_time now)
{
        unsigned left = TURN_MAX;
        struct election *e;

        look_at_changes(h);
        if (!boot_before(now, h->late_at))
                h->late_at = boot_add(now, tell_late(h, &left) ? LATE_AGAIN : LATE_PAUSE);
        /* Finding the leader counts, too, even if there is none. */
        while (left > 0 && (e = TAILQ_FIRST(&h->touched))) {
                left--;
                if (!tell_all(h, e, &left))
                        return;
                e->round = 0;
                put_in(e, &h->idle);
        }
}

struct boot_time observe_hub_next(const struct observe_hub *h)
{
        if (!TAILQ_EMPTY(&h->touched) || h->place.next <= core_state(h->api->core)->revision)
                return core_now(h->api->core);
        return TAILQ_EMPTY(&h->late) ? BOOT_TIME_NEVER : h->late_at;
}

/* ---- streams ---- */

static void on_first(struct core_read *rd, struct status st)
{
        struct observer *o = container_of(rd, struct observer, first);

        o->reading = false;
        if (st.code != RPC_OK) {
                rpc_call_finish(o->call, st.code, st.text);
                return api_kick(o->hub->api, o->call);
        }
        o->begun = true;
        touch(&o->election->range, o->hub);
}

static void on_observe(struct rpc_call *call, struct view m)
{
        struct observer *o = call->userdata;
        cleanup_(pb_freep) Pb__LeaderRequest *q = NULL;
        struct election *e;
        struct status st;
        int r = pb_unpack(&pb__leader_request__descriptor, m, &q);

        if (r < 0)
                return rpc_call_finish(call, status_unpacked(r).code, status_unpacked(r).text);
        if (o->election)
                return;
        if (!rpc_call_keep(call, election_cost(q->name)))
                return rpc_call_finish(call, status_too_many.code, status_too_many.text);
        e = election_of(o->hub, q->name);
        if (!e)
                return rpc_call_finish(call, status_nomem.code, status_nomem.text);
        o->election = e;
        TAILQ_INSERT_HEAD(&e->observers, o, next);
        st = identify(o->hub->api, call, &o->who);
        if (st.code == RPC_OK)
                st = claim_may_look(o->hub->api, &o->who, &e->range.span);
        if (st.code != RPC_OK)
                return rpc_call_finish(call, st.code, st.text);
        o->reading = true;
        o->first.done = on_first;
        o->first.by = requester_of(call, &o->who);
        core_read(o->hub->api->core, &o->first, call->timeout);
}

static void on_close(struct rpc_call *call)
{
        struct observer *o = call->userdata;
        struct election *e = o->election;

        if (o->reading)
                core_read_cancel(o->hub->api->core, &o->first);
        if (o->wants > 0)
                TAILQ_REMOVE(&o->hub->late, o, next_late);
        if (e)
                TAILQ_REMOVE(&e->observers, o, next);
        if (e && TAILQ_EMPTY(&e->observers))
                election_free(o->hub, e);
        identity_fini(&o->who);
        free(o);
}

static const struct rpc_handler handler = {.on_message = on_observe, .on_close = on_close};

void observe_accept(struct api *a, struct rpc_call *call)
{
        struct observer *o = calloc(1, sizeof(*o));

        if (!o)
                return rpc_call_finish(call, status_nomem.code, status_nomem.text);
        o->hub = a->observers;
        o->call = call;
        call->userdata = o;
        call->handler = &handler;
}
