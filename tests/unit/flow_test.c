/* What a server accepts from a client at a time, and keeps for it: no client is refused for
 * being fast, nothing grows without bound, and nothing gets stuck. */
#include "rpc/conn.h"
#include "test.h"

#define ANSWER 300000
#define KB ((size_t) 1024)

static struct {
        struct rpc_account all, host, other;
        struct rpc_call *server_call; /* the last that began */
        unsigned got, hold_after;     /* messages; 0: never */
        size_t bytes;
        unsigned answers, statuses, refused, waited;
        size_t answer_bytes;
        bool large;
        size_t keeps, costs; /* with each message */
} w;

static void answer(struct rpc_call *call)
{
        static uint8_t big[ANSWER];

        CHECK_EQ(rpc_call_send(call, big, sizeof(big)), 0);
        rpc_call_finish(call, RPC_OK, "");
}

static void take(struct rpc_call *call, struct view m)
{
        w.got++;
        w.bytes += m.len;
        rpc_call_cost(call, w.costs);
        if (w.keeps > 0 && !rpc_call_keep(call, w.keeps))
                return rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "too many");
        if (w.hold_after > 0 && w.got % w.hold_after == 0)
                rpc_call_hold(call);
        if (!w.large)
                return;
        if (rpc_call_has_room(call))
                return answer(call);
        w.waited++;
        rpc_call_wait(call);
}

static void end_call(struct rpc_call *call)
{
        if (!w.large)
                rpc_call_finish(call, RPC_OK, "");
}

static void server_close(struct rpc_call *call)
{
        if (w.server_call == call)
                w.server_call = NULL;
}

static const struct rpc_handler server_handler = {
        .on_message = take, .on_end = end_call, .on_room = answer, .on_close = server_close};

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        if (strcmp(call->path, "/t.T/Nothing") == 0)
                return;
        call->handler = &server_handler;
        call->large = w.large;
        w.server_call = call;
}

static void got_answer(struct rpc_call *call, struct view m)
{
        (void) call;
        w.answers++;
        w.answer_bytes += m.len;
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        (void) call;
        (void) message;
        w.statuses++;
        w.refused += code == RPC_RESOURCE_EXHAUSTED;
}

static void client_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler client_handler = {
        .on_message = got_answer, .on_status = got_status, .on_close = client_close};

/* One way, at most @max bytes; returns how many there were. */
static size_t move(struct rpc_conn *from, struct rpc_conn *to, size_t max)
{
        cleanup_(buf_fini) struct buf wire = {0};

        CHECK_EQ(rpc_conn_output(from, &wire, max), 0);
        CHECK_EQ(rpc_conn_input(to, buf_head(&wire), buf_len(&wire)), 0);
        return buf_len(&wire);
}

static size_t most_held;

static void pump(struct rpc_conn *c, struct rpc_conn *s)
{
        size_t n;

        do {
                n = move(c, s, 64 * KB);
                most_held = max_of(most_held, w.all.held);
                n += move(s, c, 64 * KB);
                most_held = max_of(most_held, w.all.held);
        } while (n > 0 || rpc_conn_can_go_on(s));
}

static void begin(struct rpc_conn **c, struct rpc_conn **s, size_t memory_max)
{
        static const struct rpc_limits limits = {.message_max = 1500 * 1024,
                                                 .calls_max = 8192,
                                                 .too_large = "too large",
                                                 .too_many = "too many",
                                                 .account = &w.host};

        memset(&w, 0, sizeof(w));
        w.all.max = w.host.max = memory_max;
        w.host.parent = &w.all;
        most_held = 0;
        CHECK_EQ(rpc_conn_new_server(s, &limits, accept_call, NULL), 0);
        CHECK_EQ(rpc_conn_new_client(c, "localhost:1", false), 0);
}

static void end(struct rpc_conn **c, struct rpc_conn **s)
{
        *c = rpc_conn_free(*c);
        *s = rpc_conn_free(*s);
        CHECK_EQ(w.all.held, 0);
        CHECK_EQ(w.all.calls, 0);
        CHECK_EQ(w.host.held, 0);
        CHECK_EQ(w.host.calls, 0);
}

