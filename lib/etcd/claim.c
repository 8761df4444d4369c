/*
 * Claims, see the picture in claim.h: the first candidate holds.
 *
 * The waiters for one name stand in a queue (claim_queue.h), so that a release wakes one of
 * them, not all. Before a candidate is told that it holds, a linearizable read makes sure that
 * its key, and so its lease, still exists (A38); a waiter whose key is gone is answered at
 * once.
 *
 * A claim that is given up deletes its key only if nobody has written to it since this claim
 * did: the same holder may have come back, through another replica, and have the lock. So a
 * claim that finds its key already there writes it again, and from then on its creator leaves
 * it alone. Whoever wrote it so does not know whether the creator has been told that it holds;
 * it deletes the key only as long as an older one is there, since then nobody has been told.
 * The deletion is repeated until it has been applied; it needs no permission, which may have
 * been withdrawn meanwhile. The create_revision is the fencing token: guard writes with a
 * compare of it.
 *
 * Once its key exists, little is kept of a claim, and its connection is charged for no more:
 * the request is released, and the name is stored once for all waiters.
 */
#include "etcd/claim.h"

#include "base/probe.h"
#include "etcd/claim_session.h"

#define WITHDRAW_AGAIN (100 * NSEC_PER_MSEC)
#define WITHDRAWN_AT_ONCE 1000 /* in one turn */

static const struct status status_session_gone = {RPC_UNKNOWN, "mutex: session is expired"};
static const struct status status_client_gone = {RPC_CANCELED, ""};

struct claim {
        struct claim_place place;
        struct claim_hub *hub;
        struct request *q; /* its message is kept until the key exists */
        enum claim_phase phase;
        bool election;
        int64_t written; /* the revision in which this claim wrote the key of `place`; 0: it has
                          * not, or the key is gone */
        bool created;    /* ... when there was none */
        struct claim_session *session; /* owned; NULL: the lease is the caller's */
        TAILQ_ENTRY(claim) next;       /* while PAUSED ... */
        struct boot_time again_at;     /* ... until then */
};

struct claim_hub {
        struct api *api;
        struct claim_queues queues;
        struct claim_sessions sessions;
        TAILQ_HEAD(, claim) paused; /* in the order of their times */
        bool more;                  /* more deletions must be checked, at once */
};

static void enter(struct claim *c, enum claim_phase phase);
static void woken(struct claim_place *p, enum claim_turn turn);

int claim_hub_new(struct claim_hub **ret, struct api *a)
{
        struct claim_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        claim_queues_init(&h->queues, core_state(a->core)->revision, woken);
        TAILQ_INIT(&h->sessions);
        TAILQ_INIT(&h->paused);
        *ret = h;
        return 0;
}

struct claim_hub *claim_hub_free(struct claim_hub *h)
{
        struct claim *c;

        while (h && (c = TAILQ_FIRST(&h->paused)))
                request_end(c->q);
        assert(!h || claim_queues_empty(&h->queues));
        free(h);
        return NULL;
}

size_t claim_hub_n_waiting(const struct claim_hub *h)
{
        return h->queues.n_waiting;
}

static const struct kv *kv_of(const struct claim_hub *h)
{
        return &core_state(h->api->core)->kv;
}

/* Then replicas may differ in who holds, and no key can be deleted. */
static bool is_corrupt(const struct claim_hub *h)
{
        return state_alarmed(core_state(h->api->core), PB__ALARM_TYPE__CORRUPT);
}

struct boot_time claim_hub_next(const struct claim_hub *h)
{
        const struct claim *c = TAILQ_FIRST(&h->paused);

        if (h->more)
                return core_now(h->api->core);
        return boot_min(claim_sessions_next(&h->sessions),
                        c && !is_corrupt(h) ? c->again_at : BOOT_TIME_NEVER);
}

/* ---- what is charged ---- */

/* Charges a claim for what is kept of it, for as long as others hold. While its key is being
 * created, its request, and what it writes, are charged instead. */
static void charge(struct claim *c)
{
        size_t n = sizeof(*c) + (c->session ? sizeof(*c->session) : 0);

        if (!c->q->call || c->q->msg)
                return;
        rpc_call_charge(c->q->call, 0);
        rpc_call_cost(c->q->call, n + claim_place_cost(&c->place));
}

/* Other requests of its connection may have waited for the room that its message took. */
static void let_message_go(struct claim *c)
{
        request_drop_msg(c->q);
        charge(c);
        api_kick(c->q->api, c->q->call);
}

static void claim_free(struct request *q)
{
        struct claim *c = q->data;
        struct claim_place *payer = claim_place_leave(&c->hub->queues, &c->place);

        if (payer)
                charge(container_of(payer, struct claim, place));
        claim_session_end(c->session);
        if (c->phase == CLAIM_PAUSED)
                TAILQ_REMOVE(&c->hub->paused, c, next);
        free(c);
}

