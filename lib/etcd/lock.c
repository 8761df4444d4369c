/*
 * Lock (v3lockpb) and Election (v3electionpb): the first candidate holds.
 *
 * A candidate creates NAME/LEASE-IN-HEX under its lease; the key with the smallest
 * create_revision holds. Waiters for one name stand in a queue (lock_queue.h), so that a
 * release wakes one of them, not all. Before a candidate is told that it holds, a linearizable
 * read makes sure that its key, and so its lease, still exists (A38); a waiter whose key is
 * gone is answered at once.
 *
 * A call that fails, or whose client goes away, deletes its key, but only if this call created
 * it, and nobody has written to it since: the same holder may have come back, through another
 * replica, and have the lock. For this reason a candidate that finds its key already there
 * writes it again; from then on no call removes it, since the lock may be held. The outcome of
 * a claim is waited for even if nobody waits for the answer, and the deletion is repeated until
 * it has been applied; it needs no permission, which may have been withdrawn meanwhile. The
 * create_revision is the fencing token: guard writes with a compare of it.
 *
 * Once its key exists, little is kept of a claim, and its connection is charged for no more:
 * the request is released, and the name is stored once for all waiters.
 */
#include "etcd/lock.h"

#include "base/probe.h"
#include "etcd/lock_queue.h"

/* The TTL of a lease that we grant to a caller that brings none, as in etcd; it is renewed
 * while the caller waits. */
#define SESSION_TTL_MS 60000
#define SESSION_RENEW (20 * NSEC_PER_SEC)

#define WITHDRAW_AGAIN (100 * NSEC_PER_MSEC)
#define WITHDRAWN_AT_ONCE 1000 /* in one turn */

static const struct status status_session_gone = {RPC_UNKNOWN, "mutex: session is expired"};
static const struct status status_no_longer = {RPC_UNKNOWN, "election: not leader"};
static const struct status status_nobody = {RPC_UNKNOWN, "election: no leader"};

/* The lease that we have granted for a waiter. A renewal cannot be cancelled, so this lives
 * until the renewal is done. */
struct session {
        TAILQ_ENTRY(session) next;
        struct core_renewal renewal;
        struct lock_hub *hub;
        struct boot_time renew_at;
        bool renewing, over; /* over: the waiter is gone */
};

/* A candidate. */
struct waiter {
        struct lock_place place;
        struct lock_hub *hub;
        struct request *q; /* its message is kept until the claim is made */
        bool election;
        int64_t created; /* the revision in which this call created its key; 0: it did not */
        struct session *session;   /* owned, until `over`; NULL: the lease is the caller's */
        TAILQ_ENTRY(waiter) next;  /* in `to_withdraw` ... */
        struct boot_time again_at; /* ... until then */
        bool to_withdraw;
};

struct lock_hub {
        struct api *api;
        struct lock_queues queues;
        TAILQ_HEAD(sessions, session) sessions; /* the next to be renewed is first */
        TAILQ_HEAD(, waiter) to_withdraw;       /* their keys must be deleted, in this order */
        bool more;                              /* more deletions must be checked, at once */
};

static void woken(struct lock_place *p, enum lock_turn turn);

int lock_hub_new(struct lock_hub **ret, struct api *a)
{
        struct lock_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        lock_queues_init(&h->queues, core_state(a->core)->revision, woken);
        TAILQ_INIT(&h->sessions);
        TAILQ_INIT(&h->to_withdraw);
        *ret = h;
        return 0;
}

struct lock_hub *lock_hub_free(struct lock_hub *h)
{
        struct waiter *w;

        while (h && (w = TAILQ_FIRST(&h->to_withdraw)))
                request_end(w->q);
        assert(!h || lock_queues_empty(&h->queues));
        free(h);
        return NULL;
}

size_t lock_hub_n_waiting(const struct lock_hub *h)
{
        return h->queues.n_waiting;
}

