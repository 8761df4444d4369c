/* HTTP/1.1 connections: reads requests, serves them one by one, writes the answers. More than
 * 800 lines, but one thing: what may be read and sent next depends on the progress of both the
 * request and its answer. */
#include "http/conn.h"

#include <stdio.h>
#include <strings.h>

#include "http/framing.h"
#include "http/host.h"
#include "http/http_status.h"
#include "http/internal.h"

#define HEAD_MAX ((size_t) 16 << 10)    /* request line and headers */
#define VALUE_MAX ((size_t) 8 << 10)    /* of a header that we evaluate: tokens are long */
#define PENDING_MAX ((size_t) 16 << 10) /* unparsed input behind the current request */
#define SLICE ((size_t) 4 << 10)        /* parsed at a time, before a check whether to wait */
#define KEPT ((size_t) 1 << 10)         /* of each buffer, kept for the next request */
#define WHOLE_MAX ((size_t) 64 << 10)   /* an answer up to this size is sent with its length */
#define REQUESTS_A_TURN 64              /* requests that are answered in one turn */
#define IDLE_LOOKS 18                   /* without a request; then the connection ends */
#define BODY_MORE ((size_t) 64 << 10)   /* for white space, names, unknown fields of a body */

enum header {
        HEADER_OTHER,
        HEADER_TOKEN,
        HEADER_AUTHORIZATION,
        HEADER_TIMEOUT,
        HEADER_LEADER,
        HEADER_ACCEPT,
        HEADER_EXPECT,
        HEADER_ENCODING,
        HEADER_HOST,
        HEADER_ORIGIN,
        HEADER_SITE,
};

#define NAME(s) (s), sizeof(s) - 1

static const struct {
        const char *name;
        size_t len;
        enum header header;
} known[] = {
        {NAME("authorization"), HEADER_AUTHORIZATION},
        {NAME("grpc-metadata-token"), HEADER_TOKEN},
        {NAME("grpc-metadata-authorization"), HEADER_AUTHORIZATION},
        {NAME("grpc-timeout"), HEADER_TIMEOUT},
        {NAME("grpc-metadata-hasleader"), HEADER_LEADER},
        {NAME("accept"), HEADER_ACCEPT},
        {NAME("expect"), HEADER_EXPECT},
        {NAME("transfer-encoding"), HEADER_ENCODING},
        {NAME("host"), HEADER_HOST},
        {NAME("origin"), HEADER_ORIGIN},
        {NAME("sec-fetch-site"), HEADER_SITE},
};

/* What the browser's header Sec-Fetch-Site says about the page that makes the request. */
enum page { PAGE_UNKNOWN, PAGE_OWN, PAGE_OTHER };

struct http_conn {
        struct rpc_conn *rpc;
        const struct http_site *site;
        struct http_desk *desk;
        struct rpc_limits limits;
        http_parser parser;
        struct exchange x;
        struct buf pending; /* received and not parsed yet */
        struct buf body;    /* of the answer, built and not sent */
        size_t left_out;    /* bytes of bodies that HEAD left out of this output */
        struct body rest;   /* the request's body, behind its head */
        bool reading;       /* part of a request has arrived */
        bool headed;        /* its head is complete */
        bool stopped;   /* a whole request has arrived; parsing waits until it is answered */
        bool malformed; /* the end of the request cannot be found */
        bool last;      /* nothing is read after this request */
        bool broken;    /* the connection ends at once, without a further answer */
        bool ends;      /* the connection ends when the output has been sent */
        bool nomem;
        bool proceed;                  /* "100 Continue" is to be sent */
        bool looked_half, looked_full; /* the state at the last look */
        bool moved;                    /* input has arrived since then */
        bool parsed;                   /* some input has been parsed since then */
        bool began;                    /* a request has begun since then */
        bool wrote;                    /* output was made since then */
        bool all;                      /* the other side sends no more */
        bool looked_all;
        const char *complaint;
        int idle_looks;

        /* the request whose headers are being read */
        size_t head_len;
        struct head head;
        unsigned encodings, hosts; /* how often these headers came */
        char name[NAME_MAX_ + 1];
        size_t name_len;
        bool in_value;
        enum header header;
        struct buf value, token, accept; /* each NUL-terminated when complete */
        enum header token_of;            /* the header that the token came from */
        struct buf host, origin;         /* NUL-terminated likewise */
        enum page page;
        char bad_timeout[64]; /* the error text for an invalid Grpc-Timeout, or "" */
        struct rpc_metadata md;
        unsigned refused; /* if not 0, the request is refused with this status */
};

