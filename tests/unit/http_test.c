/* HTTP/1.1 in pieces of any size, and the answers to it. */
#include "http/accept.h"
#include "http/conn.h"
#include "http/framing.h"
#include "http/host.h"
#include "test.h"
#include "wire/pb.h"

static struct {
        unsigned closed;
        struct rpc_call *waits; /* one that is not answered yet */
        char token[32];
        nsec_t timeout;
        bool want_leader, half;
        char query[64], accept[64];
        size_t large;   /* bytes that "/large" has */
        unsigned pages; /* answers of "/page" */
        bool ended;     /* the request of `waits` */
} seen;

static void on_close(struct rpc_call *call)
{
        seen.closed++;
        if (seen.waits == call)
                seen.waits = NULL;
}

static void note_half(struct rpc_call *call, void *arg)
{
        (void) arg;
        seen.half = call->half;
}

/* A put is answered with a range of its key and value, in a header of its own. */
static void on_put(struct rpc_call *call, struct view m)
{
        Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;
        Pb__ResponseHeader h = PB__RESPONSE_HEADER__INIT;
        Pb__KeyValue kv = PB__KEY_VALUE__INIT, *kvs[] = {&kv};
        cleanup_(buf_fini) struct buf b = {0};
        Pb__PutRequest *q;

        CHECK_EQ(pb_unpack(&pb__put_request__descriptor, m, &q), 0);
        h.cluster_id = 1ULL << 63;
        p.header = &h;
        kv.key = q->key;
        kv.value = q->value;
        p.kvs = kvs;
        p.n_kvs = 1;
        pb_append(&b, &p.base);
        CHECK_EQ(rpc_call_send(call, b.data, buf_len(&b)), 0);
        pb_free(q);
}

static void on_put_end(struct rpc_call *call)
{
        rpc_call_finish(call, RPC_OK, "");
}

/* A stream: each message is answered, until one has no key. */
static void on_stream(struct rpc_call *call, struct view m)
{
        if (m.len == 0)
                return rpc_call_finish(call, RPC_OUT_OF_RANGE, "no \"key\"");
        on_put(call, m);
}

static const struct rpc_handler put = {
        .on_message = on_put, .on_end = on_put_end, .on_close = on_close};
static const struct rpc_handler stream = {
        .on_message = on_stream, .on_end = on_put_end, .on_close = on_close};
/* A stream that answers its one message later, as keep-alives are. */
static void on_late(struct rpc_call *call, struct view m unused_)
{
        seen.waits = call;
}

static void on_late_end(struct rpc_call *call unused_)
{
        seen.ended = true;
}

static void answer_late(void)
{
        const uint8_t asked[] = "\n\1a\22\1b"; /* a put of a key and a value */

        CHECK(seen.waits && seen.ended);
        on_put(seen.waits, (struct view){asked, sizeof(asked) - 1});
        rpc_call_finish(seen.waits, RPC_OK, "");
}

static const struct rpc_handler late = {
        .on_message = on_late, .on_end = on_late_end, .on_close = on_close};
static const struct rpc_handler waiting = {.on_close = on_close};

static void send_more(struct rpc_call *call)
{
        char bytes[4096];

        memset(bytes, 'x', sizeof(bytes));
        CHECK_EQ(rpc_call_add(call, bytes, min_of(sizeof(bytes), seen.large)), 0);
        seen.large -= min_of(sizeof(bytes), seen.large);
        if (seen.large > 0)
                return rpc_call_wait_sent(call);
        rpc_call_finish(call, RPC_OK, "");
}

static const struct rpc_handler large = {.on_room = send_more, .on_close = on_close};

static void accept_resource(struct rpc_call *call)
{
        const struct http_request *r = http_request_of(call);

        snprintf(seen.query, sizeof(seen.query), "%s", r->query);
        snprintf(seen.accept, sizeof(seen.accept), "%s", r->accept);
        if (strcmp(r->path, "/wait") == 0) {
                call->handler = &waiting;
                seen.waits = call;
        } else if (strcmp(r->path, "/large") == 0) {
                call->handler = &large;
                http_set_answer(call, 200, "text/plain");
                CHECK_EQ(rpc_call_begin(call, seen.large), 0);
                send_more(call);
        } else if (strcmp(r->path, "/page") == 0 || strcmp(r->path, "/whole") == 0) {
                char page[300000];
                size_t n = strcmp(r->path, "/page") == 0 ? 30000 : sizeof(page);

                memset(page, 'x', sizeof(page));
                seen.pages++;
                call->handler = &waiting;
                http_set_answer(call, 200, "text/plain");
                CHECK_EQ(rpc_call_send(call, page, n), 0);
                rpc_call_finish(call, RPC_OK, "");
        } else if (strcmp(r->path, "/cut") == 0) {
                static const char half[100000];

                call->handler = &waiting;
                http_set_answer(call, 200, "text/plain");
                CHECK_EQ(rpc_call_begin(call, 2 * sizeof(half)), 0);
                CHECK_EQ(rpc_call_add(call, half, sizeof(half)), 0);
                rpc_call_finish(call, RPC_UNAVAILABLE, "gone");
        } else if (strcmp(r->path, "/ill") == 0) {
                call->handler = &waiting;
                http_set_answer(call, 503, "text/plain");
                http_add_header(call, "X-Ill: yes");
                CHECK_EQ(rpc_call_send(call, "ill", 3), 0);
                rpc_call_finish(call, RPC_OK, "");
        }
}

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        snprintf(seen.token, sizeof(seen.token), "%s", call->token ? call->token : "");
        seen.timeout = call->timeout;
        seen.want_leader = call->want_leader;
        if (call->resource)
                return accept_resource(call);
        if (strcmp(call->path, "/t.T/Put") == 0)
                call->handler = &put;
        else if (strcmp(call->path, "/t.T/Stream") == 0)
                call->handler = &stream;
        else if (strcmp(call->path, "/t.T/Late") == 0)
                call->handler = &late;
        else if (strcmp(call->path, "/t.T/Lock") == 0)
                call->handler = &waiting;
        else if (strcmp(call->path, "/t.T/Fail") == 0)
                rpc_call_finish(call, RPC_NOT_FOUND, "not \"here\"");
}

static const struct gateway_method *method_of(const char *path)
{
        static const struct gateway_method methods[] = {
                {"/v3/put", "/t.T/Put", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, false, false, false},
                {"/v3/stream", "/t.T/Stream", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, true, true, false},
                {"/v3/watch", "/t.T/Lock", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, true, true, false},
                {"/v3/refused", "/t.T/Fail", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, true, true, false},
                {"/v3/late", "/t.T/Late", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, true, true, false},
                {"/v3/fail", "/t.T/Fail", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, false, false, false},
                {"/v3/lock", "/t.T/Lock", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, false, false, true},
                {"/v3/none", "/t.T/None", &pb__put_request__descriptor,
                 &pb__range_response__descriptor, false, false, false},
        };

        for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
                if (strcmp(path, methods[i].path) == 0)
                        return &methods[i];
        return NULL;
}

