/*
 * Lock (v3lockpb) and Election (v3electionpb): who came first, holds.
 *
 * Whoever wants to hold creates NAME/LEASE-IN-HEX under its lease; the key with the smallest
 * create_revision holds. A waiter waits for one key only, the one just before its own, so that
 * a release wakes one and not all. Before it is told that it holds, a linearizable read makes
 * sure that its key, and so its lease, is still there (A38). A client that goes away while it
 * waits takes its key with it, unless somebody has written to the key since: the same holder
 * may have come back by another replica, and have it. The create_revision is the fencing token:
 * guard writes with a compare of it.
 */
#include "service/lock.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/tree.h"

/* Of a lease made for a caller that brings none, as in etcd; it is kept alive while the caller
 * waits. */
#define SESSION_TTL_MS 60000
#define SESSION_RENEW (20 * NSEC_PER_SEC)

static const struct status status_session_gone = {RPC_UNKNOWN, "mutex: session is expired"};
static const struct status status_no_longer = {RPC_UNKNOWN, "election: not leader"};
static const struct status status_nobody = {RPC_UNKNOWN, "election: no leader"};

/* The lease that we have made for a waiter. A renewal cannot be taken back: so it lives on
 * until that is done. */
struct session {
        TAILQ_ENTRY(session) next;
        struct core_renewal renewal;
        struct lock_hub *hub;
        struct boot_time renew_at;
        bool renewing, over; /* over: nobody waits any more */
};

/* One who wants to hold. */
struct waiter {
        RB_ENTRY(waiter) by_before; /* while `waits` */
        struct lock_hub *hub;
        struct request *q;
        bool waits;
        bool election;
        int64_t lease, rev; /* rev: the create_revision of our key */
        int64_t mod;        /* its mod_revision, as our claim left it */
        struct buf prefix, key, value;
        struct buf before;       /* the key that we wait for */
        struct session *session; /* owned, until `over`; NULL: the lease is the caller's */
};

RB_HEAD(lock_waiters, waiter);

struct lock_hub {
        struct api *api;
        struct lock_waiters waiters;
        TAILQ_HEAD(sessions, session) sessions; /* whose turn to be renewed is next is first */
        int64_t seen; /* the revision up to which deletions were looked at */
};

static int waiter_cmp(const struct waiter *a, const struct waiter *b)
{
        int c = bytes_cmp(buf_head(&a->before), buf_len(&a->before), buf_head(&b->before),
                          buf_len(&b->before));

        return c != 0 ? c : (uintptr_t) a < (uintptr_t) b ? -1 : (uintptr_t) a > (uintptr_t) b;
}

TREE_GENERATE(lock_waiters, waiter, by_before, waiter_cmp)

int lock_hub_new(struct lock_hub **ret, struct api *a)
{
        struct lock_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        RB_INIT(&h->waiters);
        TAILQ_INIT(&h->sessions);
        *ret = h;
        return 0;
}

struct lock_hub *lock_hub_free(struct lock_hub *h)
{
        assert(!h || RB_EMPTY(&h->waiters));
        free(h);
        return NULL;
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

/* A lease that has gone, and its key, are for the waiter to notice. */
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
                core_renew(h->api->core, &se->renewal);
        }
}

struct boot_time lock_hub_next(const struct lock_hub *h)
{
        const struct session *se = TAILQ_FIRST(&h->sessions);

        return se ? se->renew_at : BOOT_TIME_NEVER;
}

/* ---- waiters ---- */

static void waiter_free(struct request *q)
{
        struct waiter *w = q->data;

        session_end(w->session);
        if (w->waits)
                RB_REMOVE(lock_waiters, &w->hub->waiters, w);
        buf_fini(&w->prefix);
        buf_fini(&w->key);
        buf_fini(&w->value);
        buf_fini(&w->before);
        free(w);
}