/* ---- input ---- */

static struct http_conn *conn_of(http_parser *p)
{
        return p->data;
}

/* A head that is too long is refused once it is complete. */
static void count_head(struct http_conn *c, size_t n)
{
        c->head_len += n;
        if (c->head_len > HEAD_MAX && !c->refused)
                c->refused = 431;
}

static int on_message_begin(http_parser *p)
{
        struct http_conn *c = conn_of(p);

        c->reading = c->began = true;
        return 0;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
        struct http_conn *c = conn_of(p);
        size_t room = PATH_MAX_ - c->x.path_len;

        count_head(c, n);
        if (n > room && !c->refused)
                c->refused = 414;
        n = min_of(n, room);
        memcpy(c->x.path + c->x.path_len, at, n);
        c->x.path_len += n;
        return 0;
}

static void keep(struct buf *b, const char *text)
{
        buf_clear(b);
        buf_add(b, text, strlen(text) + 1);
}

/* Joins the values of a list that comes in several headers (RFC 9110, 5.3). */
static void add_to_list(struct buf *b, const char *text)
{
        if (buf_len(b) == 0)
                return keep(b, text);
        b->end--;
        buf_add(b, ",", 1);
        buf_add(b, text, strlen(text) + 1);
}

/* As in etcd, a header that is named for a token takes precedence over Authorization, which may
 * be a proxy's. If the same header comes twice with different values, the request is refused: a
 * proxy that checked it may have read the other one. */
static void take_token(struct http_conn *c, const char *text)
{
        bool has = buf_len(&c->token) > 0;

        if (has && c->header == c->token_of) {
                if (strcmp((const char *) buf_head(&c->token), text) != 0 && !c->refused)
                        c->refused = 400;
                return;
        }
        if (has && c->token_of == HEADER_TOKEN)
                return;
        if (has)
                explicit_bzero(buf_head(&c->token), buf_len(&c->token));
        keep(&c->token, text);
        c->token_of = c->header;
}

/* As in etcd, an empty timeout, or zero without a unit, means no timeout. */
static void take_timeout(struct http_conn *c, const char *text)
{
        size_t len = strlen(text);

        c->bad_timeout[0] = '\0';
        c->md.timeout = rpc_timeout_parse(text, len);
        if (c->md.timeout == 0 && len > 0)
                snprintf(c->bad_timeout, sizeof(c->bad_timeout), "invalid grpc-timeout: %.40s",
                         text);
        else if (strspn(text, "0") + 1 == len)
                c->md.timeout = 0;
}

/* White space behind a value is not part of it (RFC 9110, 5.5); the parser skips that before
 * it. */
static void trim(struct buf *value)
{
        while (buf_len(value) > 0 && is_blank(value->data[value->end - 1]))
                value->end--;
}

static void end_header(struct http_conn *c)
{
        const char *text;

        if (!c->in_value)
                return;
        c->in_value = false;
        trim(&c->value);
        buf_add_u8(&c->value, 0);
        if (buf_error(&c->value) < 0) {
                c->nomem = true;
                return;
        }
        text = (const char *) buf_head(&c->value);
        if (c->header == HEADER_TOKEN || c->header == HEADER_AUTHORIZATION) {
                take_token(c, text);
                explicit_bzero(buf_head(&c->value), buf_len(&c->value));
        } else if (c->header == HEADER_ACCEPT) {
                add_to_list(&c->accept, text);
        } else if (c->header == HEADER_TIMEOUT)
                take_timeout(c, text);
        else if (c->header == HEADER_LEADER)
                c->md.want_leader = strcmp(text, "true") == 0;
        else if (c->header == HEADER_EXPECT && strcasecmp(text, "100-continue") == 0)
                c->proceed = true;
        else if (c->header == HEADER_ENCODING) {
                c->encodings++;
                if (strcasecmp(text, "chunked") != 0 && !c->refused)
                        c->refused = 501; /* a transfer encoding that we cannot decode */
        } else if (c->header == HEADER_SITE && c->page != PAGE_OTHER)
                c->page = strcmp(text, "same-origin") == 0 || strcmp(text, "none") == 0
                                  ? PAGE_OWN
                                  : PAGE_OTHER;
        else if (c->header == HEADER_HOST) {
                c->hosts++;
                keep(&c->host, text);
        } else if (c->header == HEADER_ORIGIN)
                keep(&c->origin, text);
        if (buf_error(&c->token) < 0 || buf_error(&c->accept) < 0 || buf_error(&c->host) < 0 ||
            buf_error(&c->origin) < 0)
                c->nomem = true;
        buf_clear(&c->value);
}