static bool has(const char *path)
{
        return strcmp(path, "/ill") == 0;
}

static struct http_site site = {.method_of = method_of, .has = has};
static struct http_desk desk; /* all connections' */
static struct rpc_limits limits = {.message_max = 1024, .too_large = "too large"};

static struct http_conn *begin_within(const struct rpc_limits *l)
{
        struct http_conn *c;

        memset(&seen, 0, sizeof(seen));
        CHECK_EQ(http_conn_new(&c, l, &site, &desk, accept_call, NULL), 0);
        return c;
}

static struct http_conn *begin(void)
{
        return begin_within(&limits);
}

/* Takes all that there is to send; returns whether it may go on. */
static bool drain(struct http_conn *c, struct buf *out, size_t max)
{
        for (;;) {
                cleanup_(buf_fini) struct buf piece = {0};
                int r = http_conn_output(c, &piece, max);

                CHECK(r == 0 || r == -EPIPE);
                buf_add(out, buf_head(&piece), buf_len(&piece));
                if (r < 0)
                        return false;
                if (buf_len(&piece) == 0 && !http_conn_can_go_on(c))
                        return true;
        }
}

static const char *text_of(struct buf *b)
{
        buf_add_u8(b, 0);
        CHECK_EQ(buf_error(b), 0);
        return (const char *) buf_head(b);
}

/* What @in is answered with, however it is cut; @ends: the connection does, too. */
static void talk(const char *in, const char *answer, bool ends)
{
        size_t len = strlen(in);

        for (size_t cut = 1; cut <= len; cut++) {
                cleanup_(http_conn_freep) struct http_conn *c = begin();
                cleanup_(buf_fini) struct buf out = {0};
                bool goes_on = true;

                for (size_t at = 0; at < len && goes_on; at += cut) {
                        CHECK_EQ(http_conn_input(c, in + at, min_of(cut, len - at)), 0);
                        goes_on = drain(c, &out, cut == 1 ? 1 : 65536);
                }
                CHECK_STR(text_of(&out), answer);
                CHECK_EQ(goes_on, !ends);
        }
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path, body, length) \
        "POST " path " HTTP/1.1\r\nHost: x\r\nContent-Length: " length "\r\n\r\n" body
#define CHUNKED(path) "POST " path " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
#define ILL                                                                              \
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nX-Ill: yes\r\n" \
        "Content-Length: 3\r\n"

/* Whether the head is plain, which is the same byte by byte and in one piece. */
static bool is_judged_plain(const char *text, size_t n)
{
        struct head whole = {0}, pieces = {0};
        bool good = true;

        for (size_t at = 0; good && at < n; at++)
                good = head_is_plain(&pieces, text + at, 1);
        CHECK_EQ(head_is_plain(&whole, text, n), good);
        return good;
}

/* Fields are passed over in one go where they come in one. */
TEST(a_head_is_judged_the_same_in_pieces)
{
        static const char of[] = "ab: \t\x01\r\n\r\n";
        unsigned plain = 0;

        for (int i = 0; i < 20000; i++) {
                char text[64] = "GET / HTTP/1.1\r\n";
                size_t len = strlen(text), n = len + rnd(1, 20);

                for (; len < n; len++)
                        text[len] = of[rnd(0, sizeof(of) - 2)];
                plain += is_judged_plain(text, n);
        }
        CHECK(plain > 500 && plain < 19500);
}

/* Its parts, which are passed over in one go, are long and short. */
TEST(a_request_line_is_judged_the_same_in_pieces)
{
        static const char of[] = "abcdefghij/ \t\x01\x7f";
        unsigned plain = 0;

        for (int i = 0; i < 20000; i++) {
                char text[64] = "GET /";
                size_t len = strlen(text), n = len + rnd(0, 24);
                bool expected, good;

                for (; len < n; len++)
                        text[len] = of[rnd(0, rnd(0, 3) ? 10 : sizeof(of) - 2)];
                strcpy(text + len, rnd(0, 9) ? " HTTP/1.1\r\n" : " HTTq/1.1\r\n");
                n = strlen(text);
                expected = !strpbrk(text, "\t\x01\x7fq") && !strstr(text, "  ");
                good = is_judged_plain(text, n);
                CHECK_EQ(good, expected);
                plain += good;
        }
        CHECK(plain > 500 && plain < 19500);
}

/* A NUL would end a token, or a "chunked" after which there is more, wherever it is: several
 * bytes are checked together. */
TEST(a_field_has_no_control_characters)
{
        static const char text[] = "GET / HTTP/1.1\r\nAuthorization: good\xc3\xa4\x80\xffgood"
                                   "????????????????????????evil\r\n\r\n";
        size_t from = (size_t) (strchr(text, '?') - text),
               past = strspn(text + from, "?") + from;

        for (size_t at = from; at < past; at++)
                for (int ch = 0; ch < 256; ch++) {
                        char head[sizeof(text)];
                        struct head h = {0};

                        if (ch == '\r' || ch == '\n') /* these end it, or not */
                                continue;
                        memcpy(head, text, sizeof(text));
                        head[at] = (char) ch;
                        CHECK_EQ(head_is_plain(&h, head, strlen(text)),
                                 ch == '\t' || (ch >= ' ' && ch != 0x7f));
                }
}

TEST(resources)
{
        talk(GET("/ill"), ILL "\r\nill", false);
        talk(GET("/ill?a=b"), ILL "\r\nill", false);
        CHECK_STR(seen.query, "a=b");
        talk("HEAD /ill HTTP/1.1\r\nHost: x\r\n\r\n", ILL "\r\n", false);
        talk(GET("/none"),
             "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Content-Length: 19\r\n\r\n404 page not found\n",
             false);
        talk("GET /ill HTTP/1.0\r\n\r\n", ILL "Connection: close\r\n\r\nill", true);
        talk("GET /ill HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
             ILL "Connection: keep-alive\r\n\r\nill", false);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             ILL "Connection: close\r\n\r\nill", true);
        /* Java's client. */
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
             "Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n\r\n" GET("/ill"),
             ILL "\r\nill" ILL "\r\nill", false);
}

