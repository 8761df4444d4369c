/* A client and a server of rpc/ with a wire between them that delivers bytes in pieces of any
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
                /* The other side may have something to send now. */
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

TEST(messages_of_any_size_are_answered)
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

/* A31: whoever waits gets an error when the connection ends. */
TEST(a_connection_that_ends_reports_its_calls)
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

static nsec_t timeout_seen;

static void accept_timeout(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        timeout_seen = call->timeout;
}

/* The longest that can be written does not fit into 64 bits of nanoseconds. */
TEST(a_timeout_of_any_length_is_a_timeout)
{
        static const struct {
                const char *text;
                nsec_t ns;
        } cases[] = {{"99999999H", INT64_MAX},
                     {"2562048H", INT64_MAX},
                     {"2562047H", INT64_C(2562047) * 3600 * NSEC_PER_SEC},
                     {"0n", 1},
                     {"99999999M", INT64_C(99999999) * 60 * NSEC_PER_SEC},
                     {"5S", 5 * NSEC_PER_SEC},
                     {"123456789S", 0},
                     {"S", 0},
                     {"1x", 0}};
        static const struct rpc_limits limits = {
                .message_max = 100, .calls_max = 10, .too_large = "x"};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                cleanup_(rpc_conn_freep) struct rpc_conn *server = NULL;
                cleanup_(buf_fini) struct buf b = {0}, h = {0};
                const char *headers[] = {":method",      "POST",         ":path",
                                         "/t",           "content-type", "application/grpc",
                                         "grpc-timeout", cases[i].text};

                CHECK_EQ(rpc_conn_new_server(&server, &limits, accept_timeout, NULL), 0);
                for (size_t k = 0; k < ARRAY_SIZE(headers); k += 2) {
                        buf_add_u8(&h, 0); /* a literal, not indexed */
                        buf_add_bytes(&h, headers[k], strlen(headers[k]));
                        buf_add_bytes(&h, headers[k + 1], strlen(headers[k + 1]));
                }
                buf_add(&b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0", 35);
                buf_add_u8(&b, (uint8_t) buf_len(&h));
                buf_add(&b, "\1\5\0\0\0\1", 6);
                buf_add(&b, h.data, buf_len(&h));
                timeout_seen = -1;
                CHECK_EQ(rpc_conn_input(server, b.data, buf_len(&b)), 0);
                CHECK_EQ(timeout_seen, cases[i].ns);
        }
}

/* A server that compresses, or sends too much: the waiting client gets one error that says
 * why. */
TEST(a_client_gets_an_error_for_an_answer_it_cannot_take)
{
        static const char *const messages[] = {"\1\0\0\0\1x", "\0\x7f\0\0\0"};
        static const size_t lengths[] = {6, 5};
        static const enum rpc_code codes[] = {RPC_UNIMPLEMENTED, RPC_RESOURCE_EXHAUSTED};

        for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
                cleanup_(rpc_conn_freep) struct rpc_conn *client = NULL;
                cleanup_(buf_fini) struct buf b = {0};
                struct rpc_call *call;

                memset(&seen, 0, sizeof(seen));
                CHECK_EQ(rpc_conn_new_client(&client, "x:1", false), 0);
                CHECK_EQ(rpc_call_new(client, "/t", false, &client_handler, NULL, &call), 0);
                CHECK_EQ(rpc_call_send(call, "", 0), 0);
                CHECK_EQ(rpc_conn_output(client, &b, 65536), 0);
                buf_clear(&b);
                buf_add(&b, "\0\0\0\4\0\0\0\0\0", 9);
                /* ":status: 200" is 8 in HPACK's table; grpc-message comes before its time. */
                buf_add(&b, "\0\0\x12\1\4\0\0\0\1\x88\0\xcgrpc-message\2no", 27);
                buf_add(&b, "\0\0", 2);
                buf_add_u8(&b, (uint8_t) lengths[i]);
                buf_add(&b, "\0\0\0\0\0\1", 6);
                buf_add(&b, messages[i], lengths[i]);
                CHECK_EQ(rpc_conn_input(client, b.data, buf_len(&b)), 0);
                CHECK_EQ(seen.statuses, 1u);
                CHECK_EQ(seen.closed, 1u);
                CHECK_EQ(seen.code, codes[i]);
        }
}

/* ---- a client that does not read, and one whose call did not go out ---- */

static struct rpc_call *watching;

static void stop_message(struct rpc_call *call, struct view m)
{
        got_message(call, m);
        rpc_call_hold(call);
}

static void was_sent_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        got_status(call, code, message);
        seen.bytes = rpc_call_was_sent(call);
}

static const struct rpc_handler stopping = {
        .on_message = stop_message, .on_status = got_status, .on_close = echo_close};
static const struct rpc_handler asking = {
        .on_message = got_message, .on_status = was_sent_status, .on_close = echo_close};