/* A stream that is held is read no further than its window, and loses nothing. */
TEST(a_call_that_is_held_resumes_where_it_stopped)
{
        struct rpc_conn *c, *s;
        struct rpc_call *call;
        uint8_t m[100] = {0};

        begin(&c, &s, 1 << 30);
        w.hold_after = 64;
        CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &call), 0);
        for (int i = 0; i < 5000; i++)
                CHECK_EQ(rpc_call_send(call, m, sizeof(m)), 0);
        rpc_call_end(call);
        pump(c, s);
        CHECK_EQ(w.got, 64);
        CHECK(w.all.held <
              80 * KB); /* 500 KB were sent; the first window was the default one */
        for (unsigned i = 2; w.got < 5000 && i < 1000; i++) {
                rpc_call_release(w.server_call);
                CHECK(rpc_conn_can_go_on(s));
                pump(c, s);
                CHECK_EQ(w.got, min_of(i * 64, 5000u));
        }
        CHECK_EQ(w.bytes, 5000 * sizeof(m));
        CHECK_EQ(w.statuses, 1);
        CHECK_EQ(w.refused, 0);
        end(&c, &s);
}

/* More large messages at a time than there is room for: one after the other has it. */
TEST(large_messages_come_one_after_the_other)
{
        struct rpc_conn *c, *s;
        uint8_t *big = calloc(1, 1500 * KB);

        begin(&c, &s, 1 << 30);
        for (int i = 0; i < 60; i++) {
                struct rpc_call *call;

                CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &call), 0);
                CHECK_EQ(rpc_call_send(call, big, i % 3 ? 1500 * KB : rnd(1, 40000)), 0);
                rpc_call_end(call);
                if (i == 1) /* some go before our settings are known, some after */
                        pump(c, s);
        }
        pump(c, s);
        CHECK_EQ(w.got, 60);
        CHECK_EQ(w.statuses, 60);
        CHECK_EQ(w.refused, 0);
        CHECK(most_held < 16 << 20); /* 60 MB were sent */
        free(big);
        end(&c, &s);
}

/* All memory is held for others: a large message waits, half of it is not accepted, and small
 * ones pass. Once there is room, it counts as held from the first byte. */
TEST(a_large_message_waits_for_what_others_hold)
{
        const size_t max = 64 << 20;
        struct rpc_call *large, *small;
        struct rpc_conn *c, *s;
        uint8_t *big = calloc(1, 1500 * KB);

        begin(&c, &s, max);
        w.all.held = w.host.held = max;
        CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &large), 0);
        CHECK_EQ(rpc_call_send(large, big, 1500 * KB), 0);
        rpc_call_end(large);
        pump(c, s);
        CHECK_EQ(w.got, 0);
        CHECK(rpc_conn_begs(s));
        CHECK(!rpc_conn_give(s));
        CHECK(w.all.wanted);
        /* the first window was the default one, in a buffer that doubles */
        CHECK(w.all.held < max + 130 * KB);
        CHECK_EQ(rpc_conn_traffic(s).in, 0); /* it is not its fault */
        CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &small), 0);
        CHECK_EQ(rpc_call_send(small, "x", 1), 0);
        rpc_call_end(small);
        pump(c, s);
        CHECK_EQ(w.got, 1);
        w.all.held -= max;
        w.host.held -= max;
        CHECK(rpc_conn_give(s));
        CHECK(!rpc_conn_begs(s));
        CHECK(w.all.held >= 1500 * KB);
        pump(c, s);
        CHECK_EQ(w.got, 2);
        CHECK_EQ(w.refused, 0);
        free(big);
        end(&c, &s);
        CHECK_EQ(w.all.held, 0);
}

/* A client that requests much and reads nothing: what is held for it has a bound, and
 * everything arrives once it reads. */