TEST(requests_follow_each_other)
{
        talk(GET("/ill") GET("/ill") POST("/v3/fail", "{}", "2") GET("/ill"),
             ILL
             "\r\nill" ILL "\r\nill"
             "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
             "Content-Length: 58\r\n\r\n"
             "{\"error\":\"not \\\"here\\\"\",\"message\":\"not \\\"here\\\"\",\"code\":5}" ILL
             "\r\nill",
             false);
}

TEST(one_that_waits_keeps_those_behind_it)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0}, more = {0};
        char spaces[8192];

        CHECK_EQ(http_conn_input(c, GET("/wait") GET("/ill"), strlen(GET("/wait") GET("/ill"))),
                 0);
        CHECK(drain(c, &out, 65536));
        CHECK_EQ(buf_len(&out), 0);
        CHECK(seen.waits && !http_conn_is_full(c));
        memset(spaces, '\n', sizeof(spaces));
        for (int i = 0; i < 3; i++)
                CHECK_EQ(http_conn_input(c, spaces, sizeof(spaces)), 0);
        CHECK(http_conn_is_full(c));
        CHECK(http_conn_look(c));
        CHECK(!http_conn_look(c)); /* for too long */
        http_set_answer(seen.waits, 200, NULL);
        rpc_call_finish(seen.waits, RPC_OK, "");
        CHECK(drain(c, &more, 65536));
        CHECK_STR(text_of(&more), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" ILL "\r\nill");
        CHECK(!http_conn_is_full(c));
}

/* A turn is limited by what is produced in it: HEAD costs as much as GET. */
TEST(of_many_requests_a_few_are_answered_at_a_time)
{
        static const char *const asked[] = {"GET", "HEAD"};

        for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                cleanup_(http_conn_freep) struct http_conn *c = begin();
                cleanup_(buf_fini) struct buf out = {0}, all = {0}, in = {0};
                unsigned n = 0;

                for (int k = 0; k < 60; k++)
                        buf_printf(&in, "%s /page HTTP/1.1\r\nHost: x\r\n\r\n", asked[i]);
                CHECK_EQ(http_conn_input(c, buf_head(&in), buf_len(&in)), 0);
                CHECK_EQ(http_conn_output(c, &out, 65536), 0);
                CHECK(seen.pages >= 2 && seen.pages <= 4);
                CHECK(http_conn_can_go_on(c));
                CHECK(drain(c, &all, 65536));
                buf_add(&out, buf_head(&all), buf_len(&all));
                for (const char *p = text_of(&out); (p = strstr(p, " 200 OK\r\n")); p++)
                        n++;
                CHECK_EQ(n, 60);
        }
}

TEST(head_of_a_large_answer)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        const char *in = "HEAD /whole HTTP/1.1\r\nHost: x\r\n\r\n" GET("/ill");

        CHECK_EQ(http_conn_input(c, in, strlen(in)), 0);
        CHECK(drain(c, &out, 65536));
        CHECK_STR(text_of(&out), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n" ILL "\r\nill");
}

TEST(a_large_answer_goes_in_chunks)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        const char *p;
        size_t n = 0;

        seen.large = 1000000;
        CHECK_EQ(http_conn_input(c, GET("/large"), strlen(GET("/large"))), 0);
        CHECK(drain(c, &out, 65536));
        p = text_of(&out);
        CHECK(strstr(p, "Transfer-Encoding: chunked\r\n"));
        for (p = strstr(p, "\r\n\r\n") + 4;;) {
                size_t len = strtoul(p, NULL, 16);

                p = strstr(p, "\r\n") + 2 + len;
                CHECK(memcmp(p, "\r\n", 2) == 0);
                p += 2;
                n += len;
                if (len == 0)
                        break;
        }
        CHECK_EQ(n, 1000000);
        CHECK_EQ(*p, 0);
        CHECK_EQ(seen.closed, 1);
}

/* An incomplete answer ends without the last chunk. If the end of the connection marks the end
 * of the answer, it must not look complete. */
TEST(half_an_answer_does_not_pass_for_one)
{
        for (int minor = 0; minor <= 1; minor++) {
                cleanup_(http_conn_freep) struct http_conn *c = begin();
                cleanup_(buf_fini) struct buf in = {0}, out = {0};
                int r = 0;

                buf_printf(&in, "GET /cut HTTP/1.%d\r\nHost: x\r\n\r\n", minor);
                CHECK_EQ(http_conn_input(c, in.data, buf_len(&in)), 0);
                for (int i = 0; i < 100 && r == 0; i++)
                        r = http_conn_output(c, &out, buf_len(&out) + 65536);
                CHECK_EQ(r, -ECONNABORTED);
                CHECK(buf_len(&out) > 50000);
                CHECK(memcmp(buf_head(&out) + buf_len(&out) - 5, "0\r\n\r\n", 5) != 0);
        }
}

#define NOT_ALLOWED(allow)                                                               \
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Allow: " allow "\r\nContent-Length: 19\r\nConnection: close\r\n\r\n"            \
        "Method Not Allowed\n"
#define NOT_FOUND                                                               \
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: 10\r\nConnection: close\r\n\r\nNot Found\n"

TEST(what_is_no_request)
{
        talk("BLAH\r\n\r\n",
             "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Content-Length: 12\r\nConnection: close\r\n\r\nBad Request\n",
             true);
        talk("PUT /ill HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
             NOT_ALLOWED("GET, HEAD"), true);
        talk("OPTIONS /ill HTTP/1.1\r\nHost: x\r\n\r\n", NOT_ALLOWED("GET, HEAD"), true);
        talk(GET("/v3/put"), NOT_ALLOWED("POST"), true);
        talk(POST("/ill", "", "0"), NOT_ALLOWED("GET, HEAD"), true);
        talk(POST("/ill/more", "", "0"), NOT_FOUND, true);
        talk("PUT /ill/more HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", NOT_FOUND, true);
}

/* Its answer, whatever is in its head; and that nothing more is taken. */
static void refused(const char *in, size_t n, const char *answer)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};

        for (size_t at = 0; at < n; at += 100)
                CHECK_EQ(http_conn_input(c, in + at, min_of(n - at, (size_t) 100)), 0);
        drain(c, &out, 65536);
        CHECK(strstr(text_of(&out), answer));
        /* It reads no more; and a client that never stops sending is closed. */
        CHECK_EQ(http_conn_input(c, in, n), 0);
        http_conn_look(c);
        CHECK(!http_conn_look(c) || !drain(c, &out, 100));
}

