#include "service/server.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/tree.h"
#include "rpc/conn.h"

#define CALLS_MAX 8192
#define OUTPUT_CHUNK ((size_t) 64 << 10)
#define OUTPUT_PRESSED ((size_t) 16 << 10) /* while too much is held */
#define BACKLOG_HIGH \
        4096 /* frames for one who takes nothing: above it nothing is read from him */
#define BACKLOG_LOW 1024
#define GREETING_TIMEOUT (10 * NSEC_PER_SEC)
#define REQUEST_TIMEOUT (10 * NSEC_PER_SEC) /* for a message to arrive whole */
#define RESERVE 256 /* descriptors for the log, links to other replicas and the like */
#define IDLE_MIN (10 * NSEC_PER_SEC) /* one without calls for so long may have to go... */
#define IDLE_LOOKS 64                /* ...if it is among so many who were quiet longest */
#define PATIENCE (5 * NSEC_PER_SEC)  /* between two looks at what one takes... */
#define PATIENCE_LEAST NSEC_PER_SEC  /* ...when more than twice too much is held */
#define TAKEN_WITHIN 60              /* seconds: who would need longer does not read */
#define RELIEVE_EVERY (10 * NSEC_PER_MSEC)
#define COMPLAIN_EVERY (10 * NSEC_PER_SEC)

/* An address that clients come from. It stays while it has connections, or writes that wait. */
struct host {
        RB_ENTRY(host) by_name;
        struct server *server; /* NULL: it has ended */
        char name[64];
        size_t n_conns;
        struct rpc_account account;
        struct api_turn turn;
        struct loop_group group;
};

RB_HEAD(hosts, host);

struct conn {
        TAILQ_ENTRY(conn) next; /* those with no call for longest are first */
        struct server *server;
        struct host *host;
        struct stream *stream;
        struct rpc_conn *rpc;
        struct loop_timer timer;               /* half-sent things end here */
        struct boot_time called_at, looked_at; /* when it last had a call; see is_stuck() */
        struct rpc_traffic seen;               /* then */
        bool stuck;                            /* as of then */
        size_t tx;                             /* bytes in the stream, as they are counted */
        struct api_turn turn;
};

struct port {
        struct server *server;
        bool tls;
};

struct server {
        struct loop *loop;
        struct api *api;
        struct server_config cfg;
        struct listener *listeners[8];
        struct port ports[8];
        size_t n_listeners;
        TAILQ_HEAD(conns, conn) conns;
        size_t n_conns;
        struct hosts hosts;
        struct rpc_account account; /* of all */
        struct boot_time relieved_at, complained_at;
        uint64_t n_refused; /* since then */
};

static int host_cmp(const struct host *a, const struct host *b)
{
        return strcmp(a->name, b->name);
}

TREE_GENERATE(hosts, host, by_name, host_cmp)

/* ---- accounts ---- */

static void host_put(struct host *h)
{
        if (h->n_conns > 0 || h->account.n_writes > 0)
                return;
        if (h->server)
                RB_REMOVE(hosts, &h->server->hosts, h);
        free(h);
}

static void host_settled(struct rpc_account *a)
{
        host_put(container_of(a, struct host, account));
}

static struct host *host_get(struct server *s, const char *peer)
{
        struct host key, *h;
        const char *port = strrchr(peer, ':');

        snprintf(key.name, sizeof(key.name), "%.*s",
                 (int) (port ? port - peer : (ptrdiff_t) strlen(peer)), peer);
        h = RB_FIND(hosts, &s->hosts, &key);
        if (h)
                return h;
        h = calloc(1, sizeof(*h));
        if (!h)
                return NULL;
        strcpy(h->name, key.name);
        h->server = s;
        h->account.parent = &s->account;
        h->account.settled = host_settled;
        loop_group_init(&h->group);
        h->account.max = h->account.kept_max = s->cfg.memory_max / 2;
        RB_INSERT(hosts, &s->hosts, h);
        return h;
}

static void count_tx(struct conn *c, size_t now)
{
        for (struct rpc_account *a = &c->host->account; a; a = a->parent)
                a->held = a->held - c->tx + now;
        c->tx = now;
}

static void conn_free(struct conn *c)
{
        struct server *s = c->server;

        TAILQ_REMOVE(&s->conns, c, next);
        s->n_conns--;
        loop_timer_disarm(&c->timer);
        c->rpc = rpc_conn_free(c->rpc);
        stream_free(c->stream);
        if (c->host) {
                count_tx(c, 0);
                c->host->n_conns--;
                host_put(c->host);
        }
        free(c);
}