static int on_field(http_parser *p, const char *at, size_t n)
{
        struct http_conn *c = conn_of(p);

        /* The parser accepts "Content-Length : 5" as a header; a proxy that passed it on may
         * not have (RFC 9112, 5.1). */
        if (memchr(at, ' ', n))
                return -1;
        end_header(c);
        count_head(c, n);
        if (c->name_len < NAME_MAX_)
                memcpy(c->name + c->name_len, at, min_of(n, NAME_MAX_ - c->name_len));
        c->name_len += n;
        return 0;
}

static enum header header_of(const char *name, size_t len)
{
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (len == known[i].len && strcasecmp(name, known[i].name) == 0)
                        return known[i].header;
        return HEADER_OTHER;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
        struct http_conn *c = conn_of(p);

        if (!c->in_value) {
                c->in_value = true;
                c->name[min_of(c->name_len, (size_t) NAME_MAX_)] = '\0';
                c->header = header_of(c->name, c->name_len);
                c->name_len = 0;
        }
        count_head(c, n);
        if (c->header == HEADER_OTHER)
                return 0;
        if (buf_len(&c->value) + n > VALUE_MAX) {
                if (!c->refused)
                        c->refused = 431;
                return 0;
        }
        buf_add(&c->value, at, n);
        return 0;
}

/* Answers with this status and closes the connection; further input is ignored. */
static void refuse(struct http_conn *c, unsigned status)
{
        if (!c->refused)
                c->refused = status;
        c->last = true;
}

/* Clients of proxies send "http://example.com/health": the path is "/health", and the host is
 * the part before it (RFC 9112, 3.2.2). */
static const char *authority_of(const char *target)
{
        const char *at = *target == '/' ? NULL : strstr(target, "://");

        return at ? at + 3 : NULL;
}

static const char *path_of(const char *target)
{
        const char *at = authority_of(target);

        if (!at)
                return target;
        at = strchr(at, '/');
        return at ? at : "/";
}

static const char *text_or_empty(const struct buf *header)
{
        return buf_len(header) > 0 ? (const char *) buf_head(header) : "";
}

/* A foreign page can have its own name resolve to our address (DNS rebinding). The browser then
 * takes us for the page's host; only the name in the request shows the difference. */
static bool is_for_us(const struct http_conn *c)
{
        const char *at = authority_of(c->x.path), *host = at ? at : text_or_empty(&c->host);

        return !c->site->hosts ||
               host_is_listed(c->site->hosts,
                              (struct view){(const uint8_t *) host, strcspn(host, "/")});
}

static void refuse_method(struct http_conn *c)
{
        struct exchange *x = &c->x;

        if (!x->method && !c->site->has(x->pub.path))
                return refuse(c, 404);
        x->headers[x->n_headers++] = x->method ? "Allow: POST" : "Allow: GET, HEAD";
        refuse(c, 405);
}

/* A foreign page can make a browser send any request to us, with the user's client certificate;
 * the browser only hides the answer from the page. Browsers say where the page comes from in
 * Sec-Fetch-Site; where they omit that header (they send it only to https:// and to localhost),
 * Origin has it. */
static bool is_of_other_page(const struct http_conn *c)
{
        const char *origin = buf_len(&c->origin) > 0 ? (char *) buf_head(&c->origin) : NULL,
                   *host = text_or_empty(&c->host), *at = origin ? strstr(origin, "://") : NULL;

        if (c->page != PAGE_UNKNOWN || !origin)
                return c->page == PAGE_OTHER;
        return !at || strcasecmp(at + 3, host) != 0;
}