TEST(too_much_is_refused)
{
        cleanup_(buf_fini) struct buf b = {0};

        buf_printf(&b, "GET /%0600d HTTP/1.1\r\nHost: x\r\n\r\n", 1);
        refused((char *) b.data, buf_len(&b), "HTTP/1.1 414 ");
        buf_clear(&b);
        buf_printf(&b, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: %09000d\r\n\r\n", 1);
        refused((char *) b.data, buf_len(&b), "HTTP/1.1 431 ");
        buf_clear(&b);
        buf_printf(&b, "GET / HTTP/1.1\r\nHost: x\r\n");
        for (int i = 0; i < 1000; i++)
                buf_printf(&b, "X-%d: %040d\r\n", i, i);
        buf_printf(&b, "\r\n");
        refused((char *) b.data, buf_len(&b), "HTTP/1.1 431 ");
        buf_clear(&b);
        buf_printf(&b, "GET / HTTP/1.1\r\nHost: x\r\n");
        for (int i = 0; i < 10000; i++) /* and it need not end to be */
                buf_printf(&b, "X-%d: %040d\r\n", i, i);
        refused((char *) b.data, buf_len(&b), "HTTP/1.1 431 ");
        buf_clear(&b);
        buf_printf(&b, "POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
        refused((char *) b.data, buf_len(&b), "{\"error\":\"too large\"");
        buf_clear(&b);
        buf_printf(&b, CHUNKED("/v3/put") "20000\r\n");
        buf_printf(&b, "{%0131071d", 1);
        refused((char *) b.data, buf_len(&b), "HTTP/1.1 400 ");
}

TEST(half_a_request_does_not_stay)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();

        CHECK_EQ(http_conn_input(c, "GET / HT", 8), 0);
        CHECK(http_conn_look(c));
        CHECK_EQ(http_conn_input(c, "T", 1), 0);
        CHECK(!http_conn_look(c));
}

TEST(an_idle_connection_does_not_stay)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        int looks = 0;

        CHECK_EQ(http_conn_input(c, GET("/ill"), strlen(GET("/ill"))), 0);
        CHECK(drain(c, &out, 65536));
        while (http_conn_look(c))
                looks++;
        CHECK(looks >= 10 && looks < 100);
        CHECK_EQ(http_conn_input(c, GET("/wait"), strlen(GET("/wait"))), 0);
        for (int i = 0; i < 1000; i++)
                CHECK(http_conn_look(c)); /* it waits for us */
}

#define HEADER "\"header\":{\"cluster_id\":\"9223372036854775808\"}"
#define ANSWER "{" HEADER ",\"kvs\":[{\"key\":\"YQ==\",\"value\":\"Yg==\"}]}"
#define OK_HEAD(n) \
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " n "\r\n\r\n"

TEST(calls)
{
        talk(POST("/v3/put", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}", "29"),
             OK_HEAD("85") ANSWER, false);
        talk(CHUNKED("/v3/put") "10\r\n{\"key\":\"YQ==\",\"v\r\n"
                                "d\r\nalue\":\"Yg==\"}\r\n0\r\n\r\n",
             OK_HEAD("85") ANSWER, false);
        talk(POST("/v3/put", "", "0"), OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}", false);
        talk(POST("/v3/none", "{}", "2"),
             "HTTP/1.1 501 Not Implemented\r\nContent-Type: application/json\r\n"
             "Content-Length: 83\r\n\r\n{\"error\":\"unknown method /t.T/None\","
             "\"message\":\"unknown method /t.T/None\",\"code\":12}",
             false);
        talk(POST("/v3/put", "{\"key\"", "6") GET("/ill"),
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
             "Content-Length: 62\r\n\r\n{\"error\":\"unexpected EOF\","
             "\"message\":\"unexpected EOF\",\"code\":3}" ILL "\r\nill",
             false);
}

#define LINE "{\"result\":" ANSWER "}\n"

TEST(streams)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0}, more = {0}, end = {0};
        const char *head = CHUNKED("/v3/stream"),
                   *one = "1d\r\n{\"key\":\"YQ==\",\"value\":\"Yg==\"}\r\n",
                   *bad = "2\r\n{}\r\n";

        CHECK_EQ(http_conn_input(c, head, strlen(head)), 0);
        CHECK_EQ(http_conn_input(c, one, strlen(one)), 0);
        CHECK(drain(c, &out, 65536));
        CHECK_STR(text_of(&out), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n61\r\n" LINE "\r\n");
        CHECK_EQ(http_conn_input(c, one, strlen(one)), 0);
        CHECK(drain(c, &more, 65536));
        CHECK_STR(text_of(&more), "61\r\n" LINE "\r\n");
        CHECK_EQ(http_conn_input(c, bad, strlen(bad)), 0);
        drain(c, &end, 65536);
        CHECK_STR(text_of(&end),
                  "5d\r\n{\"error\":{\"grpc_code\":11,\"http_code\":400,\"message\":"
                  "\"no \\\"key\\\"\",\"http_status\":\"Bad Request\"}}\r\n0\r\n\r\n");
}

/* What could be read before it is answered, and a sentence says what could not. */
static void bad_later(const char *request)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};

        CHECK_EQ(http_conn_input(c, request, strlen(request)), 0);
        drain(c, &out, 65536);
        CHECK_EQ(buf_len(&out), 0);
        answer_late();
        drain(c, &out, 65536);
        CHECK_STR(text_of(&out), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\ncb\r\n" LINE
                                 "{\"error\":{\"grpc_code\":2,\"http_code\":500,\"message\":"
                                 "\"unexpected EOF\",\"http_status\":"
                                 "\"Internal Server Error\"}}\r\n0\r\n\r\n");
        c = http_conn_free(c);
        CHECK_EQ(seen.closed, 1);
}

TEST(a_bad_message_behind_a_good_one)
{
        bad_later(POST("/v3/late", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}{\"key\":", "36"));
        bad_later(CHUNKED("/v3/late") "1d\r\n{\"key\":\"YQ==\",\"value\":\"Yg==\"}\r\n"
                                      "2\r\n{\"\r\n0\r\n\r\n");
}

TEST(what_its_headers_say)
{
        talk("POST /v3/fail HTTP/1.1\r\nHost: x\r\nAuthorization: abc.1\r\nGrpc-Timeout: 5S\r\n"
             "Grpc-Metadata-hasleader: true\r\nContent-Length: 2\r\n\r\n{}",
             "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
             "Content-Length: 58\r\n\r\n"
             "{\"error\":\"not \\\"here\\\"\",\"message\":\"not \\\"here\\\"\",\"code\":5}",
             false);
        CHECK_STR(seen.token, "abc.1");
        CHECK_EQ(seen.timeout, 5 * NSEC_PER_SEC);
        CHECK(seen.want_leader);
        /* The next request on the connection does not inherit the token. */
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nAuthorization: abc.1\r\n"
             "Content-Length: 0\r\n\r\n"
             "GET /ill HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n",
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}" ILL "\r\nill", false);
        CHECK_STR(seen.token, "");
        CHECK_STR(seen.accept, "a/b");
}