/* Once in a while, with how often. */
static void complain(struct server *s, const char *who, const char *why)
{
        struct boot_time now = loop_now(s->loop);

        s->n_refused++;
        if (boot_before(now, s->complained_at))
                return;
        s->complained_at = boot_add(now, COMPLAIN_EVERY);
        log_warning("Ended the connection of client %s: %s; %" PRIu64
                    " such since this was last told.",
                    who, why, s->n_refused);
        s->n_refused = 0;
}

/* True of one who would need more than a minute for what waits for him, as fast as he has read
 * since the last look; and of one who has sent nothing more of what he began to send. Not of
 * one who merely has much, or who waits for us. Only what waited at both looks counts, and only
 * where they follow each other: nobody looks while there is room. */
static bool is_stuck(struct conn *c, struct boot_time now)
{
        const struct server *s = c->server;
        struct rpc_traffic t = rpc_conn_traffic(c->rpc), was = c->seen;
        nsec_t since = boot_diff(now, c->looked_at),
               patience = s->account.held > 2 * s->account.max ? PATIENCE_LEAST : PATIENCE;
        uint64_t taken;
        size_t unsent;

        if (since < patience)
                return c->stuck;
        /* The kernel takes megabytes for a slow reader, and then none for seconds. */
        unsent = stream_unsent(c->stream);
        t.out += unsent;
        t.taken -= min_of(t.taken, (uint64_t) unsent);
        c->looked_at = now;
        c->seen = t;
        taken = (t.taken - min_of(t.taken, was.taken)) / (uint64_t) (since / NSEC_PER_SEC);
        c->stuck = since < 2 * PATIENCE &&
                   (taken * TAKEN_WITHIN < min_of(t.out, was.out) ||
                    (min_of(t.in, was.in) > 0 && t.received == was.received));
        return c->stuck;
}

static size_t conn_held(const struct conn *c)
{
        return rpc_conn_held(c->rpc) + c->tx;
}

/* Of addresses the one that holds most, and of its connections the same. */
static bool holds_more(const struct conn *a, const struct conn *b)
{
        if (a->host != b->host)
                return a->host->account.held > b->host->account.held;
        return conn_held(a) > conn_held(b);
}

/* All together hold too much, though none is given more, or somebody waits for room: of those
 * who do not take what is theirs one goes. */
static void relieve(struct server *s)
{
        struct boot_time now = loop_now(s->loop);
        struct conn *c, *most = NULL;

        if ((s->account.held <= s->account.max && !s->account.wanted) ||
            boot_before(now, s->relieved_at))
                return;
        s->relieved_at = boot_add(now, RELIEVE_EVERY);
        s->account.wanted = false; /* who waits says so again */
        TAILQ_FOREACH (c, &s->conns, next)
                if (c->host && is_stuck(c, now) && conn_held(c) > 0 &&
                    (!most || holds_more(c, most)))
                        most = c;
        if (!most)
                return;
        complain(s, stream_peer(most->stream),
                 "clients hold as much memory as --max-client-bytes lets them, and it holds "
                 "most of those who do not read");
        conn_free(most);
}

static void on_data(struct stream *s, struct view data)
{
        struct conn *c = stream_userdata(s);
        struct server *server = c->server;
        int r = rpc_conn_input(c->rpc, data.p, data.len);

        if (r == -ENOMEM)
                return conn_free(c);
        if (r < 0)
                stream_close_after_tx(s); /* the GOAWAY that says why goes first */
        stream_kick(s);
        if (rpc_conn_n_calls(c->rpc) > 0) {
                c->called_at = loop_now(server->loop);
                TAILQ_REMOVE(&server->conns, c, next);
                TAILQ_INSERT_TAIL(&server->conns, c, next);
        }
        if (rpc_conn_backlog(c->rpc) > BACKLOG_HIGH && buf_len(stream_tx(s)) > 0)
                stream_pause(s, true);
        relieve(server);
}