static void begin(struct http_conn *c)
{
        struct exchange *x = &c->x;
        enum http_method asked = c->parser.method;
        char *query = memchr(x->path, '?', x->path_len);
        int r;

        x->path[x->path_len] = '\0';
        if (query)
                *query = '\0';
        x->pub.path = path_of(x->path);
        x->pub.query = query ? query + 1 : "";
        x->pub.accept = text_or_empty(&c->accept);
        c->md.token = buf_len(&c->token) > 0 ? (char *) buf_head(&c->token) : NULL;
        x->method = c->site->method_of(x->pub.path);
        x->status = 200;
        x->type = x->method ? "application/json" : NULL;
        if (!is_for_us(c))
                return refuse(c, 421);
        if (x->method ? asked != HTTP_POST : asked != HTTP_GET && asked != HTTP_HEAD)
                return refuse_method(c);
        if (x->method && is_of_other_page(c))
                return refuse(c, 403);
        x->too_large = c->limits.too_large;
        if (x->method && gateway_begin(x, c->desk, c->limits.message_max) < 0) {
                c->nomem = true;
                return;
        }
        c->md.carrier = x;
        c->md.resource = !x->method;
        r = rpc_call_arrive(c->rpc, x->method ? x->method->call : x->pub.path, &c->md,
                            &x->call);
        if (r < 0)
                c->nomem = true;
        else if (x->method && c->bad_timeout[0])
                gateway_refuse(x, RPC_INVALID_ARGUMENT, c->bad_timeout);
}

/* The parser sees only heads: framing.h finds the end of a body. */
static int on_headers(http_parser *p)
{
        struct http_conn *c = conn_of(p);

        end_header(c);
        /* Java's client asks for an upgrade to HTTP/2, and goes on without. */
        p->upgrade = 0;
        return c->nomem ? -1 : 1;
}

static int on_head_end(http_parser *p)
{
        conn_of(p)->headed = true;
        http_parser_pause(p, 1);
        return 0;
}

static const http_parser_settings settings = {
        .on_message_begin = on_message_begin,
        .on_url = on_url,
        .on_header_field = on_field,
        .on_header_value = on_value,
        .on_headers_complete = on_headers,
        .on_message_complete = on_head_end,
};

static void end_request(struct http_conn *c)
{
        struct exchange *x = &c->x;

        x->came = true;
        c->reading = false;
        c->stopped = true;
        if (!x->call)
                return;
        if (x->method && gateway_input_end(x) < 0)
                c->nomem = true;
        else
                rpc_call_bring_end(x->call);
}

static uint64_t body_max(const struct http_conn *c)
{
        return 2 * c->limits.message_max + BODY_MORE;
}

/* Checks the announced or received length of a body. One in chunks may be an endless stream. */
static bool is_too_long(const struct http_conn *c, uint64_t length)
{
        bool is_endless = c->x.method && c->x.method->client_streams && c->encodings > 0;

        return !is_endless && length > body_max(c);
}

static void end_too_long(struct http_conn *c)
{
        c->x.unread = true;
        if (c->x.call && c->x.method)
                rpc_call_finish(c->x.call, RPC_INVALID_ARGUMENT, c->limits.too_large);
        c->last = true;
}

/* If a request is refused, the connection ends once its body has arrived, or after a while: the
 * client may not read the answer before it has sent everything, and would lose the answer if we
 * closed the connection earlier (RFC 9112, 9.6). */
static void end_head(struct http_conn *c)
{
        const http_parser *p = &c->parser;
        struct exchange *x = &c->x;
        bool in_chunks = c->encodings > 0;
        uint64_t length = in_chunks || p->content_length == UINT64_MAX ? 0 : p->content_length;

        x->head = p->method == HTTP_HEAD;
        x->keep_alive = http_should_keep_alive(p) != 0;
        x->chunked = p->http_minor >= 1;
        if (p->http_major != 1)
                refuse(c, 505);
        /* If this is HTTP/1.0, a proxy that passed it on may not have known where it ends. */
        if (in_chunks && (c->encodings > 1 || !x->chunked))
                refuse(c, 400);
        /* With several, a proxy may have used one and we another (RFC 9112, 3.2). */
        if (x->chunked ? c->hosts != 1 : c->hosts > 1)
                refuse(c, 400);
        if (!c->refused)
                begin(c);
        if (c->refused)
                c->last = true;
        else if (is_too_long(c, length))
                end_too_long(c);
        /* With an unknown transfer encoding, the end of the body is unknown, too. */
        body_begin(&c->rest, in_chunks && c->refused != 501, length);
        if (c->last || !x->chunked || body_is_over(&c->rest))
                c->proceed = false;
        if (body_is_over(&c->rest) && !c->nomem)
                end_request(c);
}