#define FAILED                                                         \
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n" \
        "Content-Length: 58\r\n\r\n"                                   \
        "{\"error\":\"not \\\"here\\\"\",\"message\":\"not \\\"here\\\"\",\"code\":5}"
#define BAD_REQUEST                                                               \
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: 12\r\nConnection: close\r\n\r\nBad Request\n"
#define FORBIDDEN                                                               \
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: 10\r\nConnection: close\r\n\r\nForbidden\n"
#define FAIL(headers) \
        "POST /v3/fail HTTP/1.1\r\nHost: x:1\r\n" headers "Content-Length: 2\r\n\r\n{}"

/* The owner of a request must not depend on how each program on the path reads it. */
TEST(one_token_counts)
{
        talk(FAIL("Authorization: abc.1 \t\r\n"), FAILED, false);
        CHECK_STR(seen.token, "abc.1");
        talk(FAIL("authorization: abc.1\r\nAuthorization: abc.1\r\n"), FAILED, false);
        CHECK_STR(seen.token, "abc.1");
        talk(FAIL("Authorization: abc.1\r\nAuthorization: abc.2\r\n"), BAD_REQUEST, true);
        CHECK_STR(seen.token, "");
        talk(FAIL("Authorization: abc.1\r\nGrpc-Metadata-Authorization: abc.2\r\n"),
             BAD_REQUEST, true);
        talk(FAIL("Grpc-Metadata-Token: abc.2\r\nAuthorization: Basic YTph\r\n"), FAILED,
             false);
        CHECK_STR(seen.token, "abc.2");
        talk(FAIL("Authorization: Basic YTph\r\nGrpc-Metadata-Token: abc.2\r\n"), FAILED,
             false);
        CHECK_STR(seen.token, "abc.2");
        talk(FAIL("Authorization: abc.1\r\nAuthorization:\r\n"), BAD_REQUEST, true);
}

/* An operator's browser sends what any web page asks for. */
TEST(what_another_page_asks_for_is_refused)
{
        talk(FAIL("Origin: http://x:1\r\n"), FAILED, false);
        talk(FAIL("Origin: https://X:1\r\nSec-Fetch-Site: same-origin\r\n"), FAILED, false);
        /* Behind a proxy that has put its own name there. */
        talk(FAIL("Origin: https://y\r\nSec-Fetch-Site: same-origin\r\n"), FAILED, false);
        talk(FAIL("Sec-Fetch-Site: none\r\n"), FAILED, false);
        talk(FAIL("Origin: http://x:2\r\n"), FORBIDDEN, true);
        talk(FAIL("Origin: null\r\n"), FORBIDDEN, true);
        talk(FAIL("Origin: http://x:1\r\nSec-Fetch-Site: cross-site\r\n"), FORBIDDEN, true);
        talk(FAIL("Sec-Fetch-Site: same-site\r\n"), FORBIDDEN, true);
        /* A link may lead here, and a browser must ask again each time. */
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\nOrigin: "
             "http://y\r\n\r\n" FAIL(""),
             ILL "\r\nill" FAILED, false);
}

/* What follows a body is its sender's, and not of the request that comes next, which may be
 * another's behind the same proxy. */
TEST(what_follows_a_body_is_no_header)
{
        cleanup_(buf_fini) struct buf b = {0}, answer = {0};

        talk(CHUNKED("/v3/put") "2\r\n{}\r\n0\r\nAccept: a/b\r\nAuthorization: "
                                "abc.1\r\n\r\n" GET("/ill"),
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}" ILL "\r\nill", false);
        CHECK_STR(seen.token, "");
        CHECK_STR(seen.accept, "");
        talk(CHUNKED("/v3/put") "2\r\n{}\r\n0\r\nAuthorization: abc.1\r\nAccept: "
                                "a/b\r\n\r\n" GET("/ill"),
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}" ILL "\r\nill", false);
        CHECK_STR(seen.token, "");
        CHECK_STR(seen.accept, "");
        /* However long it is: the next request is not refused for it. */
        buf_printf(&b, CHUNKED("/v3/put") "2\r\n{}\r\n0\r\nX: %020000d\r\n\r\n" GET("/ill"), 1);
        buf_printf(&answer, OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}" ILL "\r\nill");
        {
                cleanup_(http_conn_freep) struct http_conn *c = begin();
                cleanup_(buf_fini) struct buf out = {0};

                CHECK_EQ(http_conn_input(c, b.data, buf_len(&b)), 0);
                CHECK(drain(c, &out, 65536));
                CHECK_STR(text_of(&out), text_of(&answer));
        }
}

#define NOT_IMPLEMENTED                                                               \
        "HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: 16\r\nConnection: close\r\n\r\nNot Implemented\n"

/* Requests whose end a proxy on the way may have understood differently. */
TEST(requests_that_may_end_elsewhere)
{
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}", BAD_REQUEST,
             true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
             "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             BAD_REQUEST, true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
             "Content-Length: 2\r\n\r\n{}",
             BAD_REQUEST, true);
        talk("POST /v3/put HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n"
             "\r\n2\r\n{}\r\n0\r\n\r\n",
             BAD_REQUEST, true);
}

/* Chunks are taken in one form: where a proxy forgives other things than we, its next request
 * is not ours. The put itself may be done, or not; the connection goes. */
static void bad_chunks(const char *chunks)
{
        cleanup_(buf_fini) struct buf b = {0};

        buf_printf(&b, CHUNKED("/v3/put") "%s" GET("/ill"), chunks);
        talk(text_of(&b), BAD_REQUEST, true);
}

TEST(chunks_in_one_form)
{
        talk(CHUNKED("/v3/put") "00002;a=b;c=\"d e\"\r\n{}\r\n000\r\nX: y\r\nZ:\r\n\r\n" GET(
                     "/ill"),
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}" ILL "\r\nill", false);
        bad_chunks("2\r\n{}XX0\r\n\r\n");
        bad_chunks("2\r\n{}\n0\r\n\r\n");
        bad_chunks("2\r\n{}\r\r0\r\n\r\n");
        bad_chunks("2\n{}\r\n0\r\n\r\n");
        bad_chunks("2\rX{}\r\n0\r\n\r\n");
        bad_chunks("2;\nX\r\n{}\r\n0\r\n\r\n");
        bad_chunks("2;\rX\r\n{}\r\n0\r\n\r\n");
        bad_chunks("2 \r\n{}\r\n0\r\n\r\n");
        bad_chunks(" 2\r\n{}\r\n0\r\n\r\n");
        bad_chunks("2 1\r\n{}\r\n0\r\n\r\n");
        bad_chunks("+2\r\n{}\r\n0\r\n\r\n");
        bad_chunks("0x2\r\n{}\r\n0\r\n\r\n");
        bad_chunks("\r\n{}\r\n0\r\n\r\n");
        bad_chunks(";a\r\n{}\r\n0\r\n\r\n");
        bad_chunks("10000000000000002\r\n{}\r\n0\r\n\r\n");
        bad_chunks("00000000000000002\r\n{}\r\n0\r\n\r\n");
        bad_chunks("2\r\n{}\r\n0\r\n\rX");
        bad_chunks("2\r\n{}\r\n0\r\n\n");
        bad_chunks("2\r\n{}\r\n0\r\nX: y\n\r\n");
        bad_chunks("2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n");
}

