/*
 * KV/Range and RangeStream: a small range is answered at once, a large one in slices.
 *
 * The bytes of a large answer are counted first, because gRPC needs their number before the
 * first of them. Then the keys are read again, and encoded as the client takes them: only the
 * position is remembered. The whole answer is of one revision, which is pinned. A RangeStream,
 * which is sent in parts, is not counted.
 */
#include <inttypes.h>

#include "base/log.h"
#include "etcd/sliced.h"
#include "state/scan.h"
#include "wire/renewal.h"

#define TURN_STEPS 40000 /* in one turn of the loop: about 2 ms */
#define SEND_STEPS 5000  /* each time the reader has taken the output, in its own turn */
#define ENCODE_STEPS 6   /* to encode one key */
#define COUNT_STEPS 3    /* to count one key */
#define STEP_BYTES 256   /* bytes copied in one step */
#define SMALL_ANSWER ((size_t) 256 << 10)
#define PIECE ((size_t) 64 << 10)         /* of a large answer */
#define STREAM_BYTES ((size_t) 256 << 10) /* of one message of a streamed range */
#define SEND_HIGH ((size_t) 256 << 10)    /* no more is produced while this much waits */
#define PRESSED ((size_t) 16 << 10)       /* instead of these, while too much is held */
/* How many keys are sorted at once: an eighth of the room, as the list may be twice as large as
 * its content. The fewer these are, the more often the keys are read. */
#define SORT_LEAST ((size_t) 4096)
#define SORT_MOST ((size_t) 1 << 19)
#define SORT_PART 8
/* Field tags, as on the wire. */
#define KVS (2 << 3 | 2)   /* of RangeResponse */
#define KEY (1 << 3 | 2)   /* of KeyValue */
#define VALUE (5 << 3 | 2) /* of KeyValue */
#define PART (1 << 3 | 2)  /* of RangeStreamResponse */
#define RESTARTS 3 /* of a range that is not answered yet, if the data that it read is gone */

struct range {
        struct sliced sliced;
        struct request *q;
        struct state_scan scan;
        Pb__ResponseHeader header;
        bool in_parts, began; /* in_parts: a RangeStream; began: something was sent */
        unsigned n_begun;
        /* Bytes of the answer, or of its part, that are still to be sent, once they are
         * counted. */
        size_t left;
        struct buf out; /* a part or a piece of the answer */
        /* A large key and value, which is sent in pieces, too; NULL: none is under way. */
        const struct kv_version *large;
        size_t large_at; /* bytes of it that were sent */
};

static void range_fini(struct range *r)
{
        scan_fini(&r->scan);
        buf_fini(&r->out);
}

static size_t sort_at_once(const struct rpc_call *call)
{
        size_t n = rpc_call_spare(call) / SORT_PART / sizeof(struct scan_item);

        return n < SORT_LEAST ? SORT_LEAST : min_of(n, SORT_MOST);
}

/* Begins the range, or begins it again. */
static struct status range_begin(struct range *r)
{
        const Pb__RangeRequest *m = r->q->msg;
        const struct state *s = core_state(r->q->api->core);
        enum state_outcome o =
                permit_range(s, &r->q->who.user, &m->key, &m->range_end, PERMIT_READ);

        scan_fini(&r->scan);
        buf_clear(&r->out);
        r->left = 0;
        r->large = NULL;
        /* What was sent is of a revision that is gone; or compactions come faster than we read.
         */
        if (o == STATE_OK && (r->began || r->n_begun++ > RESTARTS))
                o = STATE_E_COMPACTED;
        if (o == STATE_OK)
                o = scan_begin(&r->scan, s, m, s->revision);
        if (o != STATE_OK)
                return status_of(o);
        core_header(r->q->api->core, &r->header);
        r->scan.window = sort_at_once(r->q->call);
        return status_ok;
}

/* The memory that it holds. */
static size_t cost(const struct range *r)
{
        return sizeof(*r) + scan_bytes(&r->scan) + r->out.cap;
}

/* ---- the bytes of the answer: a head, keys, and a tail; in parts, each has a head ---- */

static void add_head(struct range *r)
{
        header_append(&r->out, &r->header);
}

static void add_tail(struct range *r)
{
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;

        p.count = r->scan.count;
        p.more = r->scan.more;
        pb_append(&r->out, &p.base);
}

