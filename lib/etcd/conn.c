/* One connection of the client port, from its arrival to its end. */
#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"
#include "core/status.h"
#include "etcd/conn.h"

#define CALLS_MAX 8192
#define OUTPUT_CHUNK ((size_t) 64 << 10)
#define OUTPUT_PRESSED ((size_t) 16 << 10) /* OUTPUT_CHUNK while too much memory is held */
#define BACKLOG_HIGH 4096 /* frames for a client that reads nothing: then we stop reading */
#define BACKLOG_LOW 1024
#define GREETING_TIMEOUT (10 * NSEC_PER_SEC)
#define REQUEST_TIMEOUT (10 * NSEC_PER_SEC) /* for a message to arrive completely */
#define REFUSED_TIMEOUT NSEC_PER_SEC /* for a refused client to show which HTTP it speaks */
#define TLS_FIRST_BYTE 22            /* of a handshake (RFC 8446, 5.1) */
#define ENDS_AT_ONCE 256             /* calls of a closed connection: 8,000 would take 10 ms */
#define COMPLAIN_EVERY (10 * NSEC_PER_SEC)

/* Sent before the connection ends to a client whose HTTP/1.1 requests are not read. */
#define LAST_ANSWER(status, length, text)                                    \
        "HTTP/1.1 " status "\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: " length "\r\nConnection: close\r\n\r\n" text

/* ---- the log ---- */

/* Logs @what was done to client @who, @n times, and @why. */
static void report_all(struct server *s, struct complaint *about, const char *what,
                       const char *who, const char *why, uint64_t n)
{
        struct boot_time now = loop_now(s->loop);

        about->n += n;
        if (boot_before(now, about->again_at))
                return;
        about->again_at = boot_add(now, COMPLAIN_EVERY);
        log_warning("%s client %s: %s (%" PRIu64 " since the last such message).", what, who,
                    why, about->n);
        about->n = 0;
}

static void report(struct server *s, struct complaint *about, const char *what, const char *who,
                   const char *why)
{
        report_all(s, about, what, who, why, 1);
}

void conn_report_calls(const struct conn *c, uint64_t n)
{
        report_all(c->server, &c->server->calls, "Refused a call of", stream_peer(c->stream),
                   "the open calls of its address take all the memory that --max-client-bytes "
                   "allows them",
                   n);
}

void conn_report_end(const struct conn *c, const char *why)
{
        report(c->server, &c->server->ended, "Ended the connection of", stream_peer(c->stream),
               why);
}

static void report_refusal(const struct conn *c, const char *why)
{
        report(c->server, &c->server->strangers, "Refused", stream_peer(c->stream), why);
}

/* ---- its end ---- */

/* From here on nothing is reported about the connection, read or sent. */
static void leave(struct conn *c)
{
        struct server *s = c->server;

        place_leave(c);
        memory_leave(c);
        TAILQ_REMOVE(&s->by_age, c, by_age);
        loop_timer_disarm(&c->timer);
        c->stream = stream_free(c->stream);
        TAILQ_INSERT_TAIL(&s->ending, c, next);
}

void conn_end(struct conn *c)
{
        struct server *s = c->server;

        loop_later_cancel(&c->ending);
        TAILQ_REMOVE(&s->ending, c, next);
        if (c->http)
                http_conn_free(c->http);
        else
                rpc_conn_free(c->rpc);
        if (c->host)
                place_free(c);
        free(c);
}

static void on_ending(struct loop_later *d)
{
        struct conn *c = container_of(d, struct conn, ending);
        struct loop *l = c->server->loop;

        if (rpc_conn_close_some(c->rpc, ENDS_AT_ONCE))
                conn_end(c);
        else
                loop_share(d, l, on_ending);
        loop_piece(l, "calls of a client that is gone", NULL);
}

void conn_free(struct conn *c)
{
        leave(c);
        if (!c->rpc || c->http || rpc_conn_n_calls(c->rpc) <= ENDS_AT_ONCE)
                return conn_end(c);
        c->ending.group = &c->host->group;
        loop_share(&c->ending, c->server->loop, on_ending);
}

/* ---- which HTTP it speaks ---- */

static struct rpc_limits limits_of(const struct conn *c)
{
        const struct server *s = c->server;