/* ---- sessions ---- */

static void session_end(struct session *se)
{
        if (!se || se->over)
                return;
        TAILQ_REMOVE(&se->hub->sessions, se, next);
        se->over = true;
        if (!se->renewing)
                free(se);
}

/* If the lease is gone, and its key with it, the waiter notices. */
static void session_renewed(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        struct session *se = container_of(rn, struct session, renewal);

        (void) st;
        (void) ttl_ms;
        se->renewing = false;
        if (se->over)
                free(se);
}

static struct session *session_new(struct lock_hub *h, int64_t lease)
{
        struct session *se = calloc(1, sizeof(*se));

        if (!se)
                return NULL;
        se->hub = h;
        se->renewal.lease = lease;
        se->renewal.done = session_renewed;
        se->renew_at = boot_add(core_now(h->api->core), SESSION_RENEW);
        TAILQ_INSERT_TAIL(&h->sessions, se, next);
        return se;
}

static void renew_sessions(struct lock_hub *h, struct boot_time now)
{
        struct session *se;

        while ((se = TAILQ_FIRST(&h->sessions)) && !boot_before(now, se->renew_at)) {
                se->renew_at = boot_add(now, SESSION_RENEW);
                TAILQ_REMOVE(&h->sessions, se, next);
                TAILQ_INSERT_TAIL(&h->sessions, se, next);
                if (se->renewing)
                        continue;
                se->renewing = true;
                PROBE("a caller that waits for a lock has its lease renewed by the core");
                core_renew(h->api->core, &se->renewal);
        }
}

struct boot_time lock_hub_next(const struct lock_hub *h)
{
        const struct session *se = TAILQ_FIRST(&h->sessions);
        const struct waiter *w = TAILQ_FIRST(&h->to_withdraw);

        if (h->more)
                return core_now(h->api->core);
        return boot_min(se ? se->renew_at : BOOT_TIME_NEVER, w ? w->again_at : BOOT_TIME_NEVER);
}

/* ---- waiters ---- */

static const struct kv *kv_of(const struct lock_hub *h)
{
        return &core_state(h->api->core)->kv;
}

/* Charges a waiter for what is kept of it, for as long as others hold. While its claim is being
 * made, its request, and what it writes, are charged instead. */
static void charge(struct waiter *w)
{
        size_t n = sizeof(*w) + (w->session ? sizeof(*w->session) : 0);

        if (!w->q->call || w->q->msg)
                return;
        rpc_call_charge(w->q->call, 0);
        rpc_call_cost(w->q->call, n + lock_place_cost(&w->place));
}

static void charge_payer(struct lock_place *p)
{
        if (p)
                charge(container_of(p, struct waiter, place));
}

/* The claim is made, so its message is released, and what it wrote is no longer charged. Other
 * requests of its connection may have waited for that. */
static void let_message_go(struct waiter *w)
{
        struct request *q = w->q;

        request_drop_msg(q);
        if (!q->call)
                return;
        charge(w);
        api_kick(q->api, q->call);
}

static void waiter_free(struct request *q)
{
        struct waiter *w = q->data;

        session_end(w->session);
        if (w->to_withdraw)
                TAILQ_REMOVE(&w->hub->to_withdraw, w, next);
        charge_payer(lock_place_leave(&w->hub->queues, &w->place));
        free(w);
}

int lock_prefix(ProtobufCBinaryData name, struct buf *out)
{
        buf_add(out, name.data, name.len);
        buf_add_u8(out, '/');
        return buf_error(out);
}

int lock_prefix_end(const struct buf *prefix, struct buf *out)
{
        buf_add(out, buf_head(prefix), buf_len(prefix) - 1);
        buf_add_u8(out, '/' + 1);
        return buf_error(out);
}

