/* KV/Range and RangeStream: what is small is answered at once, what is large in slices. */
#include "lease/scan.h"
#include "service/slow.h"

#define TURN_STEPS 40000                  /* in one turn of the loop: some 2 ms */
#define ENCODE_STEPS 6                    /* of one key */
#define STEP_BYTES 256                    /* copied in one */
#define STREAM_BYTES ((size_t) 256 << 10) /* of one message of a streamed range */
#define SLOW_ASSUMED ((size_t) 1 << 20)   /* that an answer comes to, before it is known */
#define KVS (2 << 3 | 2)                  /* the field of RangeResponse */
#define RESTARTS 3 /* of one that is not answered yet, when what it looked at is gone */

struct range {
        struct slow slow;
        struct request *q;
        struct state_scan scan;
        bool in_parts, began; /* in_parts: as RangeStream; began: a part was sent */
        unsigned n_begun;
        struct buf out; /* the answer, or the part, so far: behind room for gRPC's head */
};

static void range_fini(struct range *r)
{
        scan_fini(&r->scan);
        buf_fini(&r->out);
}

/* Of an answer, or of a part of one. */
static void begin_message(struct range *r)
{
        static const uint8_t room[RPC_MESSAGE_HEAD];
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;
        Pb__ResponseHeader h;

        core_header(r->q->api->core, &h);
        h.revision = max_of(h.revision, r->scan.revision);
        p.header = &h;
        buf_clear(&r->out);
        if (!r->in_parts)
                buf_add(&r->out, room, sizeof(room));
        pb_append(&r->out, &p.base);
}

/* Also to begin again. */
static struct status range_begin(struct range *r)
{
        const Pb__RangeRequest *m = r->q->msg;
        const struct state *s = core_state(r->q->api->core);
        enum state_outcome o =
                permit_range(s, &r->q->who.user, &m->key, &m->range_end, PERMIT_READ);

        scan_fini(&r->scan);
        if (o == STATE_OK)
                o = scan_begin(&r->scan, s, m, s->revision);
        /* What was sent is of a revision that is gone. */
        if (o == STATE_OK && r->began)
                o = STATE_E_COMPACTED;
        if (o == STATE_OK)
                begin_message(r);
        return status_of(o);
}

static void encode(struct range *r, const struct kv_version *v, int64_t *steps)
{
        Pb__KeyValue kv;

        kv_fill(v, &kv);
        if (r->scan.q->keys_only)
                kv.value = (ProtobufCBinaryData){0};
        buf_add_u8(&r->out, KVS);
        buf_add_varint(&r->out, protobuf_c_message_get_packed_size(&kv.base));
        pb_append(&r->out, &kv.base);
        *steps -= ENCODE_STEPS + (int64_t) ((kv.key.len + kv.value.len) / STEP_BYTES);
}

static int send_part(struct range *r)
{
        cleanup_(buf_fini) struct buf part = {0};

        buf_add_u8(&part, 1 << 3 | 2);
        buf_add_bytes(&part, buf_head(&r->out), buf_len(&r->out));
        if (buf_error(&r->out) < 0 || buf_error(&part) < 0 ||
            rpc_call_send(r->q->call, part.data, buf_len(&part)) < 0)
                return -ENOMEM;
        api_kick(r->q->api, r->q->call);
        r->began = true;
        begin_message(r);
        return 0;
}

/* A slice. Returns 0 when the message, or the last part, is whole; 1 when there is more; or as
 * scan_more() does. */
static int range_more(struct range *r, int64_t steps)
{
        Pb__RangeResponse end = PB__RANGE_RESPONSE__INIT;
        int e = scan_more(&r->scan, &steps);

        if (e != 0)
                return e;
        for (;;) {
                const struct kv_version *v;

                if (r->in_parts && buf_len(&r->out) >= STREAM_BYTES && send_part(r) < 0)
                        return -ENOMEM;
                if (r->in_parts &&
                    rpc_call_queued_before(r->q->call, STREAM_BYTES) > API_QUEUED_MAX)
                        return 1;
                if (steps <= 0)
                        return 1;
                v = scan_next(&r->scan);
                if (!v)
                        break;
                encode(r, v, &steps);
        }
        end.count = r->scan.count;
        end.more = r->scan.more;
        pb_append(&r->out, &end.base);
        return buf_error(&r->out);
}

static void finish(struct range *r)
{
        struct request *q = r->q;

        if (!r->in_parts)
                return request_reply_buf(q, &r->out);
        if (send_part(r) < 0)
                return request_fail(q, status_nomem);
        rpc_call_finish(q->call, RPC_OK, "");
        request_end(q);
}

/* ---- what takes more than a turn ---- */

static void slow_fini(struct slow *s)
{
        struct range *r = container_of(s, struct range, slow);

        range_fini(r);
        free(r);
}

static void slow_begin(struct slow *s)
{
        struct range *r = container_of(s, struct range, slow);
        struct status st =
                r->n_begun++ > RESTARTS ? status_of(STATE_E_COMPACTED) : range_begin(r);

        if (st.code != RPC_OK)
                return request_fail(r->q, st);
        scan_pin(&r->scan, &core_state(r->q->api->core)->kv);
}

static int slow_run(struct slow *s)
{
        struct range *r = container_of(s, struct range, slow);
        int e = slow_is_stale(s) ? -ESTALE : range_more(r, TURN_STEPS);

        if (e > 0)
                rpc_call_charge(r->q->call,
                                max_of(scan_bytes(&r->scan) + buf_len(&r->out), SLOW_ASSUMED));
        if (e == 0)
                finish(r);
        return min_of(e, 0);
}

static const struct slow_ops range_ops = {
        .begin = slow_begin, .run = slow_run, .fini = slow_fini};

static void answer_slowly(struct request *q, bool in_parts)
{
        struct range *r = calloc(1, sizeof(*r));

        if (!r)
                return request_fail(q, status_nomem);
        r->q = q;
        r->in_parts = in_parts;
        rpc_call_charge(q->call, SLOW_ASSUMED);
        slow_start(&r->slow, q, &range_ops);
}

/* ---- methods ---- */

static void answer_range(struct request *q)
{
        cleanup_(range_fini) struct range r = {.q = q};
        struct status st = range_begin(&r);
        int e;

        if (st.code != RPC_OK)
                return request_fail(q, st);
        e = range_more(&r, TURN_STEPS);
        if (e < 0)
                return request_fail(q, status_nomem);
        if (e > 0)
                return answer_slowly(q, false);
        finish(&r);
}

/* The same in parts: the first that come carry keys, the last one count and `more` too. */
static void answer_range_stream(struct request *q)
{
        answer_slowly(q, true);
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

void range(struct request *q)
{
        range_then(q, answer_range);
}

void range_stream(struct request *q)
{
        range_then(q, answer_range_stream);
}