/* A stream with such a request gets nothing more. */
TEST(bad_chunks_of_a_stream)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        const char *one = CHUNKED("/v3/stream") "e\r\n{\"key\":\"YQ==\"}\r\n";

        CHECK_EQ(http_conn_input(c, one, strlen(one)), 0);
        CHECK(drain(c, &out, 65536));
        CHECK(strstr(text_of(&out), "result"));
        CHECK_EQ(http_conn_input(c, "x", 1), 0);
        CHECK_EQ(http_conn_output(c, &out, 65536), -ECONNABORTED); /* an incomplete answer */
        c = http_conn_free(c);
        CHECK_EQ(seen.closed, 1);
}

/* It would not be clear which of two hosts was meant (RFC 9112, 3.2). */
TEST(one_host)
{
        talk("GET /ill HTTP/1.1\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HTTP/1.1\r\nHost:\r\n\r\n" GET("/ill"), ILL "\r\nill" ILL "\r\nill",
             false);
        talk("GET /ill HTTP/1.0\r\n\r\n", ILL "Connection: close\r\n\r\nill", true);
}

TEST(a_timeout_that_is_none)
{
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 5s\r\n"
             "Content-Length: 2\r\n\r\n{}" GET("/ill"),
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
             "Content-Length: 82\r\n\r\n"
             "{\"error\":\"invalid grpc-timeout: 5s\",\"message\":\"invalid grpc-timeout: 5s\","
             "\"code\":3}" ILL "\r\nill",
             false);
        CHECK_EQ(seen.closed, 2);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 0S\r\n"
             "Content-Length: 2\r\n\r\n{}",
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}", false);
        CHECK_EQ(seen.timeout, 0);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 5s\r\n\r\n", ILL "\r\nill", false);
}

static bool is_listed(const char *names, const char *host)
{
        return host_is_listed(names, (struct view){(const uint8_t *) host, strlen(host)});
}

TEST(what_a_client_wants)
{
        static const struct {
                const char *accept;
                unsigned wanted;
        } cases[] = {{"", 0},
                     {"*/*", 0},
                     {"a/b", 1000},
                     {"A/B", 1000},
                     {"a/bc", 0},
                     {"x/a/b", 0},
                     {"a/b;q=0", 0},
                     {"a/b;q=0.000", 0},
                     {"a/b; q=0.5", 500},
                     {"a/b;q=0.", 0},
                     {"a/b ; Q=0.25 , c/d", 250},
                     {"a/b;q=0.1234", 123},
                     {"a/b;q=1.0", 1000},
                     {"a/b;q=x", 1000},
                     {"a/b;q", 1000},
                     {"c/d, \t a/b;q=0.1", 100},
                     {"a/b;q=0.1,a/b;q=0.2", 200},
                     {"a/b;version=1", 1000},
                     {"a/b;q=0.3;version=2;x=y", 300},
                     {"a/b;version=3", 0},
                     {"a/b;version=3;q=0.9,a/b;version=2;q=0.2", 200},
                     {"a/b;version=", 0},
                     {"a/b;version=1.", 0},
                     {",,;;,=,a/b", 1000},
                     {";a/b", 0}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                CHECK_EQ(http_wants(cases[i].accept, "a/b", "1,2"), cases[i].wanted);
}

/* A list in two headers is one list. */
TEST(two_headers_of_a_list)
{
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\nX: y\r\nAccept: c/d\r\n\r\n",
             ILL "\r\nill", false);
        CHECK_STR(seen.accept, "a/b,c/d");
}

TEST(names_of_a_host)
{
        static const char *const of_a[] = {"a", "A", "a:2379", "a:", "a:x"},
                                 *const of_none[] = {"",     ":",     ":2379", "b",    "a.b",
                                                     "ab",   "a:1:2", "u@a",   "[a",   "[a]",
                                                     "a]:1", "*",     "a,b",   "b,a:1"};

        for (size_t i = 0; i < ARRAY_SIZE(of_a); i++) {
                CHECK(is_listed("a", of_a[i]));
                CHECK(is_listed("c,a,d", of_a[i]));
        }
        for (size_t i = 0; i < ARRAY_SIZE(of_none); i++) {
                CHECK(!is_listed("a", of_none[i]));
                CHECK(!is_listed("c,a,d", of_none[i]));
                CHECK(is_listed("*", of_none[i]));
                CHECK(is_listed("a,*", of_none[i]));
                CHECK(is_listed("", of_none[i]));
        }
        CHECK(is_listed("::1", "[::1]:2379"));
        CHECK(!is_listed("::1", "[::1]"));
        CHECK(is_listed("[::1]", "[::1]"));
        CHECK(is_listed("10.0.0.1", "10.0.0.1:2379"));
}

#define MISDIRECTED                                                                       \
        "HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: 58\r\nConnection: close\r\n\r\n"                                 \
        "Misdirected Request: this name is not in --host-whitelist\n"

/* Requests of a page whose owner has pointed its name to our address. */
TEST(a_request_is_for_us)
{
        site.hosts = "x,core.example";
        talk(GET("/ill"), ILL "\r\nill", false);
        talk("GET /ill HTTP/1.1\r\nHost: Core.Example:2379\r\n\r\n", ILL "\r\nill", false);
        talk("GET /ill HTTP/1.1\r\nHost: evil:2379\r\n\r\n", MISDIRECTED, true);
        talk("GET /none HTTP/1.1\r\nHost:\r\n\r\n", MISDIRECTED, true);
        talk("GET /ill HTTP/1.0\r\n\r\n", MISDIRECTED, true);
        talk("POST /v3/put HTTP/1.1\r\nHost: evil\r\nOrigin: http://evil\r\n"
             "Content-Length: 2\r\n\r\n{}",
             MISDIRECTED, true);
        talk("POST http://x:1/v3/fail HTTP/1.1\r\nHost: evil\r\nContent-Length: 2\r\n\r\n{}",
             "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
             "Content-Length: 58\r\n\r\n"
             "{\"error\":\"not \\\"here\\\"\",\"message\":\"not \\\"here\\\"\",\"code\":5}",
             false);
        talk("GET http://evil/ill HTTP/1.1\r\nHost: x\r\n\r\n", MISDIRECTED, true);
        talk("GET http://evil HTTP/1.1\r\nHost: x\r\n\r\n", MISDIRECTED, true);
        site.hosts = "*";
        talk("GET /ill HTTP/1.1\r\nHost: evil:2379\r\n\r\n", ILL "\r\nill", false);
        site.hosts = NULL;
}