static size_t read_head(struct http_conn *c, const char *p, size_t n)
{
        size_t done = http_parser_execute(&c->parser, &settings, p, n);
        enum http_errno e = HTTP_PARSER_ERRNO(&c->parser);

        if (c->nomem)
                return done;
        if (e == HPE_HEADER_OVERFLOW && !c->refused)
                c->refused = 431;
        if ((e != HPE_OK && e != HPE_PAUSED) || !head_is_plain(&c->head, p, done))
                c->malformed = true;
        else if (c->headed)
                end_head(c);
        return done;
}

/* The most memory that an incomplete message may need: some of its text is kept, and the result
 * of parsing it. In chunks it may be as large as any. */
static size_t expected(const struct http_conn *c)
{
        uint64_t most = body_max(c),
                 length = c->encodings > 0 ? most : c->parser.content_length;

        return (size_t) (2 * min_of(length, most));
}

static void take_content(struct http_conn *c, struct view content)
{
        struct exchange *x = &c->x;

        x->body += content.len;
        if (is_too_long(c, x->body))
                end_too_long(c);
        if (!x->call || !x->method)
                return;
        if (gateway_input(x, content.p, content.len) < 0)
                c->nomem = true;
        else if (x->reader && !rpc_call_is_small(json_reader_held(x->reader)))
                rpc_call_want(x->call, expected(c));
}

static size_t read_body(struct http_conn *c, const uint8_t *p, size_t n)
{
        struct view content;
        size_t done;

        if (body_read(&c->rest, (struct view){p, n}, &done, &content) < 0) {
                c->malformed = true;
                return 0;
        }
        if (content.len > 0)
                take_content(c, content);
        if (body_is_over(&c->rest) && !c->nomem)
                end_request(c);
        return done;
}

static bool is_half_told(const struct exchange *x)
{
        return x->begun && !x->over;
}

/* Ignores the rest of the input. If no answer has begun, the client gets 400. */
static void end_malformed(struct http_conn *c)
{
        if (c->x.call && !c->x.begun) {
                rpc_call_leave(c->x.call);
                c->x.call = NULL;
        }
        if (is_half_told(&c->x))
                c->broken = true;
        refuse(c, 400);
        c->reading = false;
}

/* Whether further input is discarded. The rest of a refused request is still parsed, to find
 * where it ends. */
static bool has_all(const struct http_conn *c)
{
        return c->ends || ((c->last || c->refused) && !c->reading);
}

/* Whether input has to wait: the next request until this one is answered, and a call's messages
 * until its handler takes the earlier ones. */
static bool waits(const struct http_conn *c)
{
        const struct rpc_call *call = c->x.call;

        return c->stopped || has_all(c) ||
               (call && (rpc_call_has_input(call) || rpc_call_begs(call)));
}

/* Parses @in, up to the end of a request or to where it has to wait. */
static int parse(struct http_conn *c, struct view *in)
{
        while (in->len > 0 && !waits(c)) {
                size_t n = min_of(in->len, SLICE);

                n = c->headed ? read_body(c, in->p, n) : read_head(c, (const char *) in->p, n);
                in->p += n;
                in->len -= n;
                c->parsed = true;
                if (c->nomem)
                        return -ENOMEM;
                if (c->malformed) {
                        end_malformed(c);
                        break;
                }
        }
        if (has_all(c))
                in->len = 0;
        return 0;
}

static int parse_pending(struct http_conn *c)
{
        size_t n = buf_len(&c->pending);
        struct view in = {buf_head(&c->pending), n};
        int r;

        if (n == 0)
                return 0;
        r = parse(c, &in);
        buf_consume(&c->pending, n - in.len);
        if (in.len == 0)
                buf_reuse(&c->pending, KEPT);
        return r;
}

/* Most input is exactly one whole request, and need not be buffered. */
int http_conn_input(struct http_conn *c, const void *p, size_t n)
{
        struct view in = {p, n};
        int r = 0;

        if (has_all(c))
                return 0;
        c->moved = true;
        if (buf_len(&c->pending) == 0)
                r = parse(c, &in);
        if (r < 0 || in.len == 0)
                return r;
        buf_add(&c->pending, in.p, in.len);
        if (buf_error(&c->pending) < 0)
                return -ENOMEM;
        return parse_pending(c);
}

