/*
 * The transport of calls between programs: HTTP/2 by nghttp2, with gRPC's framing in it (RFC
 * 9113; grpc/doc/PROTOCOL-HTTP2.md).
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/secret.h"
#include "rpc/internal.h"

#define CLIENT_STREAM_WINDOW (256 * 1024)
#define CONN_WINDOW (1024 * 1024)
#define HEADERS_MAX (16 * 1024)     /* of a request, decoded: a larger request is refused... */
#define HEADERS_OUTRAGE (64 * 1024) /* ...and at this size answered with ENHANCE_YOUR_CALM */
#define HEADER_COST 32              /* RFC 9113, 6.5.2 */
#define INPUT_SLICE ((size_t) 4096) /* parsed between two checks whether to stop */

void h2_resume(struct call *k)
{
        nghttp2_session_resume_data(k->pub.conn->h2, k->stream);
}

#define HEADER(n, v) header_of((n), (v), strlen(v))

static nghttp2_nv header_of(const char *name, const char *value, size_t value_len)
{
        return (nghttp2_nv){
                .name = (uint8_t *) (uintptr_t) name,
                .value = (uint8_t *) (uintptr_t) value,
                .namelen = strlen(name),
                .valuelen = value_len,
        };
}

static void submit_trailers(struct call *k, bool alone)
{
        struct rpc_conn *c = k->pub.conn;
        cleanup_(buf_fini) struct buf text = {0};
        nghttp2_nv h[4];
        size_t n = 0;
        int r;

        if (alone) {
                h[n++] = HEADER(":status", "200");
                h[n++] = HEADER("content-type", "application/grpc");
        }
        h[n++] = HEADER("grpc-status", rpc_code_text(k->code));
        if (k->message) {
                rpc_percent_encode(k->message, &text);
                h[n++] = header_of("grpc-message", (char *) text.data, buf_len(&text));
        }
        r = alone ? nghttp2_submit_response(c->h2, k->stream, h, n, NULL)
                  : nghttp2_submit_trailer(c->h2, k->stream, h, n);
        if (r == NGHTTP2_ERR_NOMEM || buf_error(&text) < 0)
                c->nomem = true;
}

static ssize_t on_data_wanted(nghttp2_session *h2, int32_t stream, uint8_t *to, size_t length,
                              uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
        struct call *k = source->ptr;
        size_t n = min_of(length, buf_len(&k->out));

        (void) h2;
        (void) stream;
        (void) userdata;
        if (n > 0) {
                memcpy(to, buf_head(&k->out), n);
                buf_consume(&k->out, n);
                flow_out_changed(k, buf_len(&k->out) + n);
                k->sent = true;
        }
        if (buf_len(&k->out) > 0)
                return (ssize_t) n;
        if (k->finished) {
                *flags |= NGHTTP2_DATA_FLAG_EOF;
                if (k->pub.conn->server) {
                        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
                        submit_trailers(k, false);
                }
                return (ssize_t) n;
        }
        if (n == 0) {
                k->deferred = true;
                return NGHTTP2_ERR_DEFERRED;
        }
        return (ssize_t) n;
}

void h2_answer(struct call *k)
{
        nghttp2_nv h[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};
        nghttp2_data_provider data = {.source.ptr = k, .read_callback = on_data_wanted};

        if (nghttp2_submit_response(k->pub.conn->h2, k->stream, h, ARRAY_SIZE(h), &data) ==
            NGHTTP2_ERR_NOMEM)
                k->pub.conn->nomem = true;
}

void h2_end_unanswered(struct call *k)
{
        submit_trailers(k, true);
}

void h2_reset(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;

        if (nghttp2_submit_rst_stream(c->h2, NGHTTP2_FLAG_NONE, k->stream, NGHTTP2_CANCEL) ==
            NGHTTP2_ERR_NOMEM)
                c->nomem = true;
}

/* Answers a request that is not a gRPC call with an HTTP status. */
static void refuse_http(struct call *k, const char *status)
{
        nghttp2_nv h[] = {HEADER(":status", status)};

        k->submitted = k->finished = true;
        if (nghttp2_submit_response(k->pub.conn->h2, k->stream, h, ARRAY_SIZE(h), NULL) ==
            NGHTTP2_ERR_NOMEM)
                k->pub.conn->nomem = true;
}