static ProtobufCBinaryData bytes_of(const struct buf *b)
{
        return pb_bytes(buf_head(b), buf_len(b));
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

struct status lock_may_look(struct api *a, const struct identity *who, const struct buf *prefix)
{
        cleanup_(buf_fini) struct buf end = {0};
        ProtobufCBinaryData from = bytes_of(prefix), to;

        if (lock_prefix_end(prefix, &end) < 0)
                return status_nomem;
        to = bytes_of(&end);
        return status_of(
                permit_range(core_state(a->core), &who->user, &from, &to, PERMIT_READ));
}

/* The live key under @prefix with the smallest create_revision, or, with @below, with the
 * greatest one that is less; NULL when there is none. Returns 0, or -ENOMEM: then nobody knows,
 * and nobody holds a lock for it. */
must_check_ static int first_or_before(const struct kv *kv, const struct buf *prefix,
                                       int64_t below, struct kv_key **ret)
{
        cleanup_(buf_fini) struct buf end = {0};
        struct kv_key *best;
        struct kv_span span;

        if (lock_prefix_end(prefix, &end) < 0)
                return -ENOMEM;
        span = (struct kv_span){.from = {buf_head(prefix), buf_len(prefix)},
                                .end = {buf_head(&end), buf_len(&end)}};
        best = kv_span_eldest(kv, &span);
        if (best && below > 0 && best->newest->create_revision >= below)
                best = NULL;
        *ret = best;
        if (!best || below <= 0)
                return 0;
        for (struct kv_key *k = kv_span_first(kv, &span); k; k = kv_span_next(&span, k)) {
                int64_t rev = kv_live(k) ? k->newest->create_revision : 0;

                if (rev < below && rev > best->newest->create_revision)
                        best = k;
        }
        *ret = best;
        return 0;
}

/* ---- the guarded writes ---- */

/* Txn: if @guard holds for @key, then @yes, else a look at the key. */
static void write_guarded(struct request *q, const struct buf *key, Pb__Compare *guard,
                          Pb__RequestOp *yes,
                          void (*wrote)(struct request *, struct status, struct view))
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__RequestOp no = PB__REQUEST_OP__INIT, *yes_ops[] = {yes}, *no_ops[] = {&no};
        Pb__Compare *cs[] = {guard};

        guard->key = get.key = bytes_of(key);
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

static void put_guarded(struct request *q, const struct buf *key, int64_t rev,
                        const struct buf *value, int64_t lease,
                        void (*wrote)(struct request *, struct status, struct view))
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;
        Pb__Compare guard = created_at(rev);

        put.key = bytes_of(key);
        put.value = bytes_of(value);
        put.lease = lease;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        write_guarded(q, key, &guard, &op, wrote);
}

static void delete_guarded(struct request *q, const struct buf *key, Pb__Compare guard,
                           void (*wrote)(struct request *, struct status, struct view))
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;

        del.key = bytes_of(key);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &del;
        write_guarded(q, key, &guard, &op, wrote);
}

/* What a Txn of ours answered: did its guard hold, and when was the key written to last, 0 when
 * it is not there? @st is how it went, and becomes `out of memory` when we cannot read it. */
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

/* ---- to hold ---- */

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
                k.name = pb_bytes(buf_head(&w->prefix), buf_len(&w->prefix) - 1);
                k.key = bytes_of(&w->key);
                k.rev = w->rev;
                k.lease = w->lease;
                request_reply(q, &p.base);
        } else {
                Pb__LockResponse p = PB__LOCK_RESPONSE__INIT;

                p.header = &h;
                p.key = bytes_of(&w->key);
                request_reply(q, &p.base);
        }
}

/* Our key as it stands here; NULL when it went, with its lease most likely. */
static struct kv_key *own_key(const struct waiter *w)
{
        struct kv_key *k = kv_find(&core_state(w->hub->api->core)->kv, buf_head(&w->key),
                                   buf_len(&w->key));

        return k && kv_live(k) && k->newest->create_revision == w->rev ? k : NULL;
}

static void confirmed(struct request *q);

/* Whose turn is it, as far as this replica knows? Returns true when @w waits; otherwise it may
 * be gone.
 */
static bool look(struct waiter *w)
{
        struct kv_key *before;

        if (w->waits)
                RB_REMOVE(lock_waiters, &w->hub->waiters, w);
        w->waits = false;
        if (!own_key(w)) {
                request_fail(w->q, status_session_gone);
                return false;
        }
        if (first_or_before(&core_state(w->hub->api->core)->kv, &w->prefix, w->rev, &before) <
            0) {
                request_fail(w->q, status_nomem);
                return false;
        }
        if (!before) {
                request_read(w->q, confirmed);
                return false;
        }
        buf_clear(&w->before);
        buf_add(&w->before, before->bytes, before->len);
        if (buf_error(&w->before) < 0) {
                request_fail(w->q, status_nomem);
                return false;
        }
        w->waits = true;
        RB_INSERT(lock_waiters, &w->hub->waiters, w);
        return true;
}