TEST(heads_in_one_form)
{
        talk("\r\n\nGET /ill HTTP/1.1\nHost: x\n\n", ILL "\r\nill", false);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nX: y\r\n\rX" GET("/ill"), BAD_REQUEST, true);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nX:\rY: z\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\nX: y\r\n Content-Length: 2\r\n\r\n", BAD_REQUEST,
             true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n 2\r\n\r\n{}", BAD_REQUEST,
             true);
        talk("GET /ill HTTP/1.1\r\nHost: x\r\n X: y\r\n\r\n", BAD_REQUEST, true);
        talk("GET  /ill HTTP/1.1\r\nHost: x\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill\tHTTP/1.0 HTTP/1.1\r\nHost: x\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HAAA/1.1\r\nHost: x\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill H\r\n\r/1.1\r\nHost: x\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill\r\n\r\n", BAD_REQUEST, true);
        talk("GET /ill HTTP/2.0\r\nHost: x\r\n\r\n",
             "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain; "
             "charset=utf-8\r\nContent-Length: 27\r\nConnection: close\r\n\r\n"
             "HTTP Version Not Supported\n",
             true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
             "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
             BAD_REQUEST, true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\n"
             "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n"
             "0\r\n\r\n",
             NOT_IMPLEMENTED, true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n{}",
             NOT_IMPLEMENTED, true);
        talk("POST /v3/put HTTP/1.1\r\nHost: x\r\n"
             "Transfer-Encoding: Chunked \t\r\n\r\n2\r\n{}\r\n"
             "0\r\n\r\n",
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}", false);
        talk("POST /v3/fail HTTP/1.1\r\nHost: x\r\nAuthorization: abc.1 \r\n"
             "Content-Length: 002\r\n\r\n{}",
             "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
             "Content-Length: 58\r\n\r\n"
             "{\"error\":\"not \\\"here\\\"\",\"message\":\"not \\\"here\\\"\",\"code\":5}",
             false);
        CHECK_STR(seen.token, "abc.1");
}

/* An HTTP/1.0 client would take an unrequested 100 for the answer. */
TEST(a_client_of_http_1_0_gets_no_100_continue)
{
        talk("POST /v3/put HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 58\r\n"
             "Connection: close\r\n\r\n{" HEADER ",\"kvs\":[{}]}",
             true);
}

TEST(a_request_through_a_proxy)
{
        talk("GET http://x:2379/ill?a=b HTTP/1.1\r\nHost: x:2379\r\n\r\n", ILL "\r\nill",
             false);
        CHECK_STR(seen.query, "a=b");
        talk("POST http://x/v3/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
             OK_HEAD("58") "{" HEADER ",\"kvs\":[{}]}", false);
        talk("GET http://x?/ill HTTP/1.1\r\nHost: x\r\n\r\n",
             "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Content-Length: 19\r\n\r\n404 page not found\n",
             false);
}

TEST(head_has_no_body_whatever_it_asks_for)
{
        talk("HEAD /v3/put HTTP/1.1\r\nHost: x\r\n\r\n",
             "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Allow: POST\r\nContent-Length: 19\r\nConnection: close\r\n\r\n",
             true);
}

/* It ends with the rest of the request, and not before, or the client might lose the answer. */
TEST(one_that_is_refused_ends_with_its_body)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        const char *head = "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{}";

        CHECK_EQ(http_conn_input(c, head, strlen(head)), 0);
        CHECK(drain(c, &out, 65536));
        CHECK(strstr(text_of(&out), "HTTP/1.1 404 "));
        CHECK_EQ(http_conn_input(c, "{}" GET("/ill"), 2 + strlen(GET("/ill"))), 0);
        CHECK(!drain(c, &out, 65536));
        CHECK(!strstr(text_of(&out), "ill"));
}

/* Any number of requests, as long as the client reads the answers. */
TEST(one_that_is_served_may_be_ahead)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        int looks = 0;

        for (int i = 0; i < 10; i++) {
                for (int n = 0; n < 1000; n++)
                        CHECK_EQ(http_conn_input(c, GET("/ill"), strlen(GET("/ill"))), 0);
                CHECK(http_conn_is_full(c));
                CHECK(http_conn_look(c));
                CHECK_EQ(http_conn_output(c, &out, 65536), 0);
                CHECK(http_conn_is_full(c));
                buf_clear(&out);
        }
        while (http_conn_look(c)) /* nothing of it is taken any more */
                looks++;
        CHECK(looks < 3);
        CHECK(strstr(http_conn_complaint(c), "does not read"));
}

/* It is in the middle of a request whenever it is looked at, and of another one each time. */
TEST(one_that_is_busy_stays)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};

        CHECK_EQ(http_conn_input(c, "GET /ill HT", 11), 0);
        for (int i = 0; i < 10; i++) {
                const char *more = "TP/1.1\r\nHost: x\r\n\r\nGET /ill HT";

                CHECK(http_conn_look(c));
                CHECK_EQ(http_conn_input(c, more, strlen(more)), 0);
                CHECK(drain(c, &out, 65536));
        }
        CHECK(http_conn_look(c));
        CHECK(!http_conn_look(c));
        CHECK(strstr(http_conn_complaint(c), "has not completed"));
}

/* What has come of a message counts, as if it had come by HTTP/2, and does not stay. */
static void holds(const char *path, bool whole)
{
        cleanup_(buf_fini) struct buf b = {0}, out = {0};
        struct rpc_account account = {.max = 1 << 20, .kept_max = 1 << 20};
        struct rpc_limits roomy = {
                .message_max = 1 << 20, .too_large = "too large", .account = &account};
        cleanup_(http_conn_freep) struct http_conn *c = begin_within(&roomy);

        buf_printf(&b, CHUNKED("%s") "100000\r\n", path);
        buf_printf(&b, "{\"key\":\"%0400000d", 0);
        if (whole)
                buf_printf(&b, "\"}");
        CHECK_EQ(http_conn_input(c, buf_head(&b), buf_len(&b)), 0);
        CHECK(drain(c, &out, 65536));
        if (whole)
                CHECK(account.held + http_conn_held(c) < 20000);
        else
                CHECK(account.held >= 400000 && rpc_conn_held(http_conn_rpc(c)) >= 400000);
        seen.half = false;
        rpc_conn_each_call(http_conn_rpc(c), note_half, NULL);
        CHECK_EQ(seen.half, !whole);
        c = http_conn_free(c);
        CHECK_EQ(account.held, 0);
}