TEST(large_answers_wait_for_the_reader)
{
        struct rpc_conn *c, *s;

        begin(&c, &s, 1 << 30);
        w.large = true;
        pump(c, s);
        for (int i = 0; i < 200; i++) {
                struct rpc_call *call;

                CHECK_EQ(rpc_call_new(c, "/t.T/Ask", false, &client_handler, NULL, &call), 0);
                CHECK_EQ(rpc_call_send(call, "x", 1), 0);
                rpc_call_end(call);
        }
        while (move(c, s, 64 * KB) > 0)
                ;
        CHECK(w.got < 10);           /* no more calls are even sent */
        CHECK(w.all.held < 2 << 20); /* of 60 MB */
        pump(c, s);
        CHECK_EQ(w.answers, 200);
        CHECK_EQ(w.answer_bytes, (size_t) 200 * ANSWER);
        CHECK_EQ(w.refused, 0);
        CHECK(most_held < 3 << 20);
        end(&c, &s);
}

/* While others hold all that there is, a client that holds little is served as ever. */
TEST(who_holds_little_does_not_notice_who_holds_much)
{
        struct rpc_conn *c, *s;

        begin(&c, &s, 1 << 20);
        w.large = true;
        w.all.held += 8 << 20; /* another client's */
        for (int i = 0; i < 20; i++) {
                struct rpc_call *call;

                CHECK_EQ(rpc_call_new(c, "/t.T/Ask", false, &client_handler, NULL, &call), 0);
                CHECK_EQ(rpc_call_send(call, "x", 1), 0);
                rpc_call_end(call);
        }
        pump(c, s);
        CHECK_EQ(w.answers, 20);
        CHECK_EQ(w.refused, 0);
        w.all.held -= 8 << 20;
        end(&c, &s);
}

/* ---- by hand ---- */

static void frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *p,
                  size_t n)
{
        const uint8_t head[9] = {(uint8_t) (n >> 16),
                                 (uint8_t) (n >> 8),
                                 (uint8_t) n,
                                 type,
                                 flags,
                                 (uint8_t) (stream >> 24),
                                 (uint8_t) (stream >> 16),
                                 (uint8_t) (stream >> 8),
                                 (uint8_t) stream};

        buf_add(b, head, sizeof(head));
        buf_add(b, p, n);
}

static void literal(struct buf *b, uint8_t first, const char *name, const char *value)
{
        size_t n = strlen(value);

        buf_add_u8(b, first);
        buf_add_u8(b, (uint8_t) strlen(name));
        buf_add(b, name, strlen(name));
        if (n < 127) {
                buf_add_u8(b, (uint8_t) n);
        } else { /* RFC 7541, 5.1 */
                buf_add_u8(b, 127);
                buf_add_varint(b, n - 127);
        }
        buf_add(b, value, n);
}

static void request(struct buf *b)
{
        literal(b, 0, ":method", "POST");
        literal(b, 0, ":scheme", "http");
        literal(b, 0, ":path", "/t.T/Take");
        literal(b, 0, ":authority", "x");
        literal(b, 0, "content-type", "application/grpc");
}

static void hello(struct buf *b)
{
        static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

        buf_add(b, magic, sizeof(magic) - 1);
        frame(b, 4, 0, 0, NULL, 0);
}

/* Whether the last frame of the server is a GOAWAY with ENHANCE_YOUR_CALM. */
static bool got_calm(struct rpc_conn *s)
{
        cleanup_(buf_fini) struct buf out = {0};
        const uint8_t *p;
        bool calm = false;

        CHECK_EQ(rpc_conn_output(s, &out, 1 << 20), 0);
        for (p = buf_head(&out); buf_len(&out) >= 9; p = buf_head(&out)) {
                size_t n = (size_t) p[0] << 16 | (size_t) p[1] << 8 | p[2];

                if (p[3] == 7)
                        calm = p[9 + 7] == 0xb;
                buf_consume(&out, 9 + n);
        }
        return calm;
}

static int feed(struct rpc_conn *s, struct buf *b)
{
        int r = rpc_conn_input(s, buf_head(b), buf_len(b));

        buf_clear(b);
        return r;
}