/* ---- the way out ---- */

/* Leaves any phase. A client that still waits is answered with @st. The key stays if the claim
 * holds (RPC_OK), or has not created it. */
static void leave(struct claim *c, struct status st)
{
        struct request *q = c->q;
        struct rpc_call *call = q->call;

        request_drop_msg(q);
        claim_place_unqueue(&c->hub->queues, &c->place);
        if (call) {
                q->call = NULL;
                call->userdata = NULL;
                rpc_call_finish(call, st.code, st.text);
                api_kick(q->api, call);
        }
        PROBE_IF(q->waiting, "a client goes away before its claim is made");
        if (q->waiting)
                return; /* the outcome of the write leads here again */
        if (st.code == RPC_OK || c->written == 0)
                return request_end(q);
        claim_session_end(c->session);
        c->session = NULL;
        enter(c, CLAIM_WITHDRAWING);
}

static void client_gone(struct request *q)
{
        leave(q->data, status_client_gone);
}

/* The client has waited long enough; but what was written may still be applied. */
static void overdue(struct core_write *cw)
{
        struct request *q = container_of(cw, struct request, write);

        if (q->call)
                leave(q->data, status_timeout);
}

/* ---- holding ---- */

static void answer(struct claim *c)
{
        Pb__CampaignResponse campaign = PB__CAMPAIGN_RESPONSE__INIT;
        Pb__LockResponse lock = PB__LOCK_RESPONSE__INIT;
        Pb__LeaderKey k = PB__LEADER_KEY__INIT;
        struct api *a = c->hub->api;
        struct buf b = api_take_packed(a);
        struct status st = status_ok;
        Pb__ResponseHeader h;

        core_header(a->core, &h);
        campaign.header = lock.header = &h;
        campaign.leader = &k;
        k.name = claim_place_name(&c->place);
        k.key = lock.key = claim_place_key(&c->place);
        k.rev = c->place.rev;
        k.lease = c->place.lease;
        pb_append(&b, c->election ? &campaign.base : &lock.base);
        if (buf_error(&b) < 0 || rpc_call_send(c->q->call, buf_head(&b), buf_len(&b)) < 0)
                st = status_nomem;
        api_give_packed(a, &b);
        leave(c, st);
}

static void take_turn(struct claim *c, enum claim_turn turn)
{
        if (turn == TURN_NOW)
                return enter(c, CLAIM_CONFIRMING);
        c->phase = CLAIM_WAITING;
        if (turn == TURN_LATER)
                return;
        c->written = 0; /* its key is gone */
        leave(c, status_session_gone);
}

static void woken(struct claim_place *p, enum claim_turn turn)
{
        take_turn(container_of(p, struct claim, place), turn);
}

static void confirmed(struct request *q)
{
        struct claim *c = q->data;
        struct status st = claim_may_look(q->api, &q->who, &c->place.queue->span);
        enum claim_turn turn;

        if (st.code == RPC_OK && is_corrupt(c->hub))
                st = status_of(STATE_E_CORRUPT);
        if (st.code != RPC_OK) /* its permission is gone: do not tell it that it holds */
                return leave(c, st);
        turn = claim_place_look(&c->hub->queues, kv_of(c->hub), &c->place);
        PROBE_IF(turn == TURN_NEVER, "a claim is gone before its turn is confirmed");
        if (turn == TURN_NOW)
                return answer(c);
        take_turn(c, turn);
}

/* ---- the phases ---- */

static void grant(struct claim *c)
{
        Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;

        c->place.lease = g.id = core_new_lease_id(c->hub->api->core);
        g.ttl_ms = SESSION_TTL_MS;
        request_write(c->q, CMD_GRANT, &g.base);
}

static void put(struct claim *c, int64_t created)
{
        const Pb__CampaignRequest *m = c->q->msg;

        guarded_put(c->q, claim_place_key(&c->place), created,
                    c->election ? m->value : (ProtobufCBinaryData){0}, c->place.lease);
}

/* Deletes the key as far as that cannot take a lock from anybody. */
static void withdraw(struct claim *c)
{
        const struct kv_key *eldest =
                c->created ? NULL : kv_span_eldest(kv_of(c->hub), &c->place.queue->span);
        struct guard guards[GUARDS_MAX] = {
                {.key = claim_place_key(&c->place), .rev = c->written, .modified = true}};

        if (eldest)
                guards[1] = (struct guard){.key = pb_bytes(eldest->bytes, eldest->len),
                                           .rev = eldest->newest->create_revision};
        if (!c->created && (!eldest || guards[1].rev >= c->place.rev))
                return request_end(c->q);
        c->q->by_core = true;
        guarded_delete(c->q, guards, eldest ? 2 : 1);
}