/* What it does not take stays with the server, except for a window's worth; other calls of the
 * connection continue; and when it continues, it gets everything. */
TEST(a_client_that_takes_nothing_makes_the_server_wait)
{
        static const struct rpc_limits limits = {
                .message_max = 1 << 20, .calls_max = 100, .too_large = "too large"};
        static const char text[1000];
        struct rpc_conn *client, *server;
        struct rpc_call *other;

        memset(&seen, 0, sizeof(seen));
        CHECK_EQ(rpc_conn_new_client(&client, "t", false), 0);
        CHECK_EQ(rpc_conn_new_server(&server, &limits, accept_call, NULL), 0);
        CHECK_EQ(rpc_call_new(client, "/t.T/Echo", false, &stopping, NULL, &watching), 0);
        for (int i = 0; i < 2000; i++)
                CHECK_EQ(rpc_call_send(watching, text, sizeof(text)), 0);
        pump(client, server);
        CHECK_EQ(seen.messages, 1);
        CHECK(rpc_conn_held(server) > 1000 * 1000);
        CHECK(rpc_conn_held(client) < 400 * 1000);
        CHECK_EQ(rpc_call_new(client, "/t.T/Echo", false, &client_handler, NULL, &other), 0);
        CHECK_EQ(rpc_call_send(other, text, sizeof(text)), 0);
        rpc_call_end(other);
        pump(client, server);
        CHECK_EQ(seen.statuses, 1);
        CHECK_EQ(seen.messages, 2);
        watching->handler = &client_handler;
        rpc_call_release(watching);
        rpc_call_end(watching);
        pump(client, server);
        CHECK_EQ(seen.messages, 2001);
        CHECK_EQ(seen.statuses, 2);
        rpc_conn_free(client);
        rpc_conn_free(server);
}

TEST(a_call_that_did_not_go_out_is_known_for_it)
{
        static const struct rpc_limits few = {
                .message_max = 1 << 20, .calls_max = 1, .too_large = "too large"};
        struct rpc_conn *client, *server;
        struct rpc_call *a, *b;

        for (int out = 0; out < 2; out++) {
                memset(&seen, 0, sizeof(seen));
                seen.bytes = 7;
                CHECK_EQ(rpc_conn_new_client(&client, "t", false), 0);
                CHECK_EQ(rpc_conn_new_server(&server, &few, accept_call, NULL), 0);
                pump(client, server);
                CHECK_EQ(rpc_call_new(client, "/t.T/Echo", false, &asking, NULL, &a), 0);
                CHECK_EQ(rpc_call_send(a, "x", 1), 0);
                if (out)
                        pump(client, server);
                rpc_conn_free(client);
                CHECK_EQ(seen.code, RPC_UNAVAILABLE);
                CHECK_EQ(seen.bytes, out);
                rpc_conn_free(server);
        }
        /* One that the server has no room for waits, and has not gone out either. */
        CHECK_EQ(rpc_conn_new_client(&client, "t", false), 0);
        CHECK_EQ(rpc_conn_new_server(&server, &few, accept_call, NULL), 0);
        pump(client, server);
        CHECK_EQ(rpc_call_new(client, "/t.T/Echo", false, &stopping, NULL, &a), 0);
        CHECK_EQ(rpc_call_new(client, "/t.T/Echo", false, &asking, NULL, &b), 0);
        CHECK_EQ(rpc_call_send(a, "x", 1), 0);
        CHECK_EQ(rpc_call_send(b, "x", 1), 0);
        pump(client, server);
        CHECK(rpc_call_was_sent(a));
        CHECK(!rpc_call_was_sent(b));
        rpc_conn_free(client);
        rpc_conn_free(server);
}

/* A server, or a proxy, that has had enough of a connection says so (RFC 9113, 6.8). */
TEST(a_connection_that_is_leaving_takes_no_call_and_ends_with_the_last_one)
{
        static const uint8_t goaway[] = {0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL, *s = NULL;
        cleanup_(buf_fini) struct buf out = {0};
        struct rpc_call *call, *other;

        connect_both(&c, &s);
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &call), 0);
        CHECK_EQ(rpc_call_send(call, "x", 1), 0);
        pump(c, s);
        CHECK(!rpc_conn_is_leaving(c));
        CHECK_EQ(rpc_conn_input(c, goaway, sizeof(goaway)), 0);
        CHECK(rpc_conn_is_leaving(c));
        CHECK_EQ(rpc_call_new(c, "/t.T/Echo", false, &client_handler, &seen, &other), -EPIPE);
        CHECK_EQ(rpc_call_send(call, "y", 1), 0);
        pump(c, s);
        CHECK_EQ(seen.messages, 2);
        CHECK_EQ(seen.statuses, 0);
        rpc_call_end(call);
        pump(c, s);
        CHECK_EQ(seen.code, RPC_OK);
        CHECK_EQ(rpc_conn_output(c, &out, 65536), -EPIPE);
}
