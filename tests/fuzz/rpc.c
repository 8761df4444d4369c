/*
 * Whole sessions over HTTP/2 against lib/rpc, as server and as client. Each step is a frame of
 * the peer's - good, or bad in one respect - or something that the owner of the connection
 * does: so the search begins where a good session is, instead of at its first byte.
 */
#include <stdio.h>

#include "fuzz.h"
#include "rpc/conn.h"

#define MESSAGE_MAX 4096
#define SEEN_MAX 64
#define OUTPUT_MAX (64 * 1024)

enum frame {
        DATA,
        HEADERS,
        PRIORITY,
        RST_STREAM,
        SETTINGS,
        PUSH_PROMISE,
        PING,
        GOAWAY,
        WINDOW_UPDATE,
        CONTINUATION
};

#define END_STREAM 0x1
#define ACK 0x1
#define END_HEADERS 0x4
#define PADDED 0x8
#define WITH_PRIORITY 0x20

struct session {
        struct rpc_conn *conn;
        bool server, dead;
        struct buf bytes; /* of the peer, not yet read by us */
        struct buf out;
        uint32_t last;  /* the last stream begun */
        size_t cut;     /* bytes go in pieces of so many; 0: all at once */
        size_t room;    /* so much is taken of what we say, a step */
        uint64_t calls; /* with a handler: begun, and closed */
        uint64_t closed;
        uint64_t answered; /* client: of a status, or of nothing since it canceled */
        struct rpc_call *open[SEEN_MAX];
        size_t n_open;
        size_t copies; /* written, of one step: a flood has an end */
};

static struct session *S; /* for the handlers; one session at a time */

/* ---- what the peer sends ---- */

static void frame(struct buf *b, enum frame type, uint8_t flags, uint32_t stream, const void *p,
                  size_t n)
{
        const uint8_t h[9] = {(uint8_t) (n >> 16),
                              (uint8_t) (n >> 8),
                              (uint8_t) n,
                              (uint8_t) type,
                              flags,
                              (uint8_t) (stream >> 24),
                              (uint8_t) (stream >> 16),
                              (uint8_t) (stream >> 8),
                              (uint8_t) stream};

        buf_add(b, h, sizeof(h));
        if (n > 0)
                buf_add(b, p, n);
}

static void add_be32(struct buf *b, uint32_t v)
{
        for (int i = 0; i < 4; i++)
                buf_add_u8(b, (uint8_t) (v >> (24 - 8 * i)));
}

/* A stream near the last one, or any. */
static uint32_t some_stream(struct view *step)
{
        uint8_t b = take_u8(step);

        if (b < 128)
                return S->last - min_of(S->last, 2 * (uint32_t) (b & 15));
        return b < 192 ? b & 31 : (uint32_t) take_number(step) & 0x7fffffff;
}

/* HPACK (RFC 7541), without Huffman's code. */
static void hpack_int(struct buf *b, uint8_t first, unsigned prefix, uint64_t v)
{
        uint8_t most = (uint8_t) ((1 << prefix) - 1);

        if (v < most)
                return buf_add_u8(b, (uint8_t) (first | v));
        buf_add_u8(b, first | most);
        for (v -= most; v >= 128; v /= 128)
                buf_add_u8(b, (uint8_t) (v % 128 | 128));
        buf_add_u8(b, (uint8_t) v);
}

static void hpack(struct buf *b, uint8_t how, const char *name, const void *value, size_t len)
{
        static const uint8_t forms[] = {0x00, 0x40, 0x10, 0x40};

        hpack_int(b, forms[how & 3], forms[how & 3] == 0x40 ? 6 : 4, 0);
        hpack_int(b, 0, 7, strlen(name));
        buf_add(b, name, strlen(name));
        hpack_int(b, 0, 7, len);
        buf_add(b, value, len);
}

static void hpack_text(struct buf *b, const char *name, const char *value)
{
        hpack(b, 1, name, value, strlen(value));
}

