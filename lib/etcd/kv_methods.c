/* KV: writes go through the log; reads wait for a confirmation of leadership unless the client
 * does not care. Ranges are in range.c. */
#include "base/probe.h"
#include "etcd/internal.h"

/* Checking the lease may take long. */
static void put(struct request *q)
{
        const Pb__PutRequest *m = q->msg;

        q->prev_kv = m->prev_kv;
        if ((m->lease == 0 && m->lease_name.len == 0) || request_has_turn(q, put))
                request_write_own(q, CMD_PUT);
}

/* Adding up the sizes of many values may. */
static void delete_range(struct request *q)
{
        const Pb__DeleteRangeRequest *m = q->msg;

        q->prev_kv = m->prev_kv;
        if (!m->prev_kv || request_has_turn(q, delete_range))
                request_write_own(q, CMD_DELETE_RANGE);
}

static void answer_txn(struct request *q)
{
        cleanup_(buf_fini) struct buf out = {0};
        struct state_reply reply = {.out = &out};
        struct budget all = BUDGET_ALL;
        int r;

        if (!request_has_turn(q, answer_txn))
                return;
        core_header(q->api->core, &reply.header);
        r = state_txn_read(core_state(q->api->core), &q->who.user, q->msg, &reply, &all);
        request_spent(q, BUDGET_READ_STEPS * (budget_used(&all)), 0);
        if (r < 0 || buf_error(&out) < 0)
                return request_fail(q, status_nomem);
        if (r > 0)
                return request_fail(q, status_of((enum state_outcome) r));
        if (request_has_room(q, buf_len(&out), answer_txn))
                request_reply_bytes(q, out.data, buf_len(&out));
}

static void txn(struct request *q)
{
        int r;

        settle_txn(q);
        if (!state_txn_reads_only(q->msg)) {
                if (request_has_turn(q, txn))
                        request_write_own(q, CMD_TXN);
                return;
        }
        r = state_check_txn(q->msg, core_config(q->api->core)->max_txn_ops);
        if (r < 0)
                return request_fail(q, status_nomem);
        if (r > 0)
                return request_fail(q, status_of((enum state_outcome) r));
        request_read(q, answer_txn);
}

static void compact(struct request *q);

/* Another compaction may have gone further than the step, and a snapshot that replaces the
 * step's entry shows how far the history is compacted: then the next step is made, if any is
 * left. */
static void compacted(struct request *q, struct status st, struct view reply)
{
        const Pb__CompactionRequest *m = q->msg;
        bool lost = st.text == status_lost.text;

        if (!q->call)
                return request_end(q);
        if (st.code != RPC_OK && !lost &&
            strcmp(st.text, status_of(STATE_E_COMPACTED).text) != 0)
                return request_fail(q, st);
        if (m->revision > core_state(q->api->core)->kv.compacted)
                return compact(q);
        if (lost)
                return request_reply_header(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        request_reply_bytes(q, reply.p, reply.len);
}

/* Everything that was ahead of the request in the log has been applied. */
static void caught_up(struct request *q, struct status st, struct view reply)
{
        const Pb__CompactionRequest *m = q->msg;

        if (q->call && m->revision > core_state(q->api->core)->revision &&
            strcmp(st.text, status_of(STATE_E_COMPACTED).text) == 0)
                return request_fail(q, status_of(STATE_E_FUTURE));
        compacted(q, st, reply);
}

/* Revision 0 is compacted as long as nothing else is, as in etcd. */
static void compacted_nothing(struct request *q, struct status st, struct view reply)
{
        (void) reply;
        if (q->call && core_state(q->api->core)->kv.compacted == 0 &&
            strcmp(st.text, status_of(STATE_E_COMPACTED).text) == 0)
                return request_reply_header(q);
        request_fail(q, st);
}

/* A long history is compacted step by step, with other work in between: renewals wait for each
 * command. How far a step may go is only known up to the revision that this replica has
 * applied. For a later one, a compaction to revision 0 goes through the log first: it changes
 * nothing anywhere, and when it is refused, what came before it has been applied here. */
static void compact(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        const Pb__CompactionRequest *m = q->msg;
        Pb__CompactionRequest step = *m;

        q->wrote = m->revision == 0 ? compacted_nothing : compacted;
        if (m->revision > s->revision) {
                PROBE("a compaction is asked for that this replica has not reached");
                step.revision = 0;
                q->wrote = caught_up;
        } else if (m->revision > s->kv.compacted) {
                step.revision = kv_compact_step(&s->kv, m->revision);
        }
        q->asks_again = m->revision != 0;
        request_write(q, CMD_COMPACT, &step.base);
}

const struct method kv_methods[] = {
        {"/etcdserverpb.KV/Range", &pb__range_request__descriptor, range, .access = FOR_USERS,
         .at_learner = LEARNER_ANSWERS_SERIALIZABLE, .large = true},
        {"/etcdserverpb.KV/RangeStream", &pb__range_request__descriptor, range_stream,
         .access = FOR_USERS, .kind = SERVER_STREAM, .at_learner = LEARNER_ANSWERS_SERIALIZABLE,
         .large = true},
        {"/etcdserverpb.KV/Put", &pb__put_request__descriptor, put, .access = FOR_USERS},
        {"/etcdserverpb.KV/DeleteRange", &pb__delete_range_request__descriptor, delete_range,
         .access = FOR_USERS},
        {"/etcdserverpb.KV/Txn", &pb__txn_request__descriptor, txn, .access = FOR_USERS,
         .large = true},
        {"/etcdserverpb.KV/Compact", &pb__compaction_request__descriptor, compact,
         .access = FOR_USERS},
};
const size_t n_kv_methods = ARRAY_SIZE(kv_methods);