static void fill(const struct range *r, const struct kv_version *v, Pb__KeyValue *ret)
{
        kv_fill(v, ret);
        if (r->scan.q->keys_only)
                ret->value = (ProtobufCBinaryData){0};
}

static void add_key(struct range *r, const struct kv_version *v, int64_t *steps)
{
        Pb__KeyValue kv;

        fill(r, v, &kv);
        pb_append_field(&r->out, KVS, &kv.base);
        *steps -= ENCODE_STEPS + (int64_t) ((kv.key.len + kv.value.len) / STEP_BYTES);
}

static bool is_large(const struct range *r, const struct kv_version *v)
{
        return v->key->len + (r->scan.q->keys_only ? 0 : v->value_len) > PIECE;
}

/* A run of bytes, of which those in [from, to) are wanted. */
struct window {
        struct buf *out;
        size_t at, from, to; /* at: the number of bytes before this run */
};

static void add_within(struct window *w, const void *p, size_t n)
{
        size_t first = max_of(w->from, w->at), end = min_of(w->to, w->at + n);

        if (first < end)
                buf_add(w->out, (const uint8_t *) p + (first - w->at), end - first);
        w->at += n;
}

/* Adds a piece of what add_key() would add, up to @max bytes in all. The bytes around the key
 * and the value are encoded again each time. */
static void add_large(struct range *r, size_t max, int64_t *steps)
{
        Pb__KeyValue kv, numbers = PB__KEY_VALUE__INIT, lease = PB__KEY_VALUE__INIT;
        size_t n = max - buf_len(&r->out), head, middle;
        struct window w = {.out = &r->out, .from = r->large_at, .to = r->large_at + n};
        cleanup_(buf_fini) struct buf b = {0};

        fill(r, r->large, &kv);
        buf_add_u8(&b, KVS);
        buf_add_varint(&b, protobuf_c_message_get_packed_size(&kv.base));
        buf_add_u8(&b, KEY);
        buf_add_varint(&b, kv.key.len);
        head = buf_len(&b);
        numbers.create_revision = kv.create_revision;
        numbers.mod_revision = kv.mod_revision;
        numbers.version = kv.version;
        pb_append(&b, &numbers.base);
        if (kv.value.len > 0) {
                buf_add_u8(&b, VALUE);
                buf_add_varint(&b, kv.value.len);
        }
        middle = buf_len(&b);
        lease.lease = kv.lease;
        pb_append(&b, &lease.base);
        *steps -= ENCODE_STEPS + (int64_t) (n / STEP_BYTES);
        if (buf_error(&b) < 0) {
                r->out.failed = true;
                return;
        }
        add_within(&w, b.data, head);
        add_within(&w, kv.key.data, kv.key.len);
        add_within(&w, b.data + head, middle - head);
        add_within(&w, kv.value.data, kv.value.len);
        add_within(&w, b.data + middle, buf_len(&b) - middle);
        r->large_at += n;
        if (r->large_at >= w.at)
                r->large = NULL;
}

/* Adds keys until there are @max bytes. In parts, a large key ends its part, and is not begun
 * in it. Returns 0 at the end, with the tail; 1 if there is more; -ESTALE; or -ENOMEM. */
static int add_keys(struct range *r, size_t max, int64_t *steps)
{
        if (r->large && !scan_is_good(&r->scan))
                return -ESTALE;
        while (buf_len(&r->out) < max && *steps > 0 && buf_error(&r->out) == 0) {
                const struct kv_version *v;
                int e;

                if (r->large) {
                        add_large(r, max, steps);
                        if (r->in_parts)
                                break;
                        continue;
                }
                e = scan_next(&r->scan, steps, &v);
                if (e != 0)
                        return e;
                if (!v) {
                        add_tail(r);
                        return buf_error(&r->out);
                }
                if (!is_large(r, v)) {
                        add_key(r, v, steps);
                        continue;
                }
                r->large = v;
                r->large_at = 0;
                if (r->in_parts)
                        break;
        }
        return buf_error(&r->out) < 0 ? -ENOMEM : 1;
}

static size_t varint_len(size_t n)
{
        uint8_t out[VARINT_MAX];

        return (size_t) (varint_put(out, n) - out);
}

static size_t key_len(const struct range *r, const struct kv_version *v)
{
        Pb__KeyValue kv;
        size_t n;

        fill(r, v, &kv);
        n = protobuf_c_message_get_packed_size(&kv.base);
        return 1 + varint_len(n) + n;
}