static bool is(const uint8_t *p, size_t n, const char *s)
{
        return n == strlen(s) && memcmp(p, s, n) == 0;
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *userdata)
{
        struct rpc_conn *c = userdata;
        struct call *k;

        if (!c->server || frame->hd.type != NGHTTP2_HEADERS ||
            frame->headers.cat != NGHTTP2_HCAT_REQUEST)
                return 0;
        if ((frame->hd.flags & NGHTTP2_FLAG_PRIORITY) &&
            (frame->headers.pri_spec.stream_id != 0 || frame->headers.pri_spec.exclusive) &&
            !flow_priority(c))
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        k = call_alloc(c, frame->hd.stream_id);
        if (!k)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, k);
        return 0;
}

/* Takes two numbers in hex; ignores anything else. */
static void take_core(struct call *k, const uint8_t *value, size_t n)
{
        char text[2 * 17 + 1];

        if (n >= sizeof(text))
                return;
        memcpy(text, value, n);
        text[n] = '\0';
        if (sscanf(text, "%" SCNx64 " %" SCNx64, &k->pub.core, &k->pub.core_ancestor) != 2)
                k->pub.core = k->pub.core_ancestor = 0;
}

/* As in etcd, the first header counts, except that `token` takes precedence over
 * `authorization`, which may be a proxy's. */
