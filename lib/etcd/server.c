/* The ports for clients, and what the services ask about connections. */
#include "etcd/server.h"

#include <stdio.h>

#include "base/conf.h"
#include "core/status.h"
#include "etcd/conn.h"
#include "etcd/gateway_paths.h"
#include "loop/date.h"
#include "loop/listener.h"

#define RESERVE 256 /* descriptors kept for the log, links to other replicas and the like */

/* ---- for the services ---- */

static void kick(struct rpc_conn *rpc, void *arg)
{
        struct conn *c = rpc_conn_userdata(rpc);

        (void) arg;
        if (c && c->rpc && c->stream)
                stream_kick(c->stream);
}

static const char *common_name(struct rpc_conn *rpc, void *arg)
{
        struct conn *c = rpc_conn_userdata(rpc);

        (void) arg;
        return c && c->stream ? stream_peer_name(c->stream) : NULL;
}

static struct api_turn *turn(struct rpc_conn *rpc, void *arg)
{
        struct conn *c = rpc_conn_userdata(rpc);

        (void) arg;
        return &c->turn;
}

static struct api_load load(void *arg)
{
        struct server *s = arg;

        return (struct api_load){
                .connections = s->crowds[CLIENT].n + s->crowds[PROBE].n,
                .held = s->account.held + s->account.kept + s->account.calls,
                .longest_turn = loop_longest_turn(s->loop),
        };
}

static const struct boot_time *clock_of(void *arg)
{
        struct server *s = arg;

        return loop_clock(s->loop);
}

static const struct histogram *turns(void *arg)
{
        struct server *s = arg;

        return loop_turns(s->loop);
}

static void relieve_all(void *arg)
{
        memory_relieve(arg);
}

static const struct api_conns conns = {.kick = kick,
                                       .common_name = common_name,
                                       .turn = turn,
                                       .load = load,
                                       .clock = clock_of,
                                       .turns = turns,
                                       .relieve = relieve_all};

/* ---- ports ---- */

static const struct http_site secure_site = {
        .method_of = gateway_method_of, .has = resource_is, .date = date_http};

/* A port for probes has no methods. */
static const struct gateway_method *no_method(const char *path unused_)
{
        return NULL;
}

static const struct http_site probe_site = {
        .method_of = no_method, .has = resource_is_probe, .date = date_http};

static int listen_on(struct server *s, const char *urls, bool probes, char *err,
                     size_t err_size)
{
        char item[320];
        struct url u;

        while (list_next(&urls, item, sizeof(item))) {
                size_t i = s->n_listeners;
                int r;

                if (i == ARRAY_SIZE(s->listeners)) {
                        snprintf(err, err_size,
                                 "more than %zu URLs to listen on for clients; name fewer, or "
                                 "one that stands for all addresses (http://0.0.0.0:2379)",
                                 ARRAY_SIZE(s->listeners));
                        return -EINVAL;
                }
                r = url_parse(item, &u);
                if (r == 0 && u.tls && !s->cfg.tls) {
                        snprintf(err, err_size, "%s needs TLS: give --cert-file and --key-file",
                                 item);
                        return -EINVAL;
                }
                s->ports[i] = (struct port){.server = s,
                                            .tls = u.tls,
                                            .probes = probes,
                                            .site = probes  ? &probe_site
                                                    : u.tls ? &secure_site
                                                            : &s->site};
                if (r == 0)
                        r = listener_new(&s->listeners[i], s->loop, &u, conn_accept,
                                         &s->ports[i]);
                if (r < 0) {
                        snprintf(err, err_size, "cannot listen for %s on %s: %s",
                                 probes ? "probes" : "clients", item, strerror(-r));
                        return r;
                }
                listener_set_reserve(s->listeners[i], RESERVE);
                s->n_listeners++;
        }
        return 0;
}

/* ---- ---- */

int server_new(struct server **ret, struct loop *l, struct api *api,
               const struct server_config *cfg, char *err, size_t err_size)
{
        cleanup_(server_freep) struct server *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->loop = l;
        s->api = api;
        s->cfg = *cfg;
        s->site = secure_site;
        s->site.hosts = cfg->hosts;
        TAILQ_INIT(&s->by_age);
        TAILQ_INIT(&s->ending);
        places_init(s);
        memory_init(s);
        r = listen_on(s, cfg->urls, false, err, err_size);
        if (r == 0 && cfg->probe_urls)
                r = listen_on(s, cfg->probe_urls, true, err, err_size);
        if (r < 0)
                return r;
        api_set_conns(api, &conns, s);
        *ret = take_ptr(s);
        return 0;
}

static void stop_call(struct rpc_call *call, void *arg unused_)
{
        rpc_call_finish(call, status_stopped.code, status_stopped.text);
}

/* With HTTP/2 the end of the connection is clear enough. With HTTP/1.1 it would mean no answer,
 * or half of one, and the client could not tell why. etcd answers as well. */
static void say_goodbye(struct server *s)
{
        struct conn *c, *next;

        s->stops = true;
        TAILQ_FOREACH_SAFE (c, &s->by_age, by_age, next) {
                if (!c->http || rpc_conn_n_calls(c->rpc) == 0)
                        continue;
                rpc_conn_each_call(c->rpc, stop_call, NULL);
                stream_flush(c->stream);
        }
}

struct server *server_free(struct server *s)
{
        struct conn *c;

        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_listeners; i++)
                listener_free(s->listeners[i]);
        say_goodbye(s);
        while ((c = TAILQ_FIRST(&s->by_age)))
                conn_free(c);
        while ((c = TAILQ_FIRST(&s->ending)))
                conn_end(c);
        memory_fini(s);
        http_desk_fini(&s->desk);
        free(s);
        return NULL;
}