/* Returns 0 when the size is known, 1 if there is more to count, -ESTALE, or -ENOMEM. */
static int count(struct range *r, int64_t *steps)
{
        while (*steps > 0) {
                const struct kv_version *v;
                int e = scan_next(&r->scan, steps, &v);

                if (e != 0)
                        return e;
                if (!v) {
                        add_head(r);
                        add_tail(r);
                        if (buf_error(&r->out) < 0)
                                return -ENOMEM;
                        r->left += buf_len(&r->out);
                        buf_clear(&r->out);
                        scan_rewind(&r->scan);
                        return 0;
                }
                r->left += key_len(r, v);
                *steps -= COUNT_STEPS;
        }
        return 1;
}

/* ---- sending, as the client reads ---- */

static struct range *range_of(const struct request *q)
{
        return container_of((struct sliced *) q->data, struct range, sliced);
}

/* Begins a part, which is a message of its own: what has been added, and a large key. */
static int begin_part(struct range *r)
{
        cleanup_(buf_fini) struct buf head = {0};
        int e;

        r->left = buf_len(&r->out) + (r->large ? key_len(r, r->large) : 0);
        buf_add_u8(&head, PART);
        buf_add_varint(&head, r->left);
        e = buf_error(&head);
        if (e == 0)
                e = rpc_call_begin(r->q->call, buf_len(&head) + r->left);
        return e < 0 ? e : rpc_call_add(r->q->call, head.data, buf_len(&head));
}

/* Returns 0, -ENOMEM, or -EBADMSG: there is more than was counted. */
static int send_piece(struct range *r)
{
        size_t n = buf_len(&r->out);
        int e = 0;

        if (r->in_parts && r->left == 0)
                e = begin_part(r);
        if (e == 0 && n > r->left)
                e = -EBADMSG;
        if (e == 0) {
                r->left -= n;
                e = rpc_call_add(r->q->call, buf_head(&r->out), n);
        }
        buf_clear(&r->out);
        r->began = true;
        return e;
}

/* Less than a part waits until there is more. */
static bool is_piece(const struct range *r, size_t piece)
{
        return !r->in_parts || r->left > 0 || r->large || buf_len(&r->out) >= piece;
}

/* While too much memory is held, each client still gets a little at a time: there may be many,
 * and some of them read. It is as little as rpc_call_wait_sent() considers sent. */
static int make_more(struct range *r)
{
        bool pressed = rpc_call_is_pressed(r->q->call);
        size_t piece = pressed ? PRESSED : r->in_parts ? STREAM_BYTES : PIECE;
        size_t high = pressed ? PRESSED + 1 : SEND_HIGH;
        int64_t steps = SEND_STEPS;
        int e = 1;

        while (e == 1 && steps > 0 && rpc_call_queued(r->q->call) < high) {
                if (r->in_parts && r->left == 0 && buf_len(&r->out) == 0)
                        add_head(r);
                e = add_keys(r, piece, &steps);
                if (e == 0 || (e == 1 && is_piece(r, piece))) {
                        int sent = send_piece(r);

                        if (sent < 0)
                                return sent;
                }
        }
        return e;
}

/* The keys were read twice, and gave other bytes when they were sent than when these were
 * counted: a defect of ours, which costs this call and nobody else's. */
static void fail_differs(struct range *r)
{
        log_error("A range of revision %" PRId64 " had other bytes when it was sent than when "
                  "they were counted: its call fails.",
                  r->scan.it.upto);
        request_fail(r->q, (struct status){RPC_INTERNAL,
                                           "etcdserver: the range changed while it was sent"});
}

/* The data that it reads is gone. */
static void send_again(struct range *r)
{
        if (r->began)
                request_fail(r->q, status_of(STATE_E_COMPACTED));
        else
                sliced_queue(&r->sliced); /* this begins the range again */
}

static void send_more(struct request *q)
{
        struct range *r = range_of(q);
        int e = sliced_is_stale(&r->sliced) ? -ESTALE : make_more(r);

        if (e == -ESTALE)
                return send_again(r);
        if (e == -EBADMSG || (e == 0 && r->left > 0))
                return fail_differs(r);
        if (e < 0)
                return request_fail(q, status_nomem);
        if (e == 0)
                return request_finish(q);
        if (buf_len(&r->out) == 0)
                buf_fini(&r->out); /* it may wait for a long time */
        rpc_call_charge(q->call, cost(r));
        request_goes_on(q);
}