bool http_conn_is_full(const struct http_conn *c)
{
        return buf_len(&c->pending) > PENDING_MAX;
}

/* ---- output ---- */

static void add_line(struct buf *out, const char *before, const char *text)
{
        buf_add_text(out, before);
        buf_add_text(out, text);
        buf_add(out, "\r\n", 2);
}

static void add_head(struct http_conn *c, struct buf *out, unsigned status, const char *type,
                     bool has_length, size_t length)
{
        struct exchange *x = &c->x;
        const char *date = c->site->date ? c->site->date() : "";

        /* Without a length or chunks, the end of the connection marks the end of the answer. */
        if (c->last || (!has_length && !x->chunked))
                x->keep_alive = false;
        buf_add_text(out, "HTTP/1.1 ");
        buf_add_number(out, status, 10);
        add_line(out, " ", http_status_text(status));
        if (*date)
                add_line(out, "Date: ", date);
        if (type)
                add_line(out, "Content-Type: ", type);
        for (size_t i = 0; i < x->n_headers; i++)
                add_line(out, x->headers[i], "");
        if (has_length) {
                buf_add_text(out, "Content-Length: ");
                buf_add_number(out, length, 10);
                buf_add(out, "\r\n", 2);
        } else if (x->chunked)
                buf_add_text(out, "Transfer-Encoding: chunked\r\n");
        if (!x->keep_alive)
                buf_add_text(out, "Connection: close\r\n");
        else if (!x->chunked)
                buf_add_text(out, "Connection: keep-alive\r\n"); /* HTTP/1.0 */
        buf_add(out, "\r\n", 2);
        x->begun = true;
}

static void add_whole(struct http_conn *c, struct buf *out, unsigned status, const char *type,
                      const void *p, size_t n)
{
        add_head(c, out, status, type, true, n);
        if (c->x.head)
                c->left_out += n;
        else
                buf_add(out, p, n);
        c->x.over = true;
}

static void take_body(struct http_conn *c)
{
        if (c->body.data)
                return;
        c->body = c->desk->body;
        c->desk->body = (struct buf){0};
}

static void return_body(struct http_conn *c)
{
        buf_reuse(&c->body, WHOLE_MAX);
        if (!c->body.data)
                return;
        buf_fini(&c->desk->body);
        c->desk->body = c->body;
        c->body = (struct buf){0};
}

static void flush_body(struct http_conn *c, struct buf *out)
{
        size_t n = buf_len(&c->body);

        if (n == 0)
                return;
        if (c->x.head) {
                c->left_out += n;
                return buf_clear(&c->body);
        }
        if (c->x.chunked) {
                buf_add_number(out, n, 16);
                buf_add(out, "\r\n", 2);
        }
        buf_add(out, buf_head(&c->body), n);
        if (c->x.chunked)
                buf_add(out, "\r\n", 2);
        buf_reuse(&c->body, WHOLE_MAX);
}

/* Moves a part of the answer to c->body. Returns false if there is none yet. */
static bool make(struct http_conn *c)
{
        struct exchange *x = &c->x;
        struct view piece;

        if (x->method)
                return gateway_output(x, &c->body, SLICE * 4);
        if (rpc_call_left(x->call) == 0 && !rpc_call_next(x->call))
                return false;
        piece = rpc_call_piece(x->call);
        piece.len = min_of(piece.len, SLICE * 4);
        buf_add(&c->body, piece.p, piece.len);
        rpc_call_taken(x->call, piece.len);
        return piece.len > 0;
}

static void end_whole(struct http_conn *c, struct buf *out, enum rpc_code code,
                      const char *message)
{
        struct exchange *x = &c->x;

        if (code == RPC_OK && rpc_call_left(x->call) == 0)
                return add_whole(c, out, x->status, x->type, buf_head(&c->body),
                                 buf_len(&c->body));
        buf_clear(&c->body);
        if (x->method) {
                gateway_error(x, code, message, &c->body);
                return add_whole(c, out, http_status_of(code), x->type, buf_head(&c->body),
                                 buf_len(&c->body));
        }
        if (code == RPC_UNIMPLEMENTED)
                return add_whole(c, out, 404, "text/plain; charset=utf-8",
                                 "404 page not found\n", 19);
        buf_printf(&c->body, "%s\n", message);
        add_whole(c, out, http_status_of(code), "text/plain; charset=utf-8", buf_head(&c->body),
                  buf_len(&c->body));
}