static struct status may_look(struct api *a, const struct identity *who,
                              const struct kv_span *span)
{
        ProtobufCBinaryData from = pb_bytes(span->from.p, span->from.len),
                            end = pb_bytes(span->end.p, span->end.len);

        return status_of(
                permit_range(core_state(a->core), &who->user, &from, &end, PERMIT_READ));
}

static struct kv_span span_of(const struct buf *prefix, const struct buf *end)
{
        return (struct kv_span){.from = {buf_head(prefix), buf_len(prefix)},
                                .end = {buf_head(end), buf_len(end)}};
}

struct status lock_may_look(struct api *a, const struct identity *who, const struct buf *prefix)
{
        cleanup_(buf_fini) struct buf end = {0};
        struct kv_span span;

        if (lock_prefix_end(prefix, &end) < 0)
                return status_nomem;
        span = span_of(prefix, &end);
        return may_look(a, who, &span);
}

/* ---- the guarded writes ---- */

/* A Txn: if @guard holds for @key, then @yes, else read the key. */
static void write_guarded(struct request *q, ProtobufCBinaryData key, Pb__Compare *guard,
                          Pb__RequestOp *yes,
                          void (*wrote)(struct request *, struct status, struct view))
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__RequestOp no = PB__REQUEST_OP__INIT, *yes_ops[] = {yes}, *no_ops[] = {&no};
        Pb__Compare *cs[] = {guard};

        guard->key = get.key = key;
        no.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        no.request_range = &get;
        txn.compare = cs;
        txn.success = yes_ops;
        txn.failure = no_ops;
        txn.n_compare = txn.n_success = txn.n_failure = 1;
        q->wrote = wrote;
        request_write(q, CMD_TXN, &txn.base);
}

static Pb__Compare created_at(int64_t rev)
{
        Pb__Compare c = PB__COMPARE__INIT;

        c.target = PB__COMPARE__COMPARE_TARGET__CREATE;
        c.target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        c.create_revision = rev;
        return c;
}

static Pb__Compare modified_at(int64_t rev)
{
        Pb__Compare c = PB__COMPARE__INIT;

        c.target = PB__COMPARE__COMPARE_TARGET__MOD;
        c.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c.mod_revision = rev;
        return c;
}

/* Lease 0: the key stays on the lease that it has. */
static void put_guarded(struct request *q, ProtobufCBinaryData key, int64_t rev,
                        ProtobufCBinaryData value, int64_t lease,
                        void (*wrote)(struct request *, struct status, struct view))
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;
        Pb__Compare guard = created_at(rev);

        put.key = key;
        put.value = value;
        put.lease = lease;
        put.ignore_lease = lease == 0;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        write_guarded(q, key, &guard, &op, wrote);
}

static void delete_guarded(struct request *q, ProtobufCBinaryData key, Pb__Compare guard,
                           void (*wrote)(struct request *, struct status, struct view))
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;

        del.key = key;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &del;
        write_guarded(q, key, &guard, &op, wrote);
}

/* Reads the answer to a Txn of ours: whether its guard held, and when the key was last written,
 * 0 if it does not exist. Returns @st, or `out of memory` if the answer cannot be read. */
static struct status read_txn(struct status st, struct view reply, bool *ret_held,
                              int64_t *ret_written)
{
        cleanup_(pb_freep) Pb__TxnResponse *p = NULL;
        const Pb__RangeResponse *r;

        *ret_held = false;
        *ret_written = 0;
        if (st.code != RPC_OK)
                return st;
        if (pb_unpack(&pb__txn_response__descriptor, reply, &p) < 0)
                return status_nomem;
        *ret_held = p->succeeded;
        r = p->n_responses > 0 && p->responses[0]->response_case ==
                                          PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE
                    ? p->responses[0]->response_range
                    : NULL;
        if (p->succeeded)
                *ret_written = p->header->revision;
        else if (r && r->n_kvs > 0)
                *ret_written = r->kvs[0]->mod_revision;
        return st;
}