static const struct {
        const char *name, *value; /* NULL: from the input */
} headers[] = {
        {":method", "POST"},
        {":method", "GET"},
        {":scheme", "http"},
        {":path", "/etcdserverpb.KV/Range"},
        {":path", "/none"},
        {":path", NULL},
        {":authority", "x"},
        {"content-type", "application/grpc"},
        {"content-type", "application/grpc+proto"},
        {"content-type", "text/html"},
        {"te", "trailers"},
        {"grpc-timeout", "5S"},
        {"grpc-timeout", "99999999H"},
        {"grpc-timeout", NULL},
        {"grpc-encoding", "gzip"},
        {"token", "abc"},
        {"token", NULL},
        {"authorization", NULL},
        {"hasleader", "true"},
        {"hasleader", "no"},
        {":status", "200"},
        {":status", "503"},
        {":status", "100"},
        {"grpc-status", "0"},
        {"grpc-status", "14"},
        {"grpc-status", NULL},
        {"grpc-message", "no%20luck"},
        {"grpc-message", "%zz%4"},
        {"grpc-message", NULL},
        {"Upper", "case"},
        {"", "nameless"},
        {"x", NULL},
        {"content-length", "5"},
        {"connection", "close"},
        {"tenure-core", "000000000000002a 0000000000000007"},
        {"tenure-core", NULL},
};

/* Any headers, one byte for each. */
static void some_headers(struct buf *b, struct view *step)
{
        while (step->len > 0) {
                uint8_t which = take_u8(step), how = take_u8(step);
                struct view own = {NULL, 0};
                size_t n;

                if (which >= 240) { /* of the tables */
                        hpack_int(b, which < 252 ? 0x80 : 0x20, which < 252 ? 7 : 5,
                                  (uint64_t) take_number(step) & 0xffffff);
                        continue;
                }
                n = which % ARRAY_SIZE(headers);
                if (!headers[n].value) {
                        (void) !view_take(step, min_of((size_t) (how >> 2), step->len), &own);
                        hpack(b, how, headers[n].name, own.len > 0 ? own.p : (uint8_t *) "",
                              own.len);
                } else {
                        hpack(b, how, headers[n].name, headers[n].value,
                              strlen(headers[n].value));
                }
        }
}

/* A block of headers, whole or in pieces. */
static void send_headers(const struct buf *block, uint32_t stream, uint8_t flags, size_t first)
{
        size_t n = buf_len(block), at = first == 0 ? n : min_of(first, n);

        frame(&S->bytes, HEADERS, (uint8_t) (flags | (at == n ? END_HEADERS : 0)), stream,
              block->data, at);
        while (at < n) {
                size_t k = min_of(n - at, first);

                frame(&S->bytes, CONTINUATION, at + k == n ? END_HEADERS : 0, stream,
                      block->data + at, k);
                at += k;
        }
}

/* A good request, or a good answer, but for what @how changes. */
static void send_good(struct view *step)
{
        uint8_t how = take_u8(step);
        uint8_t end = how & 1 ? END_STREAM : 0;
        cleanup_(buf_fini) struct buf block = {0};
        uint32_t stream;

        if (S->server) {
                static const char *const paths[] = {"/a", "/b", "/unknown", "/refused"};

                stream = S->last += 2;
                hpack_text(&block, ":method", how & 2 ? "PUT" : "POST");
                hpack_text(&block, ":scheme", "http");
                hpack_text(&block, ":path", paths[how >> 6]);
                hpack_text(&block, ":authority", "http://x:1");
                hpack_text(&block, "content-type",
                           how & 4 ? "application/json" : "application/grpc");
        } else {
                stream = some_stream(step);
                if ((how & 2) == 0)
                        hpack_text(&block, ":status", "200");
                hpack_text(&block, "content-type", "application/grpc");
                if (how & 1) {
                        hpack_text(&block, "grpc-status", how & 4 ? "7" : "0");
                        hpack_text(&block, "grpc-message", how & 4 ? "not%20you" : "");
                }
        }
        if (how & 8)
                some_headers(&block, step);
        send_headers(&block, stream, end, how & 16 ? 7 : 0);
}

/* A message, framed as gRPC does, with a length that is its own or is not. */
static void send_message(struct view *step)
{
        uint32_t stream = some_stream(step);
        uint8_t how = take_u8(step);
        size_t n = step->len, times = 1, len;
        cleanup_(buf_fini) struct buf b = {0};

        if (how & 2)
                times = 1 + take_u8(step);
        n = step->len;
        len = n * times;
        if (how & 4)
                len = (size_t) take_number(step) & 0xffffffff;
        buf_add_u8(&b, how >> 6 == 3);
        add_be32(&b, (uint32_t) len);
        for (; times > 0; times--)
                buf_add(&b, step->p, step->len);
        if (how & 8) { /* one byte a frame */
                for (size_t i = 0; i < min_of(buf_len(&b), (size_t) 64); i++)
                        frame(&S->bytes, DATA, 0, stream, b.data + i, 1);
                return;
        }
        for (size_t at = 0; at < buf_len(&b); at += 16384) {
                size_t k = min_of(buf_len(&b) - at, (size_t) 16384);

                frame(&S->bytes, DATA, at + k == buf_len(&b) && how & 1 ? END_STREAM : 0,
                      stream, b.data + at, k);
        }
}