static void end_begun(struct http_conn *c, struct buf *out, enum rpc_code code,
                      const char *message)
{
        struct exchange *x = &c->x;

        if (rpc_call_left(x->call) > 0 ||
            (code != RPC_OK && !(x->method && x->method->server_streams))) {
                c->broken = true; /* an answer that has begun cannot become an error */
                return;
        }
        x->over = true;
        if (code != RPC_OK)
                gateway_error(x, code, message, &c->body);
        flush_body(c, out);
        if (x->chunked && !x->head)
                buf_add(out, "0\r\n\r\n", 5);
}

/* Writes as much of the answer as there is, until @out holds @max bytes. */
static void answer(struct http_conn *c, struct buf *out, size_t max)
{
        struct exchange *x = &c->x;
        bool streams = x->method && x->method->server_streams;
        enum rpc_code code = RPC_OK;
        const char *message = "";
        bool over;

        while ((x->begun ? buf_len(out) + c->left_out + buf_len(&c->body) < max
                         : buf_len(&c->body) < WHOLE_MAX) &&
               make(c))
                ;
        if (x->malformed) { /* we cannot decode our own answer */
                c->broken = true;
                return;
        }
        over = gateway_is_over(x, &code, &message);
        if (!x->begun && over && !(streams && buf_len(&c->body) > 0))
                end_whole(c, out, code, message);
        else if (!x->begun &&
                 (buf_len(&c->body) >= WHOLE_MAX || (streams && buf_len(&c->body) > 0)))
                add_head(c, out, x->status, x->type, false, 0);
        if (!is_half_told(x))
                return;
        if (over)
                end_begun(c, out, code, message);
        else
                flush_body(c, out);
}

static void answer_refused(struct http_conn *c, struct buf *out)
{
        char text[128];

        snprintf(text, sizeof(text), "%s%s\n", http_status_text(c->refused),
                 c->refused == 421 ? ": this name is not in --host-whitelist" : "");
        add_whole(c, out, c->refused, "text/plain; charset=utf-8", text, strlen(text));
}

static void forget(struct http_conn *c)
{
        struct exchange *x = &c->x;

        if (x->call)
                rpc_call_leave(x->call);
        gateway_fini(x);
        memset(x, 0, sizeof(*x));
        if (buf_len(&c->token) > 0)
                explicit_bzero(buf_head(&c->token), buf_len(&c->token));
        buf_reuse(&c->value, KEPT);
        buf_reuse(&c->token, KEPT);
        buf_reuse(&c->accept, KEPT);
        buf_reuse(&c->host, KEPT);
        buf_reuse(&c->origin, KEPT);
        c->page = PAGE_UNKNOWN;
        c->bad_timeout[0] = '\0';
        return_body(c);
        c->md = (struct rpc_metadata){0};
        c->head_len = c->name_len = 0;
        c->head = (struct head){0};
        c->encodings = c->hosts = 0;
        c->proceed = c->headed = false;
}

/* The answer is complete, and so is the request, unless the rest of it is ignored. */
static void next(struct http_conn *c)
{
        bool more = c->x.keep_alive && !c->last && !c->broken &&
                    !(c->all && buf_len(&c->pending) == 0);

        forget(c);
        c->stopped = false;
        if (!more) {
                c->ends = true;
                return;
        }
        http_parser_pause(&c->parser, 0);
}

/* The client sends no more. Whether a complete request still has to be answered, or may still
 * be in the unparsed input. */
static bool is_to_be_answered(const struct http_conn *c)
{
        if (buf_len(&c->pending) > 0)
                return true;
        if (!c->x.call)
                return c->refused && !c->ends;
        return c->x.came && !gateway_goes_on(&c->x);
}