static void enter(struct claim *c, enum claim_phase phase)
{
        struct claim_hub *h = c->hub;

        c->phase = phase;
        switch (phase) {
        case CLAIM_GRANTING:
                return grant(c);
        case CLAIM_CREATING:
                return put(c, 0);
        case CLAIM_ADOPTING:
                return put(c, c->place.rev);
        case CLAIM_WAITING:
                let_message_go(c);
                return take_turn(c, claim_place_look(&h->queues, kv_of(h), &c->place));
        case CLAIM_CONFIRMING:
                return request_read(c->q, confirmed);
        case CLAIM_WITHDRAWING:
                return withdraw(c);
        case CLAIM_PAUSED:
                PROBE("a claim cannot be withdrawn now");
                c->again_at = boot_add(core_now(h->api->core), WITHDRAW_AGAIN);
                TAILQ_INSERT_TAIL(&h->paused, c, next);
        }
}

/* The key that the claim has, or has found. */
static const struct kv_key *key_of(const struct claim *c)
{
        ProtobufCBinaryData key = claim_place_key(&c->place);

        return kv_find(kv_of(c->hub), key.data, key.len);
}

static void withdrawn(struct claim *c, struct status st, bool did)
{
        const struct kv_key *k = key_of(c);

        if (st.code != RPC_OK)
                return enter(c, CLAIM_PAUSED);
        if (did || !k || k->newest->mod_revision != c->written)
                return request_end(c->q);
        enter(c, CLAIM_WITHDRAWING); /* the older key went first */
}

/* What has become of what was written in this phase. */
static void wrote(struct request *q, struct status st, struct view reply)
{
        struct claim *c = q->data;
        bool did = st.code == RPC_OK && guarded_did(reply);

        if (c->phase == CLAIM_WITHDRAWING)
                return withdrawn(c, st, did);
        if (c->phase == CLAIM_CREATING && st.code == RPC_OK) {
                c->created = did;
                c->place.rev = key_of(c)->newest->create_revision;
        }
        if (c->phase != CLAIM_GRANTING && did)
                c->written = key_of(c)->newest->mod_revision;
        if (!q->call)
                return leave(c, status_client_gone);
        /* A snapshot has replaced the entry, so the key was created or never will be: the next
         * attempt finds out. To write it once more does no harm, and nobody knows of a lease
         * that was granted: the call gets another one. */
        if (st.text == status_lost.text)
                return enter(c, c->phase);
        if (st.code != RPC_OK)
                return leave(c, st);
        if (c->phase == CLAIM_GRANTING) {
                c->session = claim_session_new(&c->hub->sessions, c->place.lease,
                                               core_now(q->api->core));
                return c->session ? enter(c, CLAIM_CREATING) : leave(c, status_nomem);
        }
        if (did)
                return enter(c, CLAIM_WAITING);
        /* The key was there already; or its creator has deleted it meanwhile. */
        enter(c, c->phase == CLAIM_CREATING ? CLAIM_ADOPTING : CLAIM_CREATING);
}

/* The core takes no write, or the read has failed. */
static void failed(struct request *q, struct status st)
{
        wrote(q, st, (struct view){0});
}

struct status claim_may_look(struct api *a, const struct identity *who,
                             const struct kv_span *range)
{
        ProtobufCBinaryData from = pb_bytes(range->from.p, range->from.len),
                            end = pb_bytes(range->end.p, range->end.len);

        return status_of(
                permit_range(core_state(a->core), &who->user, &from, &end, PERMIT_READ));
}

void claim_begin(struct request *q, ProtobufCBinaryData name, int64_t lease, bool election)
{
        struct claim *c = calloc(1, sizeof(*c));
        struct status st;

        if (!c)
                return request_fail(q, status_nomem);
        c->hub = q->api->claims;
        c->q = q;
        c->election = election;
        c->place.lease = lease;
        q->data = c;
        q->drop = claim_free;
        q->gone = client_gone;
        q->asks_again = true;
        q->wrote = wrote;
        q->failed = failed;
        q->write.overdue = overdue;
        if (claim_place_join(&c->hub->queues, name, &c->place) < 0)
                return leave(c, status_nomem);
        st = claim_may_look(q->api, &q->who, &c->place.queue->span);
        if (st.code != RPC_OK)
                return leave(c, st);
        enter(c, lease == 0 ? CLAIM_GRANTING : CLAIM_CREATING);
}

/* ---- each turn ---- */

void claim_hub_flush(struct claim_hub *h, struct boot_time now)
{
        struct claim *c;

        claim_sessions_run(&h->sessions, h->api->core, now);
        for (unsigned left = WITHDRAWN_AT_ONCE;
             left > 0 && (c = TAILQ_FIRST(&h->paused)) && !boot_before(now, c->again_at) &&
             !is_corrupt(h);
             left--) {
                TAILQ_REMOVE(&h->paused, c, next);
                enter(c, CLAIM_WITHDRAWING);
        }
        h->more = !claim_queues_flush(&h->queues, kv_of(h), core_state(h->api->core)->revision);
}