/* ---- giving up ---- */

/* The core takes no write now, or the deletion did not get through. */
static void withdraw_later(struct request *q, struct status st)
{
        struct waiter *w = q->data;

        (void) st;
        PROBE("a claim cannot be withdrawn now");
        w->again_at = boot_add(core_now(q->api->core), WITHDRAW_AGAIN);
        w->to_withdraw = true;
        TAILQ_INSERT_TAIL(&w->hub->to_withdraw, w, next);
}

static void withdrawn(struct request *q, struct status st, struct view reply)
{
        (void) reply;
        if (st.code != RPC_OK)
                return withdraw_later(q, st);
        request_end(q);
}

static void withdraw(struct waiter *w)
{
        struct request *q = w->q;

        q->by_core = true;
        q->failed = withdraw_later;
        delete_guarded(q, lock_place_key(&w->place), modified_at(w->created), withdrawn);
}

/* The client went away, or was told that its call has failed. */
static void abandon(struct request *q)
{
        struct waiter *w = q->data;
        bool in_core = q->waiting;

        let_message_go(w);
        lock_place_unqueue(&w->hub->queues, &w->place);
        PROBE_IF(in_core, "a client goes away before its claim is made");
        if (in_core)
                return; /* the core calls back when it is done, and that leads here again */
        q->gone = NULL;
        session_end(w->session);
        w->session = NULL;
        if (w->created == 0)
                return request_end(q);
        withdraw(w);
}

/* Tells the client that its call has failed, and withdraws the claim. */
static void give_up(struct request *q, struct status st)
{
        struct rpc_call *call = q->call;

        if (call) {
                q->call = NULL;
                call->userdata = NULL;
                rpc_call_finish(call, st.code, st.text);
                api_kick(q->api, call);
        }
        abandon(q);
}

/* The client has waited long enough and gets a timeout; but the claim may still be made. */
static void overdue(struct core_write *cw)
{
        struct request *q = container_of(cw, struct request, write);

        if (q->call)
                give_up(q, status_timeout);
}

/* ---- holding ---- */

static void answer_held(struct waiter *w)
{
        struct request *q = w->q;
        Pb__ResponseHeader h;

        core_header(w->hub->api->core, &h);
        if (w->election) {
                Pb__CampaignResponse p = PB__CAMPAIGN_RESPONSE__INIT;
                Pb__LeaderKey k = PB__LEADER_KEY__INIT;

                p.header = &h;
                p.leader = &k;
                k.name = lock_place_name(&w->place);
                k.key = lock_place_key(&w->place);
                k.rev = w->place.rev;
                k.lease = w->place.lease;
                request_reply(q, &p.base);
        } else {
                Pb__LockResponse p = PB__LOCK_RESPONSE__INIT;

                p.header = &h;
                p.key = lock_place_key(&w->place);
                request_reply(q, &p.base);
        }
}

static void confirmed(struct request *q)
{
        struct waiter *w = q->data;
        enum lock_turn turn = lock_place_look(&w->hub->queues, kv_of(w->hub), &w->place);
        struct status st = may_look(q->api, &q->who, &w->place.queue->span);

        if (st.code != RPC_OK) { /* its permission is gone: do not tell it that it holds */
                give_up(q, st);
        } else if (turn == LOCK_HOLDS) {
                answer_held(w);
        } else if (turn == LOCK_GONE) {
                PROBE("a claim is gone before its turn is confirmed");
                request_fail(q, status_session_gone);
        }
}

static void woken(struct lock_place *p, enum lock_turn turn)
{
        struct waiter *w = container_of(p, struct waiter, place);

        if (turn == LOCK_HOLDS)
                request_read(w->q, confirmed);
        else
                request_fail(w->q, status_session_gone);
}

static void claim_made(struct waiter *w)
{
        enum lock_turn turn;

        let_message_go(w);
        turn = lock_place_look(&w->hub->queues, kv_of(w->hub), &w->place);
        if (turn != LOCK_WAITS)
                woken(&w->place, turn);
}