static bool take_token(struct call *k, bool called_token, const uint8_t *value, size_t n)
{
        if (k->token && (k->called_token || !called_token))
                return true;
        secret_free(k->token);
        k->token = strndup((const char *) value, n);
        k->pub.token = k->token;
        k->called_token = called_token;
        return k->token;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *userdata)
{
        struct rpc_conn *c = userdata;
        struct call *k = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

        (void) flags;
        if (!k)
                return 0;
        if (!c->server) {
                if (is(name, name_len, "grpc-status") && value_len > 0 && value_len <= 2) {
                        int code = 0;

                        for (size_t i = 0; i < value_len; i++)
                                code = code * 10 + (value[i] - '0');
                        k->code = code >= 0 && code <= RPC_UNAUTHENTICATED
                                          ? (enum rpc_code) code
                                          : RPC_UNKNOWN;
                        k->has_status = true;
                } else if (is(name, name_len, "grpc-message")) {
                        cleanup_(buf_fini) struct buf text = {0};
                        size_t len;

                        rpc_percent_decode((const char *) value, value_len, &text);
                        buf_add_u8(&text, 0);
                        if (buf_error(&text) == 0) {
                                free(k->message);
                                k->message = (char *) buf_take(&text, &len);
                        }
                }
                return 0;
        }
        /* One byte on the wire may refer to an entry of the header table that is as large as
         * the table. */
        k->header_bytes += name_len + value_len + HEADER_COST;
        if (k->header_bytes > HEADERS_OUTRAGE)
                flow_calm(c);
        /* Trailers, after the messages, are ignored (RFC 9113, 8.1). */
        if (k->header_bytes > HEADERS_MAX || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
                return 0;
        if (is(name, name_len, ":method")) {
                k->post = is(value, value_len, "POST");
        } else if (is(name, name_len, ":path")) {
                call_set_path(k, value, value_len);
        } else if (is(name, name_len, "content-type")) {
                k->grpc = value_len >= 16 && memcmp(value, "application/grpc", 16) == 0;
        } else if (is(name, name_len, "grpc-timeout")) {
                k->pub.timeout = rpc_timeout_parse(value, value_len);
        } else if (is(name, name_len, "token") || is(name, name_len, "authorization")) {
                if (!take_token(k, name_len == strlen("token"), value, value_len))
                        return NGHTTP2_ERR_CALLBACK_FAILURE; /* never without its token */
        } else if (is(name, name_len, "hasleader")) {
                k->pub.want_leader = is(value, value_len, "true");
        } else if (is(name, name_len, "tenure-core")) {
                take_core(k, value, value_len);
        }
        return 0;
}

static int on_data_chunk(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *p,
                         size_t n, void *userdata)
{
        struct rpc_conn *c = userdata;
        struct call *k = nghttp2_session_get_stream_user_data(h2, stream);
        size_t before;

        (void) flags;
        if (k && (k->closing || (c->server && k->finished)))
                k = NULL; /* answered already: the rest is ignored */
        flow_received(c, k, stream, n);
        if (!k)
                return 0;
        before = buf_len(&k->in);
        buf_add(&k->in, p, n);
        flow_in_changed(k, before);
        if (buf_error(&k->in) < 0)
                return NGHTTP2_ERR_CALLBACK_FAILURE;
        call_deliver(k);
        return 0;
}

static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *userdata)
{
        (void) h2;
        return flow_frame(userdata, hd) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void begin_request(struct call *k)
{
        bool stays;

        cost_headers(k);
        stays = cost_may_stay(k);
        if (!k->post)
                return refuse_http(k, "405");
        if (!k->grpc)
                return refuse_http(k, "415");
        if (!k->pub.path)
                return refuse_http(k, "400");
        if (k->header_bytes > HEADERS_MAX)
                return rpc_call_finish(&k->pub, RPC_RESOURCE_EXHAUSTED,
                                       "grpc: the headers of a request are too large");
        if (!stays)
                return rpc_call_finish(&k->pub, RPC_RESOURCE_EXHAUSTED,
                                       k->pub.conn->limits.too_many);
        call_accept(k);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *userdata)
{
        struct rpc_conn *c = userdata;
        struct call *k;

        if (frame->hd.type == NGHTTP2_SETTINGS)
                c->established = true;
        if (frame->hd.type == NGHTTP2_GOAWAY)
                c->leaving = true;
        if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
                c->pongs++;
        k = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
        if (!k)
                return 0;
        if (!c->server) {
                /* The server has ended the call, and would ignore what we still send. */
                if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
                        rpc_call_end(&k->pub);
                return 0;
        }
        if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
                begin_request(k);
        if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
            (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
                k->pub.ended = true;
                call_deliver(k);
        }
        return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t stream, uint32_t error, void *userdata)
{
        struct call *k = nghttp2_session_get_stream_user_data(h2, stream);

        (void) userdata;
        if (!k)
                return 0;
        if (error == NGHTTP2_REFUSED_STREAM) /* RFC 9113, 8.7: not processed */
                k->sent = false;
        if (k->has_status)
                call_close(k, k->code, k->message ? k->message : "");
        else
                call_close(k, RPC_UNAVAILABLE,
                           error == NGHTTP2_NO_ERROR ? "the stream ended without a status"
                                                     : nghttp2_http2_strerror(error));
        call_free(k);
        return 0;
}

/* If the answer is complete but the request is not (a message that is too large, a slow
 * upload), tells the client to stop sending (RFC 9113, 8.1). */
static int on_frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *userdata)
{
        struct rpc_conn *c = userdata;
        struct call *k = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

        if (k && c->server &&
            (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
            (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !k->pub.ended &&
            nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, k->stream, NGHTTP2_NO_ERROR) ==
                    NGHTTP2_ERR_NOMEM)
                c->nomem = true;
        return 0;
}

static int h2_new(struct rpc_conn **ret, bool server)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = conn_new(server);
        nghttp2_session_callbacks *cb;
        nghttp2_option *opt;
        int r;

        if (!c)
                return -ENOMEM;
        c->skip = server ? NGHTTP2_CLIENT_MAGIC_LEN : 0;
        if (nghttp2_session_callbacks_new(&cb) != 0)
                return -ENOMEM;
        if (nghttp2_option_new(&opt) != 0) {
                nghttp2_session_callbacks_del(cb);
                return -ENOMEM;
        }
        nghttp2_option_set_no_closed_streams(opt, 1);
        /* etcd's own client sends a whole URL as :authority, which nghttp2 would refuse;
         * begin_request() checks what we need. */
        nghttp2_option_set_no_http_messaging(opt, server);
        nghttp2_option_set_no_auto_window_update(opt, 1);
        nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
        nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
        nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
        nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
        r = server ? nghttp2_session_server_new2(&c->h2, cb, c, opt)
                   : nghttp2_session_client_new2(&c->h2, cb, c, opt);
        nghttp2_session_callbacks_del(cb);
        nghttp2_option_del(opt);
        if (r != 0)
                return -ENOMEM;
        *ret = take_ptr(c);
        return 0;
}

static int send_settings(struct rpc_conn *c)
{
        nghttp2_settings_entry s[3] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                        c->server ? RPC_STREAM_WINDOW : CLIENT_STREAM_WINDOW}};
        size_t n = 1;

        if (c->server) {
                s[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                                  c->limits.calls_max};
                s[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
                                                  HEADERS_MAX};
        } else
                s[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
        if (nghttp2_submit_settings(c->h2, NGHTTP2_FLAG_NONE, s, n) != 0 ||
            nghttp2_session_set_local_window_size(c->h2, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW) !=
                    0)
                return -ENOMEM;
        return 0;
}