static void begin_by_hand(struct rpc_conn **s, struct buf *b)
{
        struct rpc_conn *c;

        begin(&c, s, 64 << 20);
        rpc_conn_free(c);
        hello(b);
}

TEST(references_to_a_large_header_end_the_connection)
{
        cleanup_(buf_fini) struct buf b = {0}, h = {0};
        uint8_t refs[10000];
        char token[3900];
        struct rpc_conn *s;

        begin_by_hand(&s, &b);
        memset(token, 't', sizeof(token) - 1);
        token[sizeof(token) - 1] = '\0';
        request(&h);
        literal(&h, 0x40, "token", token);
        frame(&b, 1, 4, 1, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(s, &b), 0);
        CHECK(w.server_call);
        /* Some are refused as a request... */
        buf_clear(&h);
        request(&h);
        memset(refs, 0xbe, sizeof(refs));
        buf_add(&h, refs, 6);
        w.server_call = NULL;
        frame(&b, 1, 4, 3, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(s, &b), 0);
        CHECK(!w.server_call);
        CHECK(!got_calm(s));
        /* ... and many are no error. */
        buf_clear(&h);
        request(&h);
        buf_add(&h, refs, sizeof(refs));
        frame(&b, 1, 4, 5, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(s, &b), -EPROTO);
        CHECK(got_calm(s));
        rpc_conn_free(s);
}

TEST(one_token_counts)
{
        static const struct {
                const char *headers[4]; /* names and values */
                const char *token;
        } t[] = {
                {{"authorization", "a", "authorization", "b"}, "a"},
                {{"authorization", "a", "token", "b"}, "b"},
                {{"token", "a", "authorization", "b"}, "a"},
                {{"token", "a", "token", "b"}, "a"},
                {{"token", "", "authorization", "b"}, ""},
        };

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                cleanup_(buf_fini) struct buf b = {0}, h = {0};
                struct rpc_conn *s;

                begin_by_hand(&s, &b);
                request(&h);
                literal(&h, 0, t[i].headers[0], t[i].headers[1]);
                literal(&h, 0, t[i].headers[2], t[i].headers[3]);
                frame(&b, 1, 4, 1, buf_head(&h), buf_len(&h));
                CHECK_EQ(feed(s, &b), 0);
                CHECK(w.server_call);
                CHECK_STR(w.server_call->token, t[i].token);
                rpc_conn_free(s);
        }
}

TEST(frames_that_bring_nothing_end_the_connection)
{
        static const struct {
                uint8_t type;
                uint32_t stream;
                size_t n;
        } kinds[] = {{0, 1, 0}, {8, 0, 4}, {0x60, 0, 4}, {0x60, 7, 0}, {0x0a, 0, 4}, {0, 3, 0}};

        for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
                cleanup_(buf_fini) struct buf b = {0}, h = {0};
                struct rpc_conn *s;
                int r = 0, i;

                begin_by_hand(&s, &b);
                request(&h);
                frame(&b, 1, 4, 1, buf_head(&h), buf_len(&h));
                frame(&b, 1, 4, 3, buf_head(&h), buf_len(&h));
                frame(&b, 3, 0, 3, "\0\0\0\x08", 4); /* that call is over */
                for (i = 0; r == 0 && i < 60000; i++) {
                        frame(&b, kinds[k].type, 0, kinds[k].stream, "\0\0\0\1", kinds[k].n);
                        if (i == 9000) /* some time passes: few enough */
                                rpc_conn_forgive(s);
                        if (i % 100 == 0)
                                r = feed(s, &b);
                }
                CHECK_EQ(r, -EPROTO);
                CHECK(i > 32000 && i < 34000);
                CHECK(got_calm(s));
                rpc_conn_free(s);
        }
}

static void begin_calls(struct rpc_conn **s, uint32_t n)
{
        cleanup_(buf_fini) struct buf b = {0}, h = {0};

        begin_by_hand(s, &b);
        request(&h);
        for (uint32_t i = 0; i < n; i++)
                frame(&b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(*s, &b), 0);
        CHECK_EQ(rpc_conn_n_calls(*s), n);
}