int http_conn_output(struct http_conn *c, struct buf *out, size_t max)
{
        struct exchange *x = &c->x;

        c->left_out = 0;
        rpc_conn_run(c->rpc);
        /* What HEAD leaves out has been produced all the same, and so counts. */
        for (int i = 0; i < REQUESTS_A_TURN && buf_len(out) + c->left_out < max; i++) {
                if (parse_pending(c) < 0 || c->nomem)
                        return -ENOMEM;
                if (c->all && !is_to_be_answered(c))
                        c->broken = true;
                if (c->ends || c->broken)
                        break;
                if (c->proceed && x->call && !x->begun && !x->came) {
                        buf_add_text(out, "HTTP/1.1 100 Continue\r\n\r\n");
                        c->proceed = false;
                }
                if (c->refused && !x->call && !x->begun)
                        answer_refused(c, out);
                else if (x->call && !x->over) {
                        take_body(c);
                        answer(c, out, max);
                        if (buf_len(&c->body) == 0 && buf_error(&c->body) == 0)
                                return_body(c);
                }
                if (!x->over || !(x->came || has_all(c)))
                        break;
                next(c);
        }
        if (buf_error(out) < 0 || buf_error(&c->body) < 0 || c->nomem)
                return -ENOMEM;
        c->wrote = c->wrote || buf_len(out) > 0;
        if (c->broken && is_half_told(x))
                return -ECONNABORTED;
        return c->broken || (c->ends && !c->reading) ? -EPIPE : 0;
}

bool http_conn_end(struct http_conn *c)
{
        c->all = true;
        return is_to_be_answered(c);
}

bool http_conn_can_go_on(const struct http_conn *c)
{
        /* With HEAD no output is sent that would later wake the connection to go on. */
        bool is_left_out = c->x.head && is_half_told(&c->x) && rpc_call_left(c->x.call) > 0;

        return rpc_conn_can_go_on(c->rpc) || is_left_out ||
               (buf_len(&c->pending) > 0 && !waits(c) && !c->ends);
}

bool http_conn_look(struct http_conn *c)
{
        bool full = http_conn_is_full(c) && !(c->x.call && rpc_call_begs(c->x.call)),
             half = c->reading && (!c->x.call || c->x.over || c->ends),
             idle = !c->moved && !c->x.call, stuck = full && c->looked_full && !c->parsed,
             stays = !stuck && !(half && c->looked_half && !c->began) &&
                     !(c->all && c->looked_all && !c->wrote);

        c->looked_full = full;
        c->looked_half = half;
        c->looked_all = c->all;
        c->idle_looks = idle ? c->idle_looks + 1 : 0;
        c->moved = c->parsed = c->began = c->wrote = false;
        c->complaint = stays    ? NULL
                       : stuck  ? "it sends requests, and does not read the answers"
                       : c->all ? "it has closed its side, and its answer makes no progress"
                                : "it has not completed a request";
        return stays && c->idle_looks < IDLE_LOOKS;
}

const char *http_conn_complaint(const struct http_conn *c)
{
        return c->complaint;
}

size_t http_conn_held(const struct http_conn *c)
{
        return (buf_len(&c->pending) > 0 ? c->pending.cap : 0) + c->body.cap;
}

const struct http_request *http_request_of(const struct rpc_call *call)
{
        const struct exchange *x = call->carrier;

        return &x->pub;
}

void http_set_answer(struct rpc_call *call, unsigned status, const char *type)
{
        struct exchange *x = call->carrier;

        x->status = status;
        x->type = type;
}

void http_add_header(struct rpc_call *call, const char *header)
{
        struct exchange *x = call->carrier;

        assert(x->n_headers < ARRAY_SIZE(x->headers));
        x->headers[x->n_headers++] = header;
}

struct rpc_conn *http_conn_rpc(struct http_conn *c)
{
        return c->rpc;
}

int http_conn_new(struct http_conn **ret, const struct rpc_limits *limits,
                  const struct http_site *site, struct http_desk *desk, rpc_accept_fn accept,
                  void *userdata)
{
        cleanup_(http_conn_freep) struct http_conn *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->site = site;
        c->desk = desk;
        c->limits = *limits;
        http_parser_init(&c->parser, HTTP_REQUEST);
        c->parser.data = c;
        r = rpc_conn_new_bare(&c->rpc, limits, accept, userdata);
        if (r < 0)
                return r;
        *ret = take_ptr(c);
        return 0;
}

void http_desk_fini(struct http_desk *d)
{
        d->reader = json_reader_free(d->reader);
        json_writer_fini(&d->writer);
        buf_fini(&d->body);
}

struct http_conn *http_conn_free(struct http_conn *c)
{
        if (!c)
                return NULL;
        forget(c);
        rpc_conn_free(c->rpc);
        buf_fini(&c->pending);
        buf_fini(&c->body);
        buf_fini(&c->value);
        buf_fini(&c->token);
        buf_fini(&c->accept);
        buf_fini(&c->host);
        buf_fini(&c->origin);
        free(c);
        return NULL;
}