static void claim(struct waiter *w);

static void proclaimed(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;
        int64_t written;
        bool held;

        st = read_txn(st, reply, &held, &written);
        if (!q->call)
                return abandon(q);
        if (st.code != RPC_OK)
                return give_up(q, st);
        if (!held) { /* its creator has deleted the key meanwhile */
                w->place.rev = 0;
                return claim(w);
        }
        claim_made(w);
}

static ProtobufCBinaryData value_of(const struct waiter *w)
{
        const Pb__CampaignRequest *m = w->q->msg;

        return w->election ? m->value : (ProtobufCBinaryData){0};
}

static void claimed(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;
        ProtobufCBinaryData key = lock_place_key(&w->place);
        struct kv_key *k = kv_find(kv_of(w->hub), key.data, key.len);
        int64_t written;
        bool held;

        if (st.code == RPC_OK && k && kv_live(k))
                w->place.rev = k->newest->create_revision;
        st = read_txn(st, reply, &held, &written);
        w->created = held ? written : 0;
        if (!q->call)
                return abandon(q);
        /* A snapshot has replaced the entry, so the claim was made or never will be: the next
         * one finds out. */
        if (st.text == status_lost.text)
                return claim(w);
        if (st.code != RPC_OK)
                return give_up(q, st);
        if (w->place.rev == 0)
                return give_up(q, status_session_gone);
        /* The key existed already: write it, so that its creator cannot remove it. */
        if (!held)
                return put_guarded(q, key, w->place.rev, value_of(w), w->place.lease,
                                   proclaimed);
        claim_made(w);
}

static void claim(struct waiter *w)
{
        put_guarded(w->q, lock_place_key(&w->place), 0, value_of(w), w->place.lease, claimed);
}