        return (struct rpc_limits){
                .message_max = s->cfg.request_max,
                .calls_max = CALLS_MAX,
                .too_large = "etcdserver: request is too large",
                .too_many = status_too_many.text,
                .account = &c->host->account,
                .party = c->party,
                .busy = api_busy(s->api),
        };
}

static int speak_http2(struct conn *c)
{
        struct rpc_limits limits = limits_of(c);
        int r = rpc_conn_new_server(&c->rpc, &limits, api_accept, c->server->api);

        if (r == 0)
                rpc_conn_set_userdata(c->rpc, c);
        return r;
}

static int speak_http1(struct conn *c)
{
        struct rpc_limits limits = limits_of(c);
        int r = http_conn_new(&c->http, &limits, c->port->site, &c->server->desk,
                              c->port->probes ? api_accept_probe : api_accept, c->server->api);

        if (r < 0)
                return r;
        c->rpc = http_conn_rpc(c->http);
        rpc_conn_set_userdata(c->rpc, c);
        return 0;
}

static int input(struct conn *c, const void *p, size_t n)
{
        return c->http ? http_conn_input(c->http, p, n) : rpc_conn_input(c->rpc, p, n);
}

/* Tells a refused client why, in the HTTP that it speaks. */
static int turn_away(struct conn *c, bool http1)
{
        static const char text[] =
                LAST_ANSWER("503 Service Unavailable", "21", "too many connections\n");
        int r = 0;

        c->told = true;
        if (http1) {
                buf_add(stream_tx(c->stream), text, sizeof(text) - 1);
        } else {
                r = speak_http2(c);
                if (r == 0)
                        rpc_conn_refuse(c->rpc);
        }
        stream_close_after_tx(c->stream);
        return r;
}

/* The first bytes show which HTTP it is: Go's clients, curl and browsers need not have
 * negotiated it in TLS, and without TLS nothing else tells. */
static int first_input(struct conn *c, struct view data)
{
        size_t n = min_of(sizeof(c->head) - c->n_head, data.len);
        bool http1;
        int r;

        memcpy(c->head + c->n_head, data.p, n);
        c->n_head += n;
        http1 = c->port->probes || memcmp(c->head, PREFACE, c->n_head) != 0;
        if (!http1 && c->n_head < sizeof(c->head))
                return 0;
        if (c->kind == REFUSED)
                return turn_away(c, http1);
        if (c->head[0] == TLS_FIRST_BYTE)
                report_refusal(c, "it speaks TLS, and this port is one without (http://)");
        r = http1 ? speak_http1(c) : speak_http2(c);
        if (r == 0)
                r = input(c, c->head, c->n_head);
        return r < 0 ? r : input(c, data.p + n, data.len - n);
}

/* ---- what it sends and gets ---- */

static void on_data(struct stream *s, struct view data)
{
        struct conn *c = stream_userdata(s);
        struct server *server = c->server;
        int r;

        if (c->told)
                return;
        r = c->rpc ? input(c, data.p, data.len) : first_input(c, data);
        if (r == -ENOMEM)
                return conn_free(c);
        if (!c->rpc || c->told)
                return;
        memory_recount(c);
        if (r < 0)
                stream_close_after_tx(s); /* the GOAWAY that says why is sent first */
        stream_kick(s);
        if (rpc_conn_n_calls(c->rpc) > 0)
                place_called(c);
        if ((rpc_conn_backlog(c->rpc) > BACKLOG_HIGH && buf_len(stream_tx(s)) > 0) ||
            (c->http && http_conn_is_full(c->http)))
                stream_pause(s, true);
        memory_relieve(server);
}

static bool can_go_on(const struct conn *c)
{
        if (c->http)
                return http_conn_can_go_on(c->http);
        return c->rpc && rpc_conn_can_go_on(c->rpc);
}

