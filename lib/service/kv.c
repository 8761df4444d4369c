/* KV: writes go through the log; reads wait for a confirmation of leadership unless the client
 * does not care. */
#include "service/internal.h"

#define STREAM_BYTES ((size_t) 256 << 10) /* of one message of a streamed range */

/* Fills @p, in @a, from the state as it is here. */
static struct status look_up(struct request *q, struct arena *a, Pb__RangeResponse *p,
                             Pb__ResponseHeader *h)
{
        const Pb__RangeRequest *m = q->msg;
        struct state *s = core_state(q->api->core);
        enum state_outcome o =
                permit_range(s, &q->who.user, &m->key, &m->range_end, PERMIT_READ);
        bool nomem = false;

        if (o == STATE_OK)
                o = state_range(s, m, a, p, &nomem);
        if (nomem)
                return status_nomem;
        core_header(q->api->core, h);
        p->header = h;
        return status_of(o);
}

static void answer_range(struct request *q)
{
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        Pb__ResponseHeader h;
        struct status st = look_up(q, &a, &p, &h);

        if (st.code != RPC_OK)
                return request_fail(q, st);
        request_reply(q, &p.base);
}

static void range_then(struct request *q, void (*answer)(struct request *q))
{
        const Pb__RangeRequest *m = q->msg;
        enum state_outcome o = state_check_range(m);

        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        /* May be old, but not as old as this process. */
        if (m->serializable && core_caught_up(q->api->core))
                return answer(q);
        request_read(q, answer);
}

static void range(struct request *q)
{
        range_then(q, answer_range);
}

/* The same in parts: the first that come carry keys, the last one count and `more` too. */
static void answer_range_stream(struct request *q)
{
        Pb__RangeResponse all = PB__RANGE_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        Pb__ResponseHeader h;
        struct status st = look_up(q, &a, &all, &h);
        size_t from = 0, to = 0;

        if (st.code != RPC_OK)
                return request_fail(q, st);
        do {
                Pb__RangeStreamResponse p = PB__RANGE_STREAM_RESPONSE__INIT;
                Pb__RangeResponse part = PB__RANGE_RESPONSE__INIT;
                size_t bytes = 0;

                for (from = to; to < all.n_kvs && bytes < STREAM_BYTES; to++)
                        bytes += all.kvs[to]->key.len + all.kvs[to]->value.len + 64;
                part.header = &h;
                part.kvs = all.kvs + from;
                part.n_kvs = to - from;
                if (to == all.n_kvs) {
                        part.count = all.count;
                        part.more = all.more;
                }
                p.range_response = &part;
                api_send(q->api, q->call, &p.base);
        } while (to < all.n_kvs);
        rpc_call_finish(q->call, RPC_OK, "");
        request_end(q);
}

static void range_stream(struct request *q)
{
        range_then(q, answer_range_stream);
}

static void put(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        enum state_outcome o = state_check_put(q->msg);

        /* Only who may put tells all others that it is full. */
        if (o == STATE_OK && permit_put(s, &q->who.user, q->msg) == STATE_OK &&
            !core_room(q->api->core, state_put_bytes(s, q->msg)))
                o = STATE_E_NOSPACE;
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        request_write_own(q, CMD_PUT);
}

static void delete_range(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        enum state_outcome o = state_check_delete(q->msg);

        if (o == STATE_OK)
                o = state_check_delete_now(s, q->msg);
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        request_write_own(q, CMD_DELETE_RANGE);
}

static void answer_txn(struct request *q)
{
        cleanup_(buf_fini) struct buf out = {0};
        struct state_reply reply = {.out = &out};

        reply.outcome = permit_txn(core_state(q->api->core), &q->who.user, q->msg);
        if (reply.outcome != STATE_OK)
                return request_fail(q, status_of(reply.outcome));
        core_header(q->api->core, &reply.header);
        if (state_txn(core_state(q->api->core), q->msg, 0, &reply) < 0 || buf_error(&out) < 0)
                return request_fail(q, status_nomem);
        if (reply.outcome != STATE_OK)
                return request_fail(q, status_of(reply.outcome));
        request_reply_bytes(q, out.data, buf_len(&out));
}

static void txn(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        enum state_outcome o;
        size_t put_bytes;

        if (state_check_txn(q->msg, core_config(q->api->core)->max_txn_ops, &o) < 0)
                return request_fail(q, status_nomem);
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        if (state_txn_reads_only(q->msg))
                return request_read(q, answer_txn);
        /* Looked at again where it is applied: this saves the log's time. */
        if (state_check_txn_now(s, q->msg, &o, &put_bytes) < 0)
                return request_fail(q, status_nomem);
        if (o == STATE_OK && put_bytes > 0 && permit_txn(s, &q->who.user, q->msg) == STATE_OK &&
            !core_room(q->api->core, put_bytes))
                o = STATE_E_NOSPACE;
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        request_write_own(q, CMD_TXN);
}

static void compact(struct request *q);

static void compacted(struct request *q, struct status st, struct view reply)
{
        (void) reply;
        if (!q->call)
                return request_end(q);
        /* Somebody else may have come further: the last step says what is so. */
        if (st.code != RPC_OK) {
                q->wrote = NULL;
                return request_write(q, CMD_COMPACT, q->msg);
        }
        compact(q);
}

/* A long history goes step by step, and other work in between. */
static void compact(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        const Pb__CompactionRequest *m = q->msg;
        Pb__CompactionRequest step = *m;

        if (m->revision > s->kv.compacted && m->revision <= s->revision)
                step.revision = kv_compact_step(&s->kv, m->revision);
        q->wrote = step.revision < m->revision ? compacted : NULL;
        request_write(q, CMD_COMPACT, &step.base);
}

const struct method kv_methods[] = {
        {"/etcdserverpb.KV/Range", &pb__range_request__descriptor, range, FOR_USERS},
        {"/etcdserverpb.KV/RangeStream", &pb__range_request__descriptor, range_stream,
         FOR_USERS},
        {"/etcdserverpb.KV/Put", &pb__put_request__descriptor, put, FOR_USERS},
        {"/etcdserverpb.KV/DeleteRange", &pb__delete_range_request__descriptor, delete_range,
         FOR_USERS},
        {"/etcdserverpb.KV/Txn", &pb__txn_request__descriptor, txn, FOR_USERS},
        {"/etcdserverpb.KV/Compact", &pb__compaction_request__descriptor, compact, FOR_USERS},
};
const size_t n_kv_methods = ARRAY_SIZE(kv_methods);