/* A window update for all streams, or a GOAWAY, makes nghttp2 go through all of them: a client
 * with many streams may send few of these, and what follows in the same input is not
 * handled. */
TEST(frames_that_go_through_all_calls_are_few)
{
        static const struct {
                uint8_t type;
                size_t len, calls;
                int most; /* before it is too much */
        } kinds[] = {{4, 6, 8000, 20}, {7, 8, 8000, 20}, {4, 6, 0, 24000}};

        for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
                cleanup_(buf_fini) struct buf b = {0};
                struct rpc_conn *s;
                int r = 0, i;

                begin_calls(&s, (uint32_t) kinds[k].calls);
                rpc_conn_forgive(s);
                for (i = 0; r == 0 && i < 24000; i++) {
                        const uint8_t window[] = {0, 4, 0, 0, 0x10, (uint8_t) i};

                        frame(&b, kinds[k].type, 0, 0,
                              kinds[k].type == 4 ? (const char *) window
                                                 : "\0\0\xff\xfe\0\0\0\0",
                              kinds[k].len);
                        if (i % 8 == 7) {
                                cleanup_(buf_fini) struct buf out = {0};

                                r = feed(s, &b);
                                if (r == 0)
                                        CHECK_EQ(rpc_conn_output(s, &out, 1 << 20), 0);
                        }
                }
                CHECK(kinds[k].calls > 0 ? r == -EPROTO && i > 8 && i <= kinds[k].most
                                         : r == 0);
                rpc_conn_free(s);
        }
}

/* All in one piece: the last of them cost nothing. */
TEST(nothing_is_looked_at_behind_what_was_too_much)
{
        cleanup_(buf_fini) struct buf b = {0}, h = {0};
        struct rpc_conn *s;

        begin_calls(&s, 8000);
        rpc_conn_forgive(s);
        for (int i = 0; i < 20; i++)
                frame(&b, 4, 0, 0, "\0\4\0\0\x10\0", 6);
        request(&h);
        frame(&b, 1, 4, 1 + 2 * 8000, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(s, &b), -EPROTO);
        CHECK_EQ(rpc_conn_n_calls(s), 8000);
        CHECK(got_calm(s));
        rpc_conn_free(s);
}

/* A tall tree of streams costs whoever sends to its leaves: few may depend on others. */
TEST(streams_that_depend_on_others_are_few)
{
        for (int kind = 0; kind < 2; kind++) {
                cleanup_(buf_fini) struct buf b = {0}, h = {0};
                struct rpc_conn *s;
                uint32_t i;
                int r = 0;

                begin_calls(&s, 1);
                for (i = 1; r == 0 && i < 4000; i++) {
                        const uint8_t above[] = {0, 0, (uint8_t) ((2 * i - 1) >> 8),
                                                 (uint8_t) (2 * i - 1), 16};

                        rpc_conn_forgive(s);
                        buf_clear(&h);
                        if (kind == 0)
                                buf_add(&h, above, sizeof(above));
                        request(&h);
                        frame(&b, 1, kind == 0 ? 0x24 : 4, 1 + 2 * i, buf_head(&h),
                              buf_len(&h));
                        if (kind == 1)
                                frame(&b, 2, 0, 1 + 2 * i, above, sizeof(above));
                        r = feed(s, &b);
                }
                CHECK_EQ(r, -EPROTO);
                CHECK(i > 900 && i < 1100);
                CHECK(got_calm(s));
                rpc_conn_free(s);
        }
}

/* A weight is not a dependency: some clients send one with each request. */
TEST(a_weight_is_as_good_as_none)
{
        cleanup_(buf_fini) struct buf b = {0}, h = {0};
        struct rpc_conn *s;

        begin_calls(&s, 1);
        buf_add(&h, "\0\0\0\0\x20", 5);
        request(&h);
        for (uint32_t i = 1; i < 4000; i++)
                frame(&b, 1, 0x24, 1 + 2 * i, buf_head(&h), buf_len(&h));
        CHECK_EQ(feed(s, &b), 0);
        CHECK_EQ(rpc_conn_n_calls(s), 4000);
        rpc_conn_free(s);
}