static void on_fill(struct stream *s, struct buf *tx)
{
        struct conn *c = stream_userdata(s);
        struct server *server = c->server;
        size_t chunk = rpc_account_spare(&c->host->account) > 0 ? OUTPUT_CHUNK : OUTPUT_PRESSED;
        bool more = can_go_on(c);
        int r;

        if (!c->rpc)
                return;
        r = c->http ? http_conn_output(c->http, tx, chunk) : rpc_conn_output(c->rpc, tx, chunk);
        if (more && server->cfg.runs)
                loop_hook_again(server->cfg.runs);
        if (r == -EPIPE)
                stream_end_after_tx(s);
        else if (r == -ECONNABORTED)
                stream_close_after_tx(s);
        else if (r < 0)
                return conn_free(c);
        memory_recount(c);
        if (!c->ended && rpc_conn_backlog(c->rpc) < BACKLOG_LOW &&
            !(c->http && http_conn_is_full(c->http)))
                stream_pause(s, false);
        if (can_go_on(c))
                stream_kick(s);
        memory_relieve(server); /* answers are built here, possibly while nothing is sent */
}

/* Simple clients such as `nc -N` end their side after the request, and then read. No client
 * does that with HTTP/2. */
static bool on_end(struct stream *s)
{
        struct conn *c = stream_userdata(s);

        if (c->told && buf_len(stream_tx(s)) > 0)
                return true; /* it is closed once the output has been sent */
        if (!c->http)
                return false;
        c->ended = true;
        if (http_conn_end(c->http)) {
                stream_kick(s);
                return true;
        }
        if (rpc_conn_n_calls(c->rpc) > 0 || buf_len(stream_tx(s)) == 0)
                return false;
        stream_close_after_tx(s);
        return true;
}

static void on_close(struct stream *s, const char *why)
{
        struct conn *c = stream_userdata(s);

        if (stream_was_refused(s))
                report_refusal(c, why);
        else
                log_debug("Client %s is gone: %s.", stream_peer(s), why);
        conn_free(c);
}

static const struct stream_ops stream_ops = {
        .patient = true,
        .what = "a client",
        .not_tls = LAST_ANSWER("400 Bad Request", "35", "this port speaks TLS: use https://\n"),
        .on_data = on_data,
        .on_fill = on_fill,
        .on_end = on_end,
        .on_close = on_close,
};

static void end_half_sent(struct rpc_call *call, void *arg)
{
        struct conn *c = arg;

        if (call->handler && (call->half || (call->unary && !call->ended))) {
                /* Begun before the last look, so every call has at least one whole period. */
                if (call->seen && rpc_call_begs(call))
                        rpc_call_finish(call, status_too_many.code, status_too_many.text);
                else if (call->seen)
                        rpc_call_finish(call, RPC_DEADLINE_EXCEEDED,
                                        "the request did not arrive in time");
                call->seen = true;
                stream_kick(c->stream);
        }
}

static void on_timer(struct loop_timer *t)
{
        struct conn *c = container_of(t, struct conn, timer);

        if (!c->rpc || !rpc_conn_established(c->rpc))
                return conn_free(c);
        if (c->http && !http_conn_look(c->http)) {
                const char *why = http_conn_complaint(c->http);

                if (why)
                        conn_report_end(c, why);
                return conn_free(c);
        }
        rpc_conn_forgive(c->rpc);
        rpc_conn_each_call(c->rpc, end_half_sent, c);
        loop_timer_in(t, REQUEST_TIMEOUT);
}

/* ---- its arrival ---- */

static int greet(struct conn *c, int fd)
{
        struct server *s = c->server;
        int r;

        r = stream_accept(&c->stream, s->loop, fd, c->port->tls ? s->cfg.tls : NULL,
                          &stream_ops, c);
        if (r == 0)
                r = place_take(c);
        if (r < 0)
                return r;
        stream_set_group(c->stream, &c->host->group);
        c->turn.of = &c->host->turn;
        loop_timer_in(&c->timer, c->kind == REFUSED ? REFUSED_TIMEOUT : GREETING_TIMEOUT);
        return 0;
}

void conn_accept(int fd, void *userdata)
{
        const struct port *port = userdata;
        struct server *s = port->server;
        struct conn *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->server = s;
        c->port = port;
        c->kind = port->probes ? PROBE : CLIENT;
        c->called_at = loop_now(s->loop);
        loop_timer_init(&c->timer, s->loop, on_timer);
        TAILQ_INSERT_TAIL(&s->by_age, c, by_age);
        if (greet(c, fd) < 0)
                conn_free(c);
}
