/* A client's bytes for a connection of HTTP/1.1, in pieces; and what answers its calls, now or
 * later, in pieces as well. */
#include "http/conn.h"

#include "fuzz.h"

#define MAX ((size_t) 4096) /* of a message */

static struct rpc_call *waiting;
static size_t n_calls, left;

static void on_message(struct rpc_call *call, struct view m)
{
        HOLDS(m.len <= MAX);
        HOLDS(pb_check(&pb__txn_request__descriptor, m) != -ENOMEM);
        if (m.len > 0 && m.p[m.len - 1] & 1) /* what it sent, as an answer: it may be none */
                HOLDS(rpc_call_send(call, m.p, m.len) == 0);
        if (m.len > 1 && m.p[m.len - 2] & 1)
                rpc_call_finish(call, RPC_OK, "");
}

static void on_close(struct rpc_call *call)
{
        n_calls--;
        if (waiting == call)
                waiting = NULL;
}

static const struct rpc_handler handler = {.on_message = on_message, .on_close = on_close};

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        HOLDS(n_calls == 0);
        n_calls++;
        call->handler = &handler;
        call->unary = true;
        waiting = call;
        left = 0;
        if (call->resource)
                http_set_answer(call, 200, http_request_of(call)->query[0] ? "a/b" : NULL);
}

static const struct gateway_method *method_of(const char *path)
{
        static const struct gateway_method unary = {"/t",
                                                    "/t.T/T",
                                                    &pb__txn_request__descriptor,
                                                    &pb__txn_response__descriptor,
                                                    false,
                                                    false,
                                                    false},
                                           stream = {"/s",
                                                     "/t.T/S",
                                                     &pb__watch_request__descriptor,
                                                     &pb__watch_response__descriptor,
                                                     true,
                                                     true,
                                                     false};

        return strcmp(path, "/t") == 0 ? &unary : strcmp(path, "/s") == 0 ? &stream : NULL;
}

static bool has(const char *path)
{
        return strcmp(path, "/r") == 0;
}

/* An answer whose length goes in front, or a part of it, or its end. */
static void answer(struct view step)
{
        uint8_t how = take_u8(&step);

        if (!waiting)
                return;
        if (how < 17)
                return rpc_call_finish(waiting, (enum rpc_code) how, how & 1 ? "\"why\"" : "");
        if (how & 1)
                return (void) !rpc_call_send(waiting, step.p, step.len);
        if (left == 0) {
                left = take_u16(&step);
                HOLDS(rpc_call_begin(waiting, left) == 0);
        }
        step.len = min_of(step.len, left);
        left -= step.len;
        HOLDS(rpc_call_add(waiting, step.p, step.len) == 0);
}

static void run(struct view in)
{
        static const struct rpc_limits limits = {.message_max = MAX, .too_large = "too large"};
        static const struct http_site site = {.method_of = method_of, .has = has};
        struct http_desk desk = {0};
        cleanup_(buf_fini) struct buf out = {0};
        struct http_conn *c;
        struct view step;
        int r = 0;

        waiting = NULL;
        n_calls = 0;
        if (http_conn_new(&c, &limits, &site, &desk, accept_call, NULL) < 0)
                return;
        while (r == 0 && step_next(&in, &step)) {
                uint8_t what = take_u8(&step);

                if (what < 160)
                        r = http_conn_input(c, step.p, step.len);
                else if (what < 200)
                        answer(step);
                else if (what < 208)
                        (void) http_conn_look(c);
                else if (what < 210)
                        (void) http_conn_end(c);
                if (r < 0)
                        break;
                buf_clear(&out);
                r = http_conn_output(c, &out, what < 220 ? 65536 : (size_t) what - 219);
                HOLDS(r == 0 || r == -EPIPE || r == -ECONNABORTED);
                HOLDS(buf_len(&out) < (size_t) 1 << 20);
                HOLDS(rpc_conn_n_calls(http_conn_rpc(c)) <= 1);
                (void) http_conn_is_full(c);
        }
        http_conn_free(c);
        http_desk_fini(&desk);
        HOLDS(n_calls == 0);
}

const struct fuzzer fuzz_http = {.name = "http", .run = run, .steps = true};
