/* A client and a server of rpc/ with a wire between them that gives bytes in pieces of any
 * size. */
#include "rpc/conn.h"
#include "test.h"

static struct {
        unsigned messages, closed, statuses;
        enum rpc_code code;
        char text[128];
        size_t bytes;
} seen;

static void echo_message(struct rpc_call *call, struct view m)
{
        CHECK_EQ(rpc_call_send(call, m.p, m.len), 0);
}

static void echo_end(struct rpc_call *call)
{
        rpc_call_finish(call, RPC_OK, "");
}

static void echo_close(struct rpc_call *call)
{
        (void) call;
        seen.closed++;
}

static const struct rpc_handler echo = {
        .on_message = echo_message, .on_end = echo_end, .on_close = echo_close};

/* Bytes that are not there: they must not be looked at. */
static void huge_message(struct rpc_call *call, struct view m)
{
        CHECK_EQ(rpc_call_send(call, m.p, (size_t) RPC_MESSAGE_MAX + 1), 0);
        CHECK_EQ(rpc_call_send(call, m.p, m.len), 0);
        rpc_call_finish(call, RPC_OK, "");
}

static const struct rpc_handler huge = {.on_message = huge_message, .on_close = echo_close};

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        if (strcmp(call->path, "/t.T/Echo") == 0)
                call->handler = &echo;
        else if (strcmp(call->path, "/t.T/Huge") == 0)
                call->handler = &huge;
        else if (strcmp(call->path, "/t.T/Fail") == 0)
                rpc_call_finish(call, RPC_OUT_OF_RANGE, "50 % \xc3\xa4 gone");
}

static void got_message(struct rpc_call *call, struct view m)
{
        (void) call;
        seen.messages++;
        seen.bytes += m.len;
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        (void) call;
        seen.statuses++;
        seen.code = code;
        snprintf(seen.text, sizeof(seen.text), "%s", message);
}

static const struct rpc_handler client_handler = {
        .on_message = got_message, .on_status = got_status, .on_close = echo_close};

/* Moves bytes until both sides are silent. */
static void pump(struct rpc_conn *a, struct rpc_conn *b)
{
        for (int quiet = 0; quiet < 2;) {
                struct rpc_conn *from = quiet ? b : a, *to = quiet ? a : b;
                cleanup_(buf_fini) struct buf wire = {0};

                CHECK(rpc_conn_output(from, &wire, 65536) == 0 || buf_len(&wire) == 0);
                if (buf_len(&wire) == 0) {
                        quiet++;
                        continue;
                }
                quiet = 0;
                while (buf_len(&wire) > 0) {
                        size_t n = rnd(1, min_of(buf_len(&wire), (size_t) 3000));

                        CHECK_EQ(rpc_conn_input(to, buf_head(&wire), n), 0);
                        buf_consume(&wire, n);
                }
                /* The other side may have something to say now. */
                if (from == b)
                        quiet = 0;
                struct rpc_conn *t = a;
                a = b;
                b = t;
        }
}

static void connect_both(struct rpc_conn **c, struct rpc_conn **s)
{
        static const struct rpc_limits limits = {
                .message_max = 100000, .calls_max = 100, .too_large = "too large"};

        memset(&seen, 0, sizeof(seen));
        CHECK_EQ(rpc_conn_new_server(s, &limits, accept_call, NULL), 0);
        CHECK_EQ(rpc_conn_new_client(c, "localhost:1", false), 0);
        pump(*c, *s);
        CHECK(rpc_conn_established(*s));
}

TEST(messages_of_any_size_come_back)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL, *s = NULL;
        struct rpc_call *call;
        uint8_t *bytes = calloc(1, 100000);
        size_t total = 0;

        connect_both(&c, &s);
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &call), 0);
        for (int i = 0; i < 40; i++) {
                size_t n = i == 7 ? 100000 : rnd(0, 5000);

                CHECK_EQ(rpc_call_send(call, bytes, n), 0);
                total += n;
                if (rnd(0, 1))
                        pump(c, s);
        }
        rpc_call_end(call);
        pump(c, s);
        CHECK_EQ(seen.messages, 40);
        CHECK_EQ(seen.bytes, total);
        CHECK_EQ(seen.statuses, 1);
        CHECK_EQ(seen.code, RPC_OK);
        CHECK_EQ(seen.closed, 2);
        free(bytes);
}

TEST(errors_have_their_code_and_text)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL, *s = NULL;
        struct rpc_call *call;
        uint8_t *big = calloc(1, 200000);

        connect_both(&c, &s);
        CHECK_EQ(rpc_call_new(c, "/t.T/Fail", false, &client_handler, &seen, &call), 0);
        pump(c, s);
        CHECK_EQ(seen.code, RPC_OUT_OF_RANGE);
        CHECK_STR(seen.text, "50 % \xc3\xa4 gone");
        CHECK_EQ(rpc_call_new(c, "/t.T/Nothing", false, &client_handler, &seen, &call), 0);
        pump(c, s);
        CHECK_EQ(seen.code, RPC_UNIMPLEMENTED);
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &call), 0);
        CHECK_EQ(rpc_call_send(call, big, 200000), 0);
        pump(c, s);
        CHECK_EQ(seen.code, RPC_INVALID_ARGUMENT);
        CHECK_STR(seen.text, "too large");
        CHECK_EQ(rpc_conn_n_calls(c), 0);
        free(big);
}

/* A31: whoever waits is told when the connection ends. */
TEST(a_connection_that_ends_tells_its_calls)
{
        struct rpc_conn *c = NULL, *s = NULL;
        struct rpc_call *call;

        connect_both(&c, &s);
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &call), 0);
        pump(c, s);
        rpc_conn_free(c);
        CHECK_EQ(seen.statuses, 1);
        CHECK_EQ(seen.code, RPC_UNAVAILABLE);
        rpc_conn_free(s);
        CHECK_EQ(seen.closed, 2);
}

TEST(garbage_ends_a_connection_and_nothing_else)
{
        for (int round = 0; round < 200; round++) {
                cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL, *s = NULL;
                uint8_t junk[300];
                int r = 0;

                connect_both(&c, &s);
                for (size_t i = 0; i < sizeof(junk); i++)
                        junk[i] = (uint8_t) rnd(0, 255);
                for (int i = 0; i < 5 && r == 0; i++)
                        r = rpc_conn_input(s, junk, rnd(1, sizeof(junk)));
                CHECK(r == 0 || r == -EPROTO);
        }
}

/* An answer of more than gRPC can frame is an error, not an answer cut to 32 bits of its
 * length. */
TEST(an_answer_that_is_too_large_is_an_error)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL, *s = NULL;
        struct rpc_call *call;

        connect_both(&c, &s);
        CHECK_EQ(rpc_call_new(c, "/t.T/Huge", false, &client_handler, &seen, &call), 0);
        CHECK_EQ(rpc_call_send(call, "x", 1), 0);
        pump(c, s);
        CHECK_EQ(seen.messages, 0);
        CHECK_EQ(seen.code, RPC_RESOURCE_EXHAUSTED);
        CHECK_STR(seen.text,
                  "grpc: trying to send message larger than max (2147483648 vs. 2147483647)");
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &call), 0);
        CHECK_EQ(rpc_call_send(call, "x", (size_t) RPC_MESSAGE_MAX + 1), -EMSGSIZE);
        rpc_call_cancel(call);
        pump(c, s);
}