static void session_made(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;

        (void) reply;
        if (!q->call)
                return abandon(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        w->session = session_new(w->hub, w->place.lease);
        if (!w->session)
                return request_fail(q, status_nomem);
        claim(w);
}

static void begin(struct request *q, ProtobufCBinaryData name, int64_t lease, bool election)
{
        struct waiter *w = calloc(1, sizeof(*w));
        struct status st;

        if (!w)
                return request_fail(q, status_nomem);
        w->hub = q->api->locks;
        w->q = q;
        w->election = election;
        w->place.lease = lease;
        q->data = w;
        q->drop = waiter_free;
        q->gone = abandon;
        q->asks_again = true;
        q->failed = give_up;
        q->write.overdue = overdue;
        if (lock_place_join(&w->hub->queues, name, &w->place) < 0)
                return request_fail(q, status_nomem);
        st = may_look(q->api, &q->who, &w->place.queue->span);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (lease == 0) {
                Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;

                w->place.lease = g.id = core_new_lease_id(q->api->core);
                g.ttl_ms = SESSION_TTL_MS;
                q->wrote = session_made;
                return request_write(q, CMD_GRANT, &g.base);
        }
        claim(w);
}

static void lock(struct request *q)
{
        const Pb__LockRequest *m = q->msg;

        begin(q, m->name, m->lease, false);
}

static void campaign(struct request *q)
{
        const Pb__CampaignRequest *m = q->msg;

        begin(q, m->name, m->lease, true);
}

/* ---- Unlock, Resign and Proclaim ---- */

static void given_up(struct request *q, struct status st, struct view reply)
{
        (void) reply;
        if (st.code != RPC_OK)
                return request_fail(q, st);
        request_reply_header(q);
}

static void unlock(struct request *q)
{
        const Pb__UnlockRequest *m = q->msg;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;

        if (m->key.len == 0)
                return request_fail(q, status_of(STATE_E_KEY_MISSING));
        del.key = m->key;
        q->wrote = given_up;
        request_write(q, CMD_DELETE_RANGE, &del.base);
}

static const struct status status_no_key = {RPC_INVALID_ARGUMENT,
                                            "\"leader\" field must be provided"};

static void resign(struct request *q)
{
        const Pb__LeaderKey *k = ((const Pb__ResignRequest *) q->msg)->leader;

        if (!k || k->key.len == 0)
                return request_fail(q, status_no_key);
        delete_guarded(q, k->key, created_at(k->rev), given_up);
}

static void value_written(struct request *q, struct status st, struct view reply)
{
        int64_t written;
        bool held;

        st = read_txn(st, reply, &held, &written);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (!held)
                return request_fail(q, status_no_longer);
        request_reply_header(q);
}

static void proclaim(struct request *q)
{
        const Pb__ProclaimRequest *m = q->msg;
        const Pb__LeaderKey *k = m->leader;

        if (!k || k->key.len == 0)
                return request_fail(q, status_no_key);
        put_guarded(q, k->key, k->rev, m->value, k->lease, value_written);
}

static void answer_leader(struct request *q)
{
        const Pb__LeaderRequest *m = q->msg;
        cleanup_(buf_fini) struct buf prefix = {0}, end = {0};
        Pb__LeaderResponse p = PB__LEADER_RESPONSE__INIT;
        Pb__ResponseHeader h;
        struct kv_span span;
        struct kv_key *k;
        Pb__KeyValue kv;
        struct status st;

        if (!request_has_turn(q, answer_leader))
                return;
        if (lock_prefix(m->name, &prefix) < 0 || lock_prefix_end(&prefix, &end) < 0)
                return request_fail(q, status_nomem);
        span = span_of(&prefix, &end);
        st = may_look(q->api, &q->who, &span);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        k = kv_span_eldest(&core_state(q->api->core)->kv, &span);
        if (!k)
                return request_fail(q, status_nobody);
        core_header(q->api->core, &h);
        kv_fill(k->newest, &kv);
        p.header = &h;
        p.kv = &kv;
        request_answer(q, &p.base, answer_leader);
}

static void leader(struct request *q)
{
        request_read(q, answer_leader);
}

/* ---- each turn ---- */

static void withdraw_again(struct lock_hub *h, struct boot_time now)
{
        struct waiter *w;

        for (unsigned left = WITHDRAWN_AT_ONCE;
             left > 0 && (w = TAILQ_FIRST(&h->to_withdraw)) && !boot_before(now, w->again_at);
             left--) {
                TAILQ_REMOVE(&h->to_withdraw, w, next);
                w->to_withdraw = false;
                withdraw(w);
        }
}

void lock_hub_flush(struct lock_hub *h, struct boot_time now)
{
        renew_sessions(h, now);
        withdraw_again(h, now);
        h->more = !lock_queues_flush(&h->queues, kv_of(h), core_state(h->api->core)->revision);
}

const struct method lock_methods[] = {
        {"/v3lockpb.Lock/Lock", &pb__lock_request__descriptor, lock, FOR_USERS, NULL},
        {"/v3lockpb.Lock/Unlock", &pb__unlock_request__descriptor, unlock, FOR_USERS, NULL},
        {"/v3electionpb.Election/Campaign", &pb__campaign_request__descriptor, campaign,
         FOR_USERS, NULL},
        {"/v3electionpb.Election/Proclaim", &pb__proclaim_request__descriptor, proclaim,
         FOR_USERS, NULL},
        {"/v3electionpb.Election/Leader", &pb__leader_request__descriptor, leader, FOR_USERS,
         NULL},
        {"/v3electionpb.Election/Resign", &pb__resign_request__descriptor, resign, FOR_USERS,
         NULL},
        {"/v3electionpb.Election/Observe", NULL, NULL, FOR_USERS, observe_accept},
};
const size_t n_lock_methods = ARRAY_SIZE(lock_methods);
