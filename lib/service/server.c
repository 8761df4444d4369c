#include "service/server.h"

#include <bsd/sys/queue.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "rpc/conn.h"

#define CALLS_MAX 8192
#define OUTPUT_CHUNK (256 * 1024)
#define GREETING_TIMEOUT (10 * NSEC_PER_SEC)
#define REQUEST_TIMEOUT (10 * NSEC_PER_SEC) /* for a unary request to arrive whole */

struct conn {
        LIST_ENTRY(conn) next;
        struct server *server;
        struct stream *stream;
        struct rpc_conn *rpc;
        struct loop_timer timer; /* half-sent things end here */
};

struct port {
        struct server *server;
        bool tls;
};

struct server {
        struct loop *loop;
        struct api *api;
        struct tls *tls;
        size_t request_max;
        struct listener *listeners[8];
        struct port ports[8];
        size_t n_listeners;
        LIST_HEAD(, conn) conns;
};

static void conn_free(struct conn *c)
{
        LIST_REMOVE(c, next);
        loop_timer_disarm(&c->timer);
        c->rpc = rpc_conn_free(c->rpc);
        stream_free(c->stream);
        free(c);
}

static void on_data(struct stream *s, struct view data)
{
        struct conn *c = stream_userdata(s);
        int r = rpc_conn_input(c->rpc, data.p, data.len);

        if (r == -ENOMEM)
                return conn_free(c);
        if (r < 0)
                stream_close_after_tx(s); /* the GOAWAY that says why goes first */
        stream_kick(s);
}

static void on_fill(struct stream *s, struct buf *tx)
{
        struct conn *c = stream_userdata(s);
        int r = rpc_conn_output(c->rpc, tx, OUTPUT_CHUNK);

        if (r == -EPIPE)
                stream_close_after_tx(s);
        else if (r < 0)
                conn_free(c);
}

static void on_close(struct stream *s, const char *why)
{
        struct conn *c = stream_userdata(s);

        log_debug("Client %s is gone: %s.", stream_peer(s), why);
        conn_free(c);
}

static const struct stream_ops stream_ops = {
        .patient = true,
        .what = "a client",
        .on_data = on_data,
        .on_fill = on_fill,
        .on_close = on_close,
};

static void end_half_sent(struct rpc_call *call, void *arg)
{
        struct conn *c = arg;

        if (call->handler && !call->ended && call->unary) {
                /* Begun before the last look: the timer gives everyone one whole period. */
                if (call->seen)
                        rpc_call_finish(call, RPC_DEADLINE_EXCEEDED,
                                        "the request did not arrive in time");
                call->seen = true;
                stream_kick(c->stream);
        }
}

static void on_timer(struct loop_timer *t)
{
        struct conn *c = container_of(t, struct conn, timer);

        if (!rpc_conn_established(c->rpc))
                return conn_free(c);
        rpc_conn_each_call(c->rpc, end_half_sent, c);
        if (loop_timer_arm(t, boot_add(boot_now(), REQUEST_TIMEOUT)) < 0)
                conn_free(c);
}

static void on_accept(int fd, void *userdata)
{
        const struct port *port = userdata;
        struct server *s = port->server;
        const struct rpc_limits limits = {
                .message_max = s->request_max,
                .calls_max = CALLS_MAX,
                .too_large = "etcdserver: request is too large",
        };
        struct conn *c = calloc(1, sizeof(*c));
        int r;

        if (!c) {
                close(fd);
                return;
        }
        c->server = s;
        loop_timer_init(&c->timer, s->loop, on_timer);
        LIST_INSERT_HEAD(&s->conns, c, next);
        r = rpc_conn_new_server(&c->rpc, &limits, api_accept, s->api);
        if (r < 0)
                close(fd);
        else
                r = stream_accept(&c->stream, s->loop, fd, port->tls ? s->tls : NULL,
                                  &stream_ops, c);
        if (r == 0)
                r = loop_timer_arm(&c->timer, boot_add(boot_now(), GREETING_TIMEOUT));
        if (r == 0)
                rpc_conn_set_userdata(c->rpc, c);
        else
                conn_free(c);
}

static void kick(struct rpc_conn *rpc, void *arg)
{
        struct conn *c = rpc_conn_userdata(rpc);

        (void) arg;
        if (c && c->rpc)
                stream_kick(c->stream);
}

static const char *common_name(struct rpc_conn *rpc, void *arg)
{
        struct conn *c = rpc_conn_userdata(rpc);

        (void) arg;
        return c ? stream_peer_name(c->stream) : NULL;
}

int server_new(struct server **ret, struct loop *l, struct api *api, const char *urls,
               struct tls *tls, size_t request_max, char *err, size_t err_size)
{
        cleanup_(server_freep) struct server *s = calloc(1, sizeof(*s));
        const char *cursor = urls;
        char item[320];
        struct url u;
        int r;

        if (!s)
                return -ENOMEM;
        s->loop = l;
        s->api = api;
        s->tls = tls;
        s->request_max = request_max;
        LIST_INIT(&s->conns);
        while (list_next(&cursor, item, sizeof(item))) {
                size_t i = s->n_listeners;

                if (i == ARRAY_SIZE(s->listeners)) {
                        snprintf(err, err_size,
                                 "more than %zu URLs to listen on for clients; name fewer, or "
                                 "one that stands for all addresses (http://0.0.0.0:2379)",
                                 ARRAY_SIZE(s->listeners));
                        return -EINVAL;
                }
                r = url_parse(item, &u);
                if (r == 0 && u.tls && !tls) {
                        snprintf(err, err_size, "%s wants TLS: give --cert-file and --key-file",
                                 item);
                        return -EINVAL;
                }
                s->ports[i] = (struct port){.server = s, .tls = u.tls};
                if (r == 0)
                        r = listener_new(&s->listeners[i], l, &u, on_accept, &s->ports[i]);
                if (r < 0) {
                        snprintf(err, err_size, "cannot listen for clients on %s: %s", item,
                                 strerror(-r));
                        return r;
                }
                s->n_listeners++;
        }
        api_set_conns(api, &(struct api_conns){.kick = kick, .common_name = common_name}, NULL);
        *ret = take_ptr(s);
        return 0;
}

struct server *server_free(struct server *s)
{
        struct conn *c;

        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_listeners; i++)
                listener_free(s->listeners[i]);
        while ((c = LIST_FIRST(&s->conns)))
                conn_free(c);
        free(s);
        return NULL;
}