TEST(half_a_message_counts)
{
        holds("/v3/put", false);
        holds("/v3/stream", false);
        holds("/v3/put", true);
        holds("/v3/stream", true);
}

/* Who sends is told by that from one who does not, however seldom the memory for it grows. */
TEST(each_piece_of_a_large_message_counts_as_received)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_account account = {.max = 64 << 20, .kept_max = 64 << 20};
        struct rpc_limits roomy = {
                .message_max = 1 << 20, .too_large = "too large", .account = &account};
        cleanup_(http_conn_freep) struct http_conn *c = begin_within(&roomy);
        char piece[10000];
        uint64_t before;

        memset(piece, 'A', sizeof(piece));
        buf_printf(&b, POST("/v3/put", "{\"key\":\"", "900010"));
        CHECK_EQ(http_conn_input(c, buf_head(&b), buf_len(&b)), 0);
        for (size_t i = 0; i < 90; i++) {
                before = rpc_conn_traffic(http_conn_rpc(c)).received;
                CHECK_EQ(http_conn_input(c, piece, sizeof(piece)), 0);
                CHECK_EQ(rpc_conn_traffic(http_conn_rpc(c)).received, before + sizeof(piece));
        }
        CHECK(rpc_conn_traffic(http_conn_rpc(c)).in > 0);
}

/* Each may be in the middle of something while another begins and ends. */
TEST(connections_share_what_reads_and_writes_json)
{
        const char *request = POST("/v3/put", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}", "29");
        size_t len = strlen(request);

        for (size_t cut = 1; cut < len; cut++) {
                cleanup_(http_conn_freep) struct http_conn *a = begin(), *b = begin(),
                                                           *wrong = begin();
                cleanup_(buf_fini) struct buf of_a = {0}, of_b = {0};

                CHECK_EQ(http_conn_input(a, request, cut), 0);
                CHECK(drain(a, &of_a, 65536));
                talk(POST("/v3/put", "{\"key\"", "6"),
                     "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                     "Content-Length: 62\r\n\r\n{\"error\":\"unexpected EOF\","
                     "\"message\":\"unexpected EOF\",\"code\":3}",
                     false);
                CHECK_EQ(http_conn_input(wrong, request, len - 3), 0);
                CHECK_EQ(http_conn_input(b, request, len), 0);
                CHECK_EQ(http_conn_input(a, request + cut, len - cut), 0);
                CHECK(drain(b, &of_b, 65536) && drain(a, &of_a, 65536));
                CHECK_STR(text_of(&of_a), OK_HEAD("85") ANSWER);
                CHECK_STR(text_of(&of_b), OK_HEAD("85") ANSWER);
                CHECK(http_conn_held(a) == 0 && http_conn_held(b) == 0);
                wrong = http_conn_free(wrong);
        }
}

TEST(a_client_that_expects_it_gets_100_continue)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0}, more = {0};
        const char *head = "POST /v3/put HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                           "Content-Length: 29\r\n\r\n",
                   *body = "{\"key\":\"YQ==\",\"value\":\"Yg==\"}";

        CHECK_EQ(http_conn_input(c, head, strlen(head)), 0);
        CHECK(drain(c, &out, 65536));
        CHECK_STR(text_of(&out), "HTTP/1.1 100 Continue\r\n\r\n");
        CHECK_EQ(http_conn_input(c, body, strlen(body)), 0);
        CHECK(drain(c, &more, 65536));
        CHECK_STR(text_of(&more), OK_HEAD("85") ANSWER);
}

/* The answer to a client that sends no more, after which the connection ends; or no answer. */
static void ends(const char *in, const char *answer)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};

        CHECK_EQ(http_conn_input(c, in, strlen(in)), 0);
        CHECK_EQ(http_conn_end(c), answer != NULL);
        if (!answer)
                return;
        CHECK(!drain(c, &out, 65536));
        CHECK_STR(text_of(&out), answer);
}

/* What is answered later, or refused at once. */
static void late_for_one_who_sends_no_more(void)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};
        const char *q = POST("/v3/late", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}", "29");

        CHECK_EQ(http_conn_input(c, q, strlen(q)), 0);
        CHECK(http_conn_end(c));
        CHECK(drain(c, &out, 65536));
        CHECK_EQ(buf_len(&out), 0);
        answer_late();
        CHECK(!drain(c, &out, 65536));
        CHECK_STR(text_of(&out),
                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n61\r\n" LINE "\r\n0\r\n\r\n");
        ends(POST("/v3/refused", "{}", "2"),
             "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
             "Content-Length: 92\r\n\r\n"
             "{\"error\":{\"grpc_code\":5,\"http_code\":404,\"message\":\"not \\\"here\\\"\","
             "\"http_status\":\"Not Found\"}}");
}

TEST(who_sends_no_more_is_answered)
{
        cleanup_(http_conn_freep) struct http_conn *c = begin();
        cleanup_(buf_fini) struct buf out = {0};

        ends(GET("/ill"), ILL "\r\nill");
        ends(GET("/ill") GET("/ill"), ILL "\r\nill" ILL "\r\nill");
        ends(POST("/v3/put", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}", "29"),
             OK_HEAD("85") ANSWER);
        /* A request that was begun after it is not answered. */
        ends(GET("/ill") "GET /il", ILL "\r\nill");
        /* Half a request, and what would wait for others or go on. */
        ends("GET /ill", NULL);
        ends("POST /v3/put HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{", NULL);
        ends(POST("/v3/lock", "{}", "2"), NULL);
        ends(POST("/v3/watch", "{\"key\":\"YQ==\"}", "14"), NULL);
        ends("", NULL);
        /* A stream that ends with its request. */
        ends(POST("/v3/stream", "{\"key\":\"YQ==\",\"value\":\"Yg==\"}", "29"),
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
             "Transfer-Encoding: chunked\r\n\r\n61\r\n" LINE "\r\n0\r\n\r\n");
        late_for_one_who_sends_no_more();
        /* One that takes its time; but not for ever. */
        CHECK_EQ(http_conn_input(c, GET("/wait"), strlen(GET("/wait"))), 0);
        CHECK(http_conn_end(c));
        CHECK(drain(c, &out, 65536));
        CHECK(http_conn_look(c));
        CHECK(!http_conn_look(c));
}