int rpc_conn_new_server(struct rpc_conn **ret, const struct rpc_limits *limits,
                        rpc_accept_fn accept, void *userdata)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL;
        int r = h2_new(&c, true);

        if (r < 0)
                return r;
        conn_serve(c, limits, accept, userdata);
        r = send_settings(c);
        if (r < 0)
                return r;
        *ret = take_ptr(c);
        return 0;
}

int rpc_conn_new_client(struct rpc_conn **ret, const char *authority, bool tls)
{
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL;
        int r = h2_new(&c, false);

        if (r < 0)
                return r;
        c->limits.message_max = 64 * 1024 * 1024;
        c->limits.too_large = RPC_ANSWER_TOO_LARGE;
        c->tls = tls;
        c->authority = strdup(authority);
        if (!c->authority)
                return -ENOMEM;
        r = send_settings(c);
        if (r < 0)
                return r;
        *ret = take_ptr(c);
        return 0;
}

void h2_free(struct rpc_conn *c)
{
        nghttp2_session_del(c->h2);
}

int rpc_conn_input(struct rpc_conn *c, const void *p, size_t n)
{
        const uint8_t *from = p;

        while (n > 0 && !c->calm) {
                size_t slice = min_of(n, INPUT_SLICE);
                ssize_t r = nghttp2_session_mem_recv(c->h2, from, slice);

                if (r == NGHTTP2_ERR_NOMEM || c->nomem)
                        return -ENOMEM;
                if (r < 0)
                        return -EPROTO;
                flow_count_unreported(c, from, slice);
                cost_frames_came(c);
                from += slice;
                n -= slice;
        }
        return c->calm ? -EPROTO : 0;
}

int rpc_conn_output(struct rpc_conn *c, struct buf *out, size_t max)
{
        flow_run(c);
        while (buf_len(out) < max) {
                const uint8_t *p;
                ssize_t n = nghttp2_session_mem_send(c->h2, &p);

                if (n == NGHTTP2_ERR_NOMEM || c->nomem)
                        return -ENOMEM;
                if (n < 0)
                        return -EPIPE;
                if (n == 0)
                        break;
                buf_add(out, p, (size_t) n);
        }
        cost_frames(c);
        if (buf_error(out) < 0)
                return -ENOMEM;
        if (buf_len(out) == 0 && !rpc_conn_can_go_on(c) && !nghttp2_session_want_read(c->h2) &&
            !nghttp2_session_want_write(c->h2))
                return -EPIPE;
        return 0;
}

int rpc_conn_ping(struct rpc_conn *c)
{
        return nghttp2_submit_ping(c->h2, NGHTTP2_FLAG_NONE, NULL) == NGHTTP2_ERR_NOMEM
                       ? -ENOMEM
                       : 0;
}

int rpc_call_new(struct rpc_conn *c, const char *path, bool want_leader,
                 const struct rpc_handler *handler, void *userdata, struct rpc_call **ret)
{
        nghttp2_nv h[] = {
                HEADER(":method", "POST"),
                HEADER(":scheme", c->tls ? "https" : "http"),
                HEADER(":path", path),
                HEADER(":authority", c->authority),
                HEADER("content-type", "application/grpc"),
                HEADER("te", "trailers"),
                {0}, /* room for the optional headers */
                {0},
                {0},
        };
        size_t n_headers = ARRAY_SIZE(h) - 3;
        nghttp2_data_provider data = {.read_callback = on_data_wanted};
        struct call *k;
        int32_t stream;

        if (c->leaving)
                return -EPIPE;
        k = call_alloc(c, -1);
        if (want_leader)
                h[n_headers++] = HEADER("hasleader", "true");
        if (c->token)
                h[n_headers++] = HEADER("token", c->token);
        if (c->core && *c->core)
                h[n_headers++] = HEADER("tenure-core", c->core);
        if (!k)
                return -ENOMEM;
        call_set_path(k, path, strlen(path));
        data.source.ptr = k;
        stream = nghttp2_submit_request(c->h2, NULL, h, n_headers, &data, k);
        if (stream < 0) {
                call_free(k);
                return stream == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPIPE;
        }
        k->stream = stream;
        k->pub.handler = handler;
        k->pub.userdata = userdata;
        *ret = &k->pub;
        return 0;
}