static void confirmed(struct request *q)
{
        struct waiter *w = q->data;
        struct kv_key *before;

        if (first_or_before(&core_state(w->hub->api->core)->kv, &w->prefix, w->rev, &before) <
            0)
                return request_fail(q, status_nomem);
        if (own_key(w) && !before)
                return answer_held(w);
        look(w);
}

/* The client went away: so does its claim. */
static void abandon(struct request *q)
{
        struct waiter *w = q->data;
        bool in_core = q->waiting;

        if (w->waits)
                RB_REMOVE(lock_waiters, &w->hub->waiters, w);
        w->waits = false;
        if (in_core)
                return; /* what the core does for us ends first, and comes back here */
        q->gone = NULL;
        if (w->rev == 0)
                return request_fail(q, status_ok);
        delete_guarded(q, &w->key, modified_at(w->mod), NULL);
}

static void proclaimed(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;
        int64_t written;
        bool held;

        st = read_txn(st, reply, &held, &written);
        if (st.code == RPC_OK)
                w->mod = written;
        if (!q->call)
                return abandon(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        look(w);
}

static void claimed(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;
        struct kv_key *k =
                kv_find(&core_state(q->api->core)->kv, buf_head(&w->key), buf_len(&w->key));

        int64_t written;
        bool held;

        if (st.code == RPC_OK && k && kv_live(k))
                w->rev = k->newest->create_revision;
        st = read_txn(st, reply, &held, &written);
        if (st.code == RPC_OK)
                w->mod = written;
        if (!q->call)
                return abandon(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (w->rev == 0)
                return request_fail(w->q, status_session_gone);
        /* It was ours before: a candidate may bring another value. */
        if (w->election && !held &&
            bytes_cmp(k->newest->value, k->newest->value_len, buf_head(&w->value),
                      buf_len(&w->value)) != 0)
                return put_guarded(q, &w->key, w->rev, &w->value, w->lease, proclaimed);
        look(w);
}

static void claim(struct waiter *w)
{
        buf_add(&w->key, buf_head(&w->prefix), buf_len(&w->prefix));
        buf_printf(&w->key, "%" PRIx64, (uint64_t) w->lease);
        if (buf_error(&w->key) < 0)
                return request_fail(w->q, status_nomem);
        put_guarded(w->q, &w->key, 0, &w->value, w->lease, claimed);
}

static void session_made(struct request *q, struct status st, struct view reply)
{
        struct waiter *w = q->data;

        (void) reply;
        if (!q->call)
                return abandon(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        w->session = session_new(w->hub, w->lease);
        if (!w->session)
                return request_fail(q, status_nomem);
        claim(w);
}

static void begin(struct request *q, ProtobufCBinaryData name, int64_t lease,
                  ProtobufCBinaryData value, bool election)
{
        struct waiter *w = calloc(1, sizeof(*w));
        struct status st;

        if (!w)
                return request_fail(q, status_nomem);
        w->hub = q->api->locks;
        w->q = q;
        w->election = election;
        w->lease = lease;
        buf_add(&w->value, value.data, value.len);
        q->data = w;
        q->drop = waiter_free;
        q->gone = abandon;
        if (lock_prefix(name, &w->prefix) < 0 || buf_error(&w->value) < 0)
                return request_fail(q, status_nomem);
        st = lock_may_look(q->api, &q->who, &w->prefix);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (lease == 0) {
                Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;

                w->lease = g.id = core_new_lease_id(q->api->core);
                g.ttl_ms = SESSION_TTL_MS;
                q->wrote = session_made;
                return request_write(q, CMD_GRANT, &g.base);
        }
        claim(w);
}

static void lock(struct request *q)
{
        const Pb__LockRequest *m = q->msg;

        begin(q, m->name, m->lease, (ProtobufCBinaryData){0}, false);
}

static void campaign(struct request *q)
{
        const Pb__CampaignRequest *m = q->msg;

        begin(q, m->name, m->lease, m->value, true);
}

/* ---- to let go, and to speak as the leader ---- */

static void let_go(struct request *q, struct status st, struct view reply)
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
        q->wrote = let_go;
        request_write(q, CMD_DELETE_RANGE, &del.base);
}

static int key_of(const Pb__LeaderKey *k, struct buf *out)
{
        if (!k || k->key.len == 0)
                return -EINVAL;
        buf_add(out, k->key.data, k->key.len);
        return buf_error(out);
}

static void resign(struct request *q)
{
        const Pb__ResignRequest *m = q->msg;
        cleanup_(buf_fini) struct buf key = {0};

        if (key_of(m->leader, &key) < 0)
                return request_fail(q, (struct status){RPC_INVALID_ARGUMENT,
                                                       "\"leader\" field must be provided"});
        delete_guarded(q, &key, created_at(m->leader->rev), let_go);
}

static void told(struct request *q, struct status st, struct view reply)
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
        cleanup_(buf_fini) struct buf key = {0}, value = {0};

        buf_add(&value, m->value.data, m->value.len);
        if (key_of(m->leader, &key) < 0 || buf_error(&value) < 0)
                return request_fail(q, (struct status){RPC_INVALID_ARGUMENT,
                                                       "\"leader\" field must be provided"});
        put_guarded(q, &key, m->leader->rev, &value, m->leader->lease, told);
}

static void answer_leader(struct request *q)
{
        const Pb__LeaderRequest *m = q->msg;
        cleanup_(buf_fini) struct buf prefix = {0};
        Pb__LeaderResponse p = PB__LEADER_RESPONSE__INIT;
        Pb__ResponseHeader h;
        Pb__KeyValue kv;
        struct status st;
        struct kv_key *k;

        if (lock_prefix(m->name, &prefix) < 0)
                return request_fail(q, status_nomem);
        st = lock_may_look(q->api, &q->who, &prefix);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (first_or_before(&core_state(q->api->core)->kv, &prefix, 0, &k) < 0)
                return request_fail(q, status_nomem);
        if (!k)
                return request_fail(q, status_nobody);
        core_header(q->api->core, &h);
        kv_fill(k->newest, &kv);
        p.header = &h;
        p.kv = &kv;
        request_reply(q, &p.base);
}

static void leader(struct request *q)
{
        request_read(q, answer_leader);
}

/* ---- what changed ---- */

static void wake(struct lock_hub *h, const struct kv_key *gone)
{
        for (;;) {
                struct waiter *w = RB_ROOT(&h->waiters), *found = NULL;

                while (w) {
                        int c = bytes_cmp(gone->bytes, gone->len, buf_head(&w->before),
                                          buf_len(&w->before));

                        if (c == 0)
                                found = w;
                        w = c <= 0 ? RB_LEFT(w, by_before) : RB_RIGHT(w, by_before);
                }
                if (!found)
                        return;
                if (look(found) && bytes_cmp(gone->bytes, gone->len, buf_head(&found->before),
                                             buf_len(&found->before)) == 0)
                        return; /* it was created again before us: cannot be, but no loop */
        }
}

void lock_hub_flush(struct lock_hub *h, struct boot_time now)
{
        struct state *s = core_state(h->api->core);

        renew_sessions(h, now);
        if (s->revision == h->seen)
                return;
        if (!RB_EMPTY(&h->waiters)) {
                /* Where history was cut off, every waiter looks for itself. */
                if (h->seen + 1 < s->kv.compacted) {
                        struct waiter *w, *next;

                        for (w = RB_MIN(lock_waiters, &h->waiters); w; w = next) {
                                next = RB_NEXT(lock_waiters, &h->waiters, w);
                                look(w);
                        }
                } else {
                        for (size_t i = kv_history_seek(&s->kv, h->seen + 1);
                             i < s->kv.history_to; i++)
                                if (s->kv.history[i]->version == 0)
                                        wake(h, s->kv.history[i]->key);
                }
        }
        h->seen = s->revision;
}

const struct method lock_methods[] = {
        {"/v3lockpb.Lock/Lock", &pb__lock_request__descriptor, lock, FOR_USERS},
        {"/v3lockpb.Lock/Unlock", &pb__unlock_request__descriptor, unlock, FOR_USERS},
        {"/v3electionpb.Election/Campaign", &pb__campaign_request__descriptor, campaign,
         FOR_USERS},
        {"/v3electionpb.Election/Proclaim", &pb__proclaim_request__descriptor, proclaim,
         FOR_USERS},
        {"/v3electionpb.Election/Leader", &pb__leader_request__descriptor, leader, FOR_USERS},
        {"/v3electionpb.Election/Resign", &pb__resign_request__descriptor, resign, FOR_USERS},
};
const size_t n_lock_methods = ARRAY_SIZE(lock_methods);
