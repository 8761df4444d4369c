/* Lock (v3lockpb) and Election (v3electionpb), but for how a claim comes to hold (claim.c) and
 * what observers are told (observe.c). */
#include "etcd/claim.h"

static const struct status status_no_longer = {RPC_UNKNOWN, "election: not leader"};
static const struct status status_nobody = {RPC_UNKNOWN, "election: no leader"};
static const struct status status_no_leader_key = {RPC_UNKNOWN,
                                                   "\"leader\" field must be provided"};

static struct status no_key(const Pb__LeaderKey *k)
{
        return k ? status_of(STATE_E_KEY_MISSING) : status_no_leader_key;
}

static void lock(struct request *q)
{
        const Pb__LockRequest *m = q->msg;

        claim_begin(q, m->name, m->lease, false);
}

static void campaign(struct request *q)
{
        const Pb__CampaignRequest *m = q->msg;

        claim_begin(q, m->name, m->lease, true);
}

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

/* As for Unlock, permission to write the key is enough. That is checked here: a transaction's
 * guard would need permission to read it. */
static void resign_permitted(struct request *q)
{
        static const ProtobufCBinaryData none;
        const Pb__LeaderKey *k = ((const Pb__ResignRequest *) q->msg)->leader;
        struct status st = status_of(permit_range(core_state(q->api->core), &q->who.user,
                                                  &k->key, &none, PERMIT_WRITE));

        if (st.code != RPC_OK)
                return request_fail(q, st);
        q->by_core = true;
        q->wrote = given_up;
        guarded_delete(q, &(struct guard){.key = k->key, .rev = k->rev}, 1);
}

static void resign(struct request *q)
{
        const Pb__LeaderKey *k = ((const Pb__ResignRequest *) q->msg)->leader;

        if (!k || k->key.len == 0)
                return request_fail(q, no_key(k));
        request_read(q, resign_permitted);
}

static void proclaimed(struct request *q, struct status st, struct view reply)
{
        if (st.code != RPC_OK)
                return request_fail(q, st);
        if (!guarded_did(reply))
                return request_fail(q, status_no_longer);
        request_reply_header(q);
}

static void proclaim(struct request *q)
{
        const Pb__ProclaimRequest *m = q->msg;
        const Pb__LeaderKey *k = m->leader;

        if (!k || k->key.len == 0)
                return request_fail(q, no_key(k));
        q->wrote = proclaimed;
        guarded_put(q, k->key, k->rev, m->value, k->lease);
}

static void answer_leader(struct request *q)
{
        const Pb__LeaderRequest *m = q->msg;
        Pb__LeaderResponse p = PB__LEADER_RESPONSE__INIT;
        cleanup_(buf_fini) struct buf bytes = {0};
        Pb__ResponseHeader h;
        struct kv_span range;
        struct kv_key *k;
        Pb__KeyValue kv;
        struct status st;

        if (!request_has_turn(q, answer_leader))
                return;
        if (!buf_reserve(&bytes, CLAIM_RANGE_SIZE(m->name)))
                return request_fail(q, status_nomem);
        range = claim_range(m->name, buf_head(&bytes));
        st = claim_may_look(q->api, &q->who, &range);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        k = kv_span_eldest(&core_state(q->api->core)->kv, &range);
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

const struct method lock_methods[] = {
        {"/v3lockpb.Lock/Lock", &pb__lock_request__descriptor, lock, .access = FOR_USERS},
        {"/v3lockpb.Lock/Unlock", &pb__unlock_request__descriptor, unlock, .access = FOR_USERS},
        {"/v3electionpb.Election/Campaign", &pb__campaign_request__descriptor, campaign,
         .access = FOR_USERS},
        {"/v3electionpb.Election/Proclaim", &pb__proclaim_request__descriptor, proclaim,
         .access = FOR_USERS},
        {"/v3electionpb.Election/Leader", &pb__leader_request__descriptor, leader,
         .access = FOR_USERS, .large = true},
        {"/v3electionpb.Election/Resign", &pb__resign_request__descriptor, resign,
         .access = FOR_USERS},
        {"/v3electionpb.Election/Observe", .stream = observe_accept, .kind = SERVER_STREAM,
         .hasleader = true},
};
const size_t n_lock_methods = ARRAY_SIZE(lock_methods);