static void on_fill(struct stream *s, struct buf *tx)
{
        struct conn *c = stream_userdata(s);
        struct server *server = c->server;
        size_t chunk = rpc_account_spare(&c->host->account) > 0 ? OUTPUT_CHUNK : OUTPUT_PRESSED;
        int r = rpc_conn_output(c->rpc, tx, chunk);

        if (r == -EPIPE)
                stream_close_after_tx(s);
        else if (r < 0)
                return conn_free(c);
        /* Of an empty one the stream keeps little. */
        count_tx(c, buf_len(tx) > 0 && tx->cap > OUTPUT_PRESSED ? tx->cap : buf_len(tx));
        if (rpc_conn_backlog(c->rpc) < BACKLOG_LOW)
                stream_pause(s, false);
        if (rpc_conn_can_go_on(c->rpc))
                stream_kick(s);
        relieve(server); /* answers are made here, and nobody may be sending */
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

        if (call->handler && (call->half || (call->unary && !call->ended))) {
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
        rpc_conn_forgive(c->rpc);
        rpc_conn_each_call(c->rpc, end_half_sent, c);
        loop_timer_in(t, REQUEST_TIMEOUT);
}

/* One that has had no call for longest makes room for who may have one. */
static bool make_room(struct server *s)
{
        struct boot_time now = loop_now(s->loop);
        struct conn *c = TAILQ_FIRST(&s->conns);

        for (int i = 0; c && i < IDLE_LOOKS; i++, c = TAILQ_NEXT(c, next))
                if (rpc_conn_n_calls(c->rpc) == 0 && boot_diff(now, c->called_at) >= IDLE_MIN) {
                        conn_free(c);
                        return true;
                }
        return false;
}

static const char *too_many(struct server *s, const struct host *h)
{
        if (h->n_conns > s->cfg.connections_of_address)
                return "its address has too many (--max-connections-per-address)";
        if (s->n_conns > s->cfg.connections_max && !make_room(s))
                return "there are too many (--max-connections)";
        return NULL;
}

static int greet(struct conn *c, const struct port *port, int fd)
{
        struct server *s = c->server;
        struct rpc_limits limits = {
                .message_max = s->cfg.request_max,
                .calls_max = CALLS_MAX,
                .too_large = "etcdserver: request is too large",
                .too_many = "etcdserver: too many requests",
                .busy = api_busy(s->api),
        };
        const char *why;
        int r;

        r = stream_accept(&c->stream, s->loop, fd, port->tls ? s->cfg.tls : NULL, &stream_ops,
                          c);
        if (r < 0)
                return r;
        c->host = host_get(s, stream_peer(c->stream));
        if (!c->host)
                return -ENOMEM;
        c->host->n_conns++;
        stream_set_group(c->stream, &c->host->group);
        c->turn.of = &c->host->turn;
        why = too_many(s, c->host);
        if (why)
                complain(s, stream_peer(c->stream), why);
        if (why && port->tls)
                return -EBUSY; /* to tell him would cost a handshake */
        limits.account = &c->host->account;
        r = rpc_conn_new_server(&c->rpc, &limits, api_accept, s->api);
        if (r < 0)
                return r;
        rpc_conn_set_userdata(c->rpc, c);
        if (why) {
                rpc_conn_refuse(c->rpc);
                stream_close_after_tx(c->stream);
        }
        loop_timer_in(&c->timer, GREETING_TIMEOUT);
        return 0;
}

static void on_accept(int fd, void *userdata)
{
        const struct port *port = userdata;
        struct server *s = port->server;
        struct conn *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->server = s;
        c->called_at = loop_now(s->loop);
        loop_timer_init(&c->timer, s->loop, on_timer);
        TAILQ_INSERT_TAIL(&s->conns, c, next);
        s->n_conns++;
        if (greet(c, port, fd) < 0)
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
                .connections = s->n_conns,
                .held = s->account.held + s->account.kept,
                .longest_turn = loop_longest_turn(s->loop),
        };
}

static void relieve_all(void *arg)
{
        relieve(arg);
}

static const struct api_conns conns = {.kick = kick,
                                       .common_name = common_name,
                                       .turn = turn,
                                       .load = load,
                                       .relieve = relieve_all};

int server_new(struct server **ret, struct loop *l, struct api *api,
               const struct server_config *cfg, char *err, size_t err_size)
{
        cleanup_(server_freep) struct server *s = calloc(1, sizeof(*s));
        const char *cursor = cfg->urls;
        char item[320];
        struct url u;
        int r;

        if (!s)
                return -ENOMEM;
        s->loop = l;
        s->api = api;
        s->cfg = *cfg;
        s->account.max = s->account.kept_max = cfg->memory_max;
        TAILQ_INIT(&s->conns);
        RB_INIT(&s->hosts);
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
                if (r == 0 && u.tls && !cfg->tls) {
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
                listener_set_reserve(s->listeners[i], RESERVE);
                s->n_listeners++;
        }
        api_set_conns(api, &conns, s);
        *ret = take_ptr(s);
        return 0;
}

struct server *server_free(struct server *s)
{
        struct conn *c;
        struct host *h;

        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_listeners; i++)
                listener_free(s->listeners[i]);
        while ((c = TAILQ_FIRST(&s->conns)))
                conn_free(c);
        while ((h = RB_ROOT(&s->hosts))) { /* they have writes, and go with the last one */
                RB_REMOVE(hosts, &s->hosts, h);
                h->server = NULL;
        }
        free(s);
        return NULL;
}