/* The size of the answer is known, or not needed. */
static void send_first(struct range *r)
{
        struct request *q = r->q;

        sliced_unqueue(&r->sliced);
        q->then = send_more;
        if (!r->in_parts) {
                if (!request_begins(q, r->left))
                        return;
                r->began = true;
                add_head(r);
        }
        send_more(q);
}

/* ---- slices ---- */

static void sliced_fini(struct sliced *s)
{
        struct range *r = container_of(s, struct range, sliced);

        range_fini(r);
        free(r);
}

static void sliced_begin(struct sliced *s)
{
        struct range *r = container_of(s, struct range, sliced);
        struct status st = range_begin(r);

        if (st.code != RPC_OK)
                return request_fail(r->q, st);
        scan_pin(&r->scan, &core_state(r->q->api->core)->kv);
}

/* Runs one slice, which may be the last before the answer. */
static int go_on(struct range *r, int64_t steps)
{
        int e = !scan_is_good(&r->scan) ? -ESTALE : r->in_parts ? 0 : count(r, &steps);

        if (e == 0)
                send_first(r);
        else if (e > 0)
                rpc_call_charge(
                        r->q->call, /* with what will be queued */
                        cost(r) + (rpc_call_is_pressed(r->q->call) ? PRESSED : SEND_HIGH));
        return min_of(e, 0);
}

static int sliced_run(struct sliced *s)
{
        return sliced_is_stale(s) ? -ESTALE
                                  : go_on(container_of(s, struct range, sliced), TURN_STEPS);
}

static const struct sliced_ops range_ops = {
        .begin = sliced_begin, .run = sliced_run, .fini = sliced_fini};

static void answer_in_slices(struct request *q, bool in_parts, int64_t steps)
{
        struct range *r = calloc(1, sizeof(*r));
        struct status st;

        if (!r)
                return request_fail(q, status_nomem);
        r->q = q;
        r->in_parts = in_parts;
        sliced_adopt(&r->sliced, q, &range_ops);
        st = range_begin(r);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        sliced_queue(&r->sliced);
        scan_pin(&r->scan, &core_state(q->api->core)->kv);
        if (go_on(r, steps) < 0)
                request_fail(q, status_nomem);
}

/* ---- methods ---- */

/* Whether the whole answer may be held until it is read. */
static bool is_small(const struct range *r)
{
        size_t n = buf_len(&r->out);

        return n <= PRESSED || n <= rpc_call_spare(r->q->call);
}

static void answer_range(struct request *q)
{
        struct api *a = q->api;
        cleanup_(range_fini) struct range r = {.q = q};
        struct status st = range_begin(&r);
        int64_t steps = TURN_STEPS;
        int e;

        if (st.code != RPC_OK)
                return request_fail(q, st);
        r.out = api_take_packed(a);
        add_head(&r);
        e = add_keys(&r, SMALL_ANSWER, &steps);
        request_spent(q, e == 0 ? (size_t) (TURN_STEPS - steps) : TURN_STEPS, 0);
        if (e < 0)
                return request_fail(q, status_nomem);
        if (e > 0 || !is_small(&r))
                return answer_in_slices(q, false, steps);
        request_reply_bytes(q, buf_head(&r.out), buf_len(&r.out));
        api_give_packed(a, &r.out);
}

/* Like answer_range(), in parts: the first ones carry keys, the last one count and `more`, too.
 */
static void answer_range_stream(struct request *q)
{
        if (!request_has_turn(q, answer_range_stream))
                return;
        request_spent(q, SEND_STEPS, 0);
        answer_in_slices(q, true, TURN_STEPS);
}

static void range_then(struct request *q, void (*answer)(struct request *q))
{
        const Pb__RangeRequest *m = q->msg;
        enum state_outcome o = state_check_range(m);

        q->api->n_ranges++;
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        /* The answer may be old, but not older than this process. */
        if (m->serializable && core_caught_up(q->api->core))
                return answer(q);
        request_read(q, answer);
}

/* A single key is found at once. */
static void answer_some(struct request *q)
{
        const Pb__RangeRequest *m = q->msg;

        if (m->range_end.len == 0 || request_has_turn(q, answer_some))
                answer_range(q);
}

void range(struct request *q)
{
        range_then(q, answer_some);
}

void range_stream(struct request *q)
{
        range_then(q, answer_range_stream);
}
