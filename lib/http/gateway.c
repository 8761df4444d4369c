/* Requests that call gRPC methods: JSON in and JSON out, as grpc-gateway has it. */
#include "http/http_status.h"
#include "http/internal.h"

#define ANSWER_EXPECTED 512 /* most answers are no longer than this as JSON */

int gateway_begin(struct exchange *x, struct http_desk *d, size_t max)
{
        x->desk = d;
        if (!d->reader)
                return json_reader_new(&x->reader, x->method->request, max);
        x->reader = take_ptr(d->reader);
        json_reader_begin(x->reader, x->method->request, max);
        return 0;
}

static void return_reader(struct exchange *x)
{
        struct json_reader *r = x->reader ? take_ptr(x->reader) : NULL;

        if (!r)
                return;
        if (x->desk->reader) {
                json_reader_free(r);
                return;
        }
        json_reader_rest(r);
        x->desk->reader = r;
}

static void return_writer(struct exchange *x)
{
        x->writing = false;
        json_writer_fini(&x->desk->writer);
        x->desk->writer = x->writer;
}

void gateway_refuse(struct exchange *x, enum rpc_code code, const char *why)
{
        x->deaf = x->unread = true;
        rpc_call_finish(x->call, code, why);
}

/* A later message of a stream could not be read. The messages before it are answered first, if
 * the call then ends by itself, as keep-alives do. */
static int refuse_later(struct exchange *x, const char *why)
{
        x->late = strdup(why);
        if (!x->late)
                return -ENOMEM;
        x->deaf = true;
        rpc_call_bring_end(x->call);
        return 0;
}

static bool ends_by_itself(const struct rpc_call *call)
{
        return call->handler && call->handler->on_end;
}

bool gateway_goes_on(const struct exchange *x)
{
        const struct gateway_method *m = x->method;

        return m && (m->waits || (m->server_streams && !ends_by_itself(x->call))) &&
               !rpc_call_is_complete(x->call);
}

/* etcd's gateway reports an unreadable message of a stream as UNKNOWN. */
static int refuse(struct exchange *x, const char *why)
{
        bool streams = x->method->client_streams;

        if (streams && x->got_message && ends_by_itself(x->call))
                return refuse_later(x, why);
        gateway_refuse(x, streams ? RPC_UNKNOWN : RPC_INVALID_ARGUMENT, why);
        return 0;
}

bool gateway_is_over(const struct exchange *x, enum rpc_code *ret_code,
                     const char **ret_message)
{
        if (!rpc_call_is_over(x->call, ret_code, ret_message))
                return false;
        if (*ret_code == RPC_OK && x->late) {
                *ret_code = RPC_UNKNOWN;
                *ret_message = x->late;
        }
        return true;
}

int gateway_input(struct exchange *x, const void *p, size_t n)
{
        struct view text = {p, n}, m;
        enum rpc_code code;
        const char *why;
        int r = 0;

        /* This runs once more after the last message, so that the reader frees that message's
         * memory. */
        while (!x->deaf && !rpc_call_is_over(x->call, &code, &why)) {
                r = json_reader_put(x->reader, &text, &m);
                if (r <= 0)
                        break;
                x->got_message = true;
                r = rpc_call_bring(x->call, m.p, m.len);
                if (r < 0)
                        return r;
                x->deaf = !x->method->client_streams; /* the rest is ignored */
        }
        if (r == -ENOMEM)
                return r;
        if (r < 0 && refuse(x, r == -E2BIG ? x->too_large : json_reader_why(x->reader)) < 0)
                return -ENOMEM;
        if (x->deaf || rpc_call_is_over(x->call, &code, &why)) {
                x->deaf = true;
                return_reader(x);
        }
        rpc_call_half(x->call, n, x->reader ? json_reader_held(x->reader) : 0);
        return 0;
}

int gateway_input_end(struct exchange *x)
{
        if (x->deaf)
                return 0;
        if (json_reader_end(x->reader) < 0 && refuse(x, json_reader_why(x->reader)) < 0)
                return -ENOMEM;
        x->deaf = true;
        return_reader(x);
        /* An empty body is a message with all its defaults. */
        if (!x->unread && !x->got_message && !x->method->client_streams)
                return rpc_call_bring(x->call, "", 0);
        return 0;
}

static bool begin_message(struct exchange *x, struct buf *json)
{
        if (!rpc_call_next(x->call))
                return false;
        if (buf_len(json) == 0)
                buf_expect(json, ANSWER_EXPECTED);
        x->writer = x->desk->writer;
        x->desk->writer = (struct json_writer){0};
        json_writer_begin(&x->writer, x->method->answer);
        x->writing = true;
        if (x->method->server_streams)
                buf_add(json, "{\"result\":", 10);
        return true;
}

static void end_message(struct exchange *x, struct buf *json)
{
        if (json_writer_end(&x->writer, json) < 0)
                x->malformed = true;
        return_writer(x);
        if (x->method->server_streams)
                buf_add(json, "}\n", 2);
}

bool gateway_output(struct exchange *x, struct buf *json, size_t max)
{
        struct view piece;

        if (x->malformed || (!x->writing && !begin_message(x, json)))
                return false;
        piece = rpc_call_piece(x->call);
        piece.len = min_of(piece.len, max);
        if (json_writer_put(&x->writer, piece, json) < 0)
                x->malformed = true;
        rpc_call_taken(x->call, piece.len);
        if (rpc_call_left(x->call) == 0)
                end_message(x, json);
        return piece.len > 0 || !x->writing;
}

static void add_string(struct buf *json, const char *s)
{
        json_append_string(json, view_str(s));
}

void gateway_error(const struct exchange *x, enum rpc_code code, const char *message,
                   struct buf *json)
{
        unsigned status = http_status_of(code);

        /* As in etcd, whose gateway itself answers a request that it cannot parse. */
        if (x->method->server_streams && (x->begun || !x->unread)) {
                buf_printf(json,
                           "{\"error\":{\"grpc_code\":%d,\"http_code\":%u,\"message\":", code,
                           status);
                add_string(json, message);
                buf_printf(json, ",\"http_status\":\"%s\"}}", http_status_text(status));
                return;
        }
        buf_printf(json, "{\"error\":");
        add_string(json, message);
        buf_printf(json, ",\"message\":");
        add_string(json, message);
        buf_printf(json, ",\"code\":%d}", code);
}

void gateway_fini(struct exchange *x)
{
        return_reader(x);
        if (x->writing)
                return_writer(x);
        free(x->late);
}