/* Any frame, with the rest of the step in it. */
static void send_any(enum frame type, struct view *step)
{
        uint8_t flags = take_u8(step);
        uint32_t stream = some_stream(step);
        cleanup_(buf_fini) struct buf b = {0};

        switch (type) {
        case SETTINGS:
                while (step->len > 0) {
                        buf_add_u8(&b, 0);
                        buf_add_u8(&b, take_u8(step) & 15);
                        add_be32(&b, (uint32_t) take_number(step));
                }
                stream = flags & 0x80 ? stream : 0;
                break;
        case HEADERS:
                some_headers(&b, step);
                return send_headers(&b, stream, flags & (END_STREAM | PADDED | WITH_PRIORITY),
                                    flags & 0x10 ? 3 : 0);
        case RST_STREAM:
        case WINDOW_UPDATE:
                add_be32(&b, (uint32_t) take_number(step));
                break;
        case PRIORITY:
                add_be32(&b, some_stream(step));
                buf_add_u8(&b, take_u8(step));
                break;
        case PING:
                buf_add_u64(&b, 0);
                stream = flags & 0x80 ? stream : 0;
                break;
        case GOAWAY:
                add_be32(&b, some_stream(step));
                add_be32(&b, take_u8(step));
                stream = flags & 0x80 ? stream : 0;
                break;
        default:
                break;
        }
        buf_add(&b, step->p, step->len);
        frame(&S->bytes, type, flags, stream, b.data, buf_len(&b));
}

/* ---- what we do ---- */

static void cancel(struct rpc_call *call)
{
        S->answered++;
        rpc_call_cancel(call);
}

static void on_message(struct rpc_call *call, struct view m)
{
        static uint8_t large[20000];
        uint8_t what = m.len > 0 ? m.p[0] : 0;

        HOLDS(m.len <= MESSAGE_MAX || !S->server);
        HOLDS(call->conn == S->conn);
        switch (what & 7) {
        case 1:
                if (S->server)
                        rpc_call_finish(call, RPC_OK, "");
                else
                        rpc_call_end(call);
                break;
        case 2:
                if (S->server)
                        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "no \n % \x80 luck");
                else
                        cancel(call);
                break;
        case 3:
                (void) !rpc_call_send(call, large, sizeof(large));
                break;
        case 4:
                break;
        default:
                (void) !rpc_call_send(call, m.p, m.len);
        }
}

static void on_end(struct rpc_call *call)
{
        if (S->server)
                rpc_call_finish(call, RPC_OK, "all is said");
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        HOLDS(!S->server && call->userdata == S);
        S->answered++;
        HOLDS(code <= RPC_UNAUTHENTICATED && strlen(message) < 1 << 20);
}

static void on_close(struct rpc_call *call)
{
        HOLDS(call->userdata == S); /* once */
        call->userdata = NULL;
        S->closed++;
        HOLDS(S->server || S->answered == S->closed);
        for (size_t i = 0; i < S->n_open; i++)
                if (S->open[i] == call)
                        S->open[i] = S->open[--S->n_open];
}

static const struct rpc_handler handler = {.on_message = on_message,
                                           .on_end = on_end,
                                           .on_status = on_status,
                                           .on_close = on_close};

static void note_open(struct rpc_call *call)
{
        S->calls++;
        if (S->n_open < SEEN_MAX)
                S->open[S->n_open++] = call;
}

static void accept_call(struct rpc_call *call, void *userdata)
{
        HOLDS(userdata == S && call->path);
        if (strcmp(call->path, "/unknown") == 0)
                return;
        if (strcmp(call->path, "/refused") == 0)
                return rpc_call_finish(call, RPC_UNAUTHENTICATED, call->token);
        call->handler = &handler;
        call->userdata = S;
        call->unary = strcmp(call->path, "/b") == 0;
        note_open(call);
}