/* Half messages on more streams than anybody needs: the rest is refused, the first are whole.
 */
TEST(half_messages_have_a_bound)
{
        cleanup_(buf_fini) struct buf b = {0}, h = {0};
        static uint8_t part[16000] = {0, 0, 0x17}; /* of 1.5 MB */
        struct rpc_conn *s;

        begin_by_hand(&s, &b);
        w.all.max = w.host.max = 1 << 20;
        request(&h);
        for (uint32_t i = 0; i < 1000; i++) {
                cleanup_(buf_fini) struct buf out = {0};

                frame(&b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
                frame(&b, 0, 0, 1 + 2 * i, part, sizeof(part));
                CHECK_EQ(feed(s, &b), 0);
                CHECK_EQ(rpc_conn_output(s, &out, 1 << 20), 0);
                CHECK(rpc_conn_held(s) < 5 << 20); /* memory_max is 1 MiB; 16 MB are sent */
        }
        rpc_conn_free(s);
        CHECK_EQ(w.all.held, 0);
}

/* ---- every charge ---- */

#define ALL ((size_t) 16 << 20)
#define HOST (ALL / 2)
#define FRAMES 8000 /* of one kind, that a stranger sends on a connection */

/* What the stranger gets: nothing, as it has to wait, or as nothing is kept; that some calls
 * are refused; or that the connection ends. */
enum told { NOTHING, REFUSED, ENDED };

static void open_call(struct buf *b, uint32_t i)
{
        cleanup_(buf_fini) struct buf h = {0};

        request(&h);
        frame(b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
}

static void a_token(struct buf *h, size_t len)
{
        char token[15000];

        memset(token, 't', len);
        token[len] = '\0';
        literal(h, 0, "token", token);
}

static void call_with_token(struct buf *b, uint32_t i)
{
        cleanup_(buf_fini) struct buf h = {0};

        request(&h);
        a_token(&h, 10000);
        frame(b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
}

static void call_with_late_token(struct buf *b, uint32_t i)
{
        cleanup_(buf_fini) struct buf h = {0};

        open_call(b, i);
        a_token(&h, 10000);
        frame(b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
}

static void late_tokens_of_one_call(struct buf *b, uint32_t i)
{
        cleanup_(buf_fini) struct buf h = {0};

        if (i == 0)
                open_call(b, i);
        a_token(&h, 10000);
        frame(b, 1, 4, 1, buf_head(&h), buf_len(&h));
}

static void half_message(struct buf *b, uint32_t i)
{
        static uint8_t part[16000] = {0, 0, 0x17}; /* of 1.5 MB */

        open_call(b, i);
        frame(b, 0, 0, 1 + 2 * i, part, sizeof(part));
}

static void small_message(struct buf *b, uint32_t i)
{
        open_call(b, i);
        frame(b, 0, 0, 1 + 2 * i, "\0\0\0\0\1x", 6);
}

static void messages_of_one_call(struct buf *b, uint32_t i)
{
        if (i == 0)
                open_call(b, i);
        frame(b, 0, 0, 1, "\0\0\0\0\1x", 6);
}

static void nothing_to_say(struct buf *b, uint32_t i)
{
        if (i == 0)
                open_call(b, i);
        for (int n = 0; n < 4; n++)
                frame(b, 0, 0, 1, NULL, 0);
}

static void ping(struct buf *b, uint32_t i)
{
        (void) i;
        frame(b, 6, 0, 0, "12345678", 8);
}

static void reset_call(struct buf *b, uint32_t i)
{
        cleanup_(buf_fini) struct buf h = {0};

        literal(&h, 0, ":method", "POST");
        literal(&h, 0, ":path", "/t.T/Nothing");
        literal(&h, 0, "content-type", "application/grpc");
        frame(b, 1, 4, 1 + 2 * i, buf_head(&h), buf_len(&h));
        frame(b, 3, 0, 1 + 2 * i, "\0\0\0\x08", 4);
}

static void dependency(struct buf *b, uint32_t i)
{
        const uint8_t above[] = {0, 0, 0, 3, 16};

        frame(b, 2, 0, 5 + 2 * i, above, sizeof(above));
}

/* Bytes that one connection may hold although its address holds too much; buffers double. */
#define EACH (256 * KB)

static const struct charge {
        const char *what;
        void (*sends)(struct buf *b, uint32_t i);
        unsigned conns, frames;
        bool reads, large;   /* its answers; and these are large */
        size_t keeps, costs; /* with each of its messages */
        enum told told;
        bool logged; /* the owner of the connections learns how many calls were refused */
        size_t held, kept, calls; /* at most, in the end */
} charges[] = {
        {"open calls", open_call, 25, FRAMES, true, .told = REFUSED, .logged = true,
         .calls = HOST},
        {"their tokens", call_with_token, 4, 1000, true, .told = REFUSED, .logged = true,
         .calls = HOST},
        {"refusals", open_call, 25, FRAMES, .told = ENDED, .logged = true,
         .calls = HOST / 4 * 5 + 25 * 64 * KB},
        {"later headers", call_with_late_token, 4, 1000, true, .calls = 4000 * 2 * KB},
        {"many of those", late_tokens_of_one_call, 1, 10, true, .told = ENDED, .calls = 2 * KB},
        {"half messages", half_message, 10, 400, true, .told = REFUSED,
         .held = HOST + 10 * EACH, .calls = HOST},
        {"unread answers", small_message, 10, 400, .large = true, .held = HOST + 10 * EACH,
         .calls = HOST},
        {"watches", messages_of_one_call, 1, FRAMES, true, .keeps = 4 * KB, .told = REFUSED,
         .kept = HOST, .calls = 2 * KB},
        {"waiting for a lock", small_message, 4, 40, true, .costs = 256 * KB, .told = REFUSED,
         .logged = true, .calls = HOST + 256 * KB},
        {"answers to calls that are over", reset_call, 25, 900, .told = ENDED, .logged = true,
         .calls = HOST / 4 * 5 + 25 * 64 * KB},
        {"answers to pings", ping, 25, 900, .told = ENDED,
         .calls = HOST / 4 * 5 + 25 * 64 * KB},
        {"empty frames", nothing_to_say, 1, FRAMES, true, .told = ENDED, .calls = 2 * KB},
        {"dependencies", dependency, 1, FRAMES, true, .told = ENDED},
};

/* Goes through what the server sends, and returns how many calls it has ended. It answers none
 * here, so these are refused. */
static unsigned n_refused(struct buf *out)
{
        unsigned n = 0;

        for (const uint8_t *p = buf_head(out); buf_len(out) >= 9; p = buf_head(out)) {
                size_t len = (size_t) p[0] << 16 | (size_t) p[1] << 8 | p[2];

                n += p[3] == 1 && (p[4] & 1); /* HEADERS, END_STREAM */
                buf_consume(out, 9 + len);
        }
        return n;
}

static void stranger(struct rpc_conn *s, const struct charge *ch, unsigned *refused,
                     unsigned *ended)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = 0;

        hello(&b);
        for (uint32_t i = 0; r == 0 && i < ch->frames; i++) {
                cleanup_(buf_fini) struct buf out = {0};

                ch->sends(&b, i);
                /* as its owner does: while nothing is taken from it, nothing is read */
                if (rpc_conn_backlog(s) < 4096)
                        r = feed(s, &b);
                if (r == 0 && ch->reads) {
                        CHECK_EQ(rpc_conn_output(s, &out, 1 << 20), 0);
                        *refused += n_refused(&out);
                }
        }
        if (r < 0)
                CHECK(r == -EPROTO && got_calm(s));
        *ended += r < 0;
}

/* Another address sends a small message and a large one, and gets a large answer. */
static void others_go_on(const struct rpc_limits *limits)
{
        static uint8_t big[20000];
        struct rpc_call *small, *large;
        struct rpc_conn *c, *s;

        w.got = w.answers = w.statuses = w.refused = 0;
        w.keeps = w.costs = 0;
        w.large = false;
        CHECK_EQ(rpc_conn_new_server(&s, limits, accept_call, NULL), 0);
        CHECK_EQ(rpc_conn_new_client(&c, "localhost:1", false), 0);
        CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &small), 0);
        CHECK_EQ(rpc_call_send(small, "x", 1), 0);
        CHECK_EQ(rpc_call_new(c, "/t.T/Take", false, &client_handler, NULL, &large), 0);
        CHECK_EQ(rpc_call_send(large, big, sizeof(big)), 0);
        rpc_call_end(large);
        pump(c, s);
        CHECK_EQ(w.got, 2);
        CHECK_EQ(w.statuses, 1);
        w.large = true;
        CHECK_EQ(rpc_call_send(small, "x", 1), 0);
        rpc_call_end(small);
        pump(c, s);
        CHECK_EQ(w.answers, 1);
        CHECK_EQ(w.statuses, 2);
        CHECK_EQ(w.refused, 0);
        rpc_conn_free(c);
        rpc_conn_free(s);
}

/* Headers behind those that begin a request say nothing, whether they end it or not. */
TEST(later_headers_are_not_looked_at)
{
        for (uint8_t end = 0; end <= 1; end++) {
                cleanup_(buf_fini) struct buf b = {0}, h = {0};
                struct rpc_conn *s;

                begin_by_hand(&s, &b);
                open_call(&b, 0);
                a_token(&h, 10000);
                literal(&h, 0, "authorization", "a");
                literal(&h, 0, ":path", "/t.T/Other");
                literal(&h, 0, "hasleader", "true");
                frame(&b, 1, 4 | end, 1, buf_head(&h), buf_len(&h));
                CHECK_EQ(feed(s, &b), 0);
                CHECK(w.server_call && w.server_call->ended == end);
                CHECK(!w.server_call->token && !w.server_call->want_leader);
                CHECK_STR(w.server_call->path, "/t.T/Take");
                rpc_conn_free(s);
        }
}

/* The table in rpc/conn.h: whatever a stranger sends without end, and whether it reads or not,
 * what is charged to its address has a bound; there it gets an error, or has to wait; and
 * somebody else does not notice. */
TEST(every_charge_has_a_bound_at_which_others_continue)
{
        struct rpc_limits limits = {.message_max = 1500 * 1024,
                                    .calls_max = 8192,
                                    .too_large = "too large",
                                    .too_many = "too many",
                                    .account = &w.host},
                          others = limits;

        others.account = &w.other;
        for (size_t i = 0; i < ARRAY_SIZE(charges); i++) {
                const struct charge *ch = &charges[i];
                unsigned refused = 0, ended = 0;
                struct rpc_conn *s[25];

                memset(&w, 0, sizeof(w));
                w.all = (struct rpc_account){.max = ALL, .kept_max = ALL};
                w.host = w.other =
                        (struct rpc_account){.parent = &w.all, .max = HOST, .kept_max = HOST};
                w.large = ch->large;
                w.keeps = ch->keeps;
                w.costs = ch->costs;
                for (unsigned k = 0; k < ch->conns; k++) {
                        CHECK_EQ(rpc_conn_new_server(&s[k], &limits, accept_call, NULL), 0);
                        stranger(s[k], ch, &refused, &ended);
                }
                CHECK(w.host.held <= max_of(ch->held, KB));
                CHECK(w.host.kept <= ch->kept);
                CHECK(w.host.calls <= ch->calls);
                CHECK_EQ(refused > 0, ch->told == REFUSED);
                CHECK_EQ(ended > 0, ch->told == ENDED);
                CHECK_EQ(w.host.n_refused > 0, ch->logged);
                others_go_on(&others);
                for (unsigned k = 0; k < ch->conns; k++)
                        rpc_conn_free(s[k]);
                CHECK_EQ(w.all.held, 0);
                CHECK_EQ(w.all.kept, 0);
                CHECK_EQ(w.all.calls, 0);
        }
}