static void end_seen(struct rpc_call *call, void *arg)
{
        (void) arg;
        if (call->seen && S->server)
                rpc_call_finish(call, RPC_DEADLINE_EXCEEDED, "late");
        call->seen = true;
}

static void act(struct view *step)
{
        uint8_t what = take_u8(step), which = take_u8(step);
        struct rpc_call *call = S->n_open > 0 ? S->open[which % S->n_open] : NULL;

        switch (what % 8) {
        case 0:
                if (!S->server && rpc_call_new(S->conn, "/etcdserverpb.Watch/Watch", which & 1,
                                               &handler, S, &call) == 0) {
                        note_open(call);
                        S->last = (uint32_t) (2 * S->calls - 1);
                } else if (call && S->server) {
                        rpc_call_finish(call, RPC_ABORTED, "just so");
                }
                break;
        case 1:
                if (call)
                        (void) !rpc_call_send(call, step->p, step->len);
                break;
        case 2:
                if (call && !S->server)
                        rpc_call_end(call);
                break;
        case 3:
                if (call && !S->server)
                        cancel(call);
                else
                        rpc_conn_each_call(S->conn, end_seen, NULL);
                break;
        case 4:
                (void) !rpc_conn_ping(S->conn);
                break;
        case 6:
                S->cut = which;
                break;
        case 7:
                S->room = (size_t) which * 256;
        }
}

/* ---- a session ---- */

static void pump(void)
{
        size_t n = buf_len(&S->bytes);

        for (size_t at = 0; at < n && !S->dead;) {
                size_t k = S->cut > 0 ? min_of(S->cut, n - at) : n - at;

                S->dead = rpc_conn_input(S->conn, S->bytes.data + at, k) < 0;
                at += k;
        }
        buf_clear(&S->bytes);
        if (S->room > 0 || S->dead) {
                int r = rpc_conn_output(S->conn, &S->out, S->dead ? OUTPUT_MAX : S->room);

                HOLDS(r == 0 || r == -EPIPE);
                S->dead = S->dead || r < 0;
        }
        buf_clear(&S->out);
}

static void run_step(struct view step)
{
        uint8_t op = take_u8(&step), times;

        switch (op % 20) {
        case 0:
        case 1:
        case 2:
                send_good(&step);
                break;
        case 3:
        case 4:
                send_message(&step);
                break;
        case 5:
        case 6:
                act(&step);
                break;
        case 17: /* a flood of something */
                times = take_u8(&step);
                op = take_u8(&step);
                for (; times > 0 && buf_len(&S->bytes) < 1 << 18; times--) {
                        struct view same = step;

                        send_any((enum frame)(op % 10), &same);
                }
                break;
        case 18: /* no frame at all */
                buf_add(&S->bytes, step.p, step.len);
                break;
        case 19: /* of no known type */
                send_any((enum frame) take_u8(&step), &step);
                break;
        default:
                send_any((enum frame)(op % 20 - 7), &step);
        }
}

static void run(struct view in, bool server)
{
        static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        static const struct rpc_limits limits = {
                .message_max = MESSAGE_MAX, .calls_max = 10, .too_large = "too large"};
        struct session s = {.server = server, .room = OUTPUT_MAX, .last = server ? 0 : 1};
        struct view step;

        S = &s;
        if (server)
                s.last = UINT32_MAX; /* the first request is stream 1 */
        if (server ? rpc_conn_new_server(&s.conn, &limits, accept_call, &s) < 0
                   : rpc_conn_new_client(&s.conn, "fuzz:1", false) < 0)
                abort();
        if (server)
                buf_add(&s.bytes, preface, sizeof(preface) - 1);
        frame(&s.bytes, SETTINGS, 0, 0, NULL, 0);
        while (!s.dead && step_next(&in, &step)) {
                run_step(step);
                pump();
        }
        HOLDS(s.closed + s.n_open == s.calls || s.calls > SEEN_MAX);
        if (s.n_open > 0)
                (void) rpc_call_queued(s.open[0]);
        rpc_conn_free(s.conn);
        HOLDS(s.closed == s.calls);
        buf_fini(&s.bytes);
        buf_fini(&s.out);
}

static void run_server(struct view in)
{
        run(in, true);
}

static void run_client(struct view in)
{
        run(in, false);
}

const struct fuzzer fuzz_rpc_server = {.name = "rpc-server", .run = run_server, .steps = true};
const struct fuzzer fuzz_rpc_client = {.name = "rpc-client", .run = run_client, .steps = true};
