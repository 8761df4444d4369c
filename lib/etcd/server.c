/* More than 800 lines, but one thing: connections, from accept to end, and what limits them.
 * Each limit is checked where a connection arrives, sends, reads or ends. */
#include "etcd/server.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/tree.h"
#include "core/status.h"
#include "etcd/gateway.h"
#include "http/conn.h"
#include "loop/date.h"
#include "rpc/conn.h"

#define CALLS_MAX 8192
#define OUTPUT_CHUNK ((size_t) 64 << 10)
#define OUTPUT_PRESSED ((size_t) 16 << 10) /* while too much memory is held */
#define BACKLOG_HIGH 4096 /* frames for a client that reads nothing: then we stop reading */
#define BACKLOG_LOW 1024
#define GREETING_TIMEOUT (10 * NSEC_PER_SEC)
#define REQUEST_TIMEOUT (10 * NSEC_PER_SEC) /* for a message to arrive completely */
#define PREFACE "PRI"     /* how HTTP/2 begins (RFC 9113, 3.4); HTTP/1.1 has no such method */
#define TLS_FIRST_BYTE 22 /* of a handshake (RFC 8446, 5.1) */
#define RESERVE 256 /* descriptors kept for the log, links to other replicas and the like */
#define IDLE_MIN (10 * NSEC_PER_SEC) /* after so long without calls it may be closed... */
#define IDLE_LOOKS 64                /* ...if it is among this many that were idle longest */
#define STRANGE_MIN NSEC_PER_SEC     /* the same for one that has never had a call, ... */
#define STRANGE_FEW 8    /* ...or whose address has this many more of these than twice ours */
#define STRANGE_LOOKS 64 /* it is one of this many that came first */
#define PATIENCE (5 * NSEC_PER_SEC) /* between two looks at what a client takes... */
#define PATIENCE_LEAST NSEC_PER_SEC /* ...and this if more than twice the maximum is held */
#define TAKEN_WITHIN 60 /* seconds: a client that would need longer counts as not reading */
#define RELIEVE_EVERY (10 * NSEC_PER_MSEC)
#define LOOKS 512        /* connections in one look: 0.3 ms; thousands would take 10 to 50 */
#define ENDS_AT_ONCE 256 /* of a closed connection's calls: 8,000 would take 10 ms */
#define FEED_EVERY (2 * NSEC_PER_MSEC)
#define DOOMED 16 /* candidates, known once all have been checked; one is closed each time */
#define COMPLAIN_EVERY (10 * NSEC_PER_SEC)
#define REFUSED_MAX 64 /* refused connections kept until they have shown which HTTP... */
#define REFUSED_TIMEOUT NSEC_PER_SEC /* ...to answer them in */

/* Sent before the connection ends to a client whose HTTP/1.1 requests are not read. */
#define LAST_ANSWER(status, length, text)                                    \
        "HTTP/1.1 " status "\r\nContent-Type: text/plain; charset=utf-8\r\n" \
        "Content-Length: " length "\r\nConnection: close\r\n\r\n" text

/* The crowd that a connection counts in. */
enum kind {
        CLIENT,
        PROBE,   /* at a port for probes, which get an answer even if there is no room */
        REFUSED, /* it is closed as soon as it has been told that it is refused */
        N_KINDS,
};

/* Something that is logged only now and then, with a count. */
struct complaint {
        struct boot_time again_at;
        uint64_t n;
};

/* An address that clients come from. It exists while it has connections, or writes that wait.
 */
struct host {
        RB_ENTRY(host) by_name;
        struct server *server; /* NULL: it has ended */
        char name[64];
        size_t n[N_KINDS]; /* of its connections */
        size_t n_strangers;
        struct rpc_account account;
        struct api_turn turn;
        struct loop_group group;
};

RB_HEAD(hosts, host);

struct conn {
        TAILQ_ENTRY(conn) next; /* in the list of its crowd, or of connections that end */
        TAILQ_ENTRY(conn) by_age;
        TAILQ_ENTRY(conn) by_hunger;
        TAILQ_ENTRY(conn) by_coming;
        bool stranger; /* in `by_coming`: it has had no call yet */
        bool hungry;   /* in `by_hunger`: large messages have begun and wait for room */
        struct server *server;
        struct host *host;
        struct stream *stream;
        struct rpc_conn *rpc; /* NULL until the client has shown which HTTP it speaks */
        const struct port *port;
        enum kind kind;
        bool told;                      /* that it is refused */
        struct http_conn *http;         /* carries its calls if it speaks HTTP/1.1; else NULL */
        char head[sizeof(PREFACE) - 1]; /* the bytes received before that was known */
        size_t n_head;
        bool ended;              /* the client sends no more, and still gets answers */
        struct loop_timer timer; /* ends messages that have not arrived completely */
        struct boot_time called_at,
                looked_at;       /* when it last had a call, or else arrived; see is_stuck() */
        struct rpc_traffic seen; /* at that time */
        bool stuck;              /* the result at that time */
        size_t tx;               /* bytes in the stream and in http_conn, as counted */
        struct api_turn turn;
        struct loop_later ending; /* it is closed; its calls end in parts */
};

#define PORTS_MAX 24

struct port {
        struct server *server;
        bool tls, probes;
};

/* Connections of one kind. They use no slots of another kind. */
struct crowd {
        TAILQ_HEAD(conns, conn) conns; /* in order of idleness, the longest first */
        struct conns strangers;        /* those that have had no call, the oldest first */
        size_t n, max;                 /* including those that are ending */
};

struct server {
        struct loop *loop;
        struct api *api;
        struct server_config cfg;
        struct http_site site; /* for ports without TLS */
        struct listener *listeners[PORTS_MAX];
        struct port ports[PORTS_MAX];
        size_t n_listeners;
        struct crowd crowds[N_KINDS];
        struct conns by_age; /* all connections */
        struct conns ending; /* in none of the other lists any more */
        struct conns hungry; /* in the order in which they began to wait */
        struct loop_timer feeding;
        struct conn *look;           /* the next to check; NULL: the first */
        struct conn *worst[DOOMED];  /* of this round: those that hold most; then NULL */
        struct conn *doomed[DOOMED]; /* the result of the last complete round */
        struct hosts hosts;
        struct http_desk desk;
        struct rpc_account account; /* for all clients */
        struct boot_time relieved_at;
        struct complaint ended, strangers;
        bool stops;
};

static int host_cmp(const struct host *a, const struct host *b)
{
        return strcmp(a->name, b->name);
}

TREE_GENERATE(hosts, host, by_name, host_cmp)

static struct crowd *crowd_of(const struct conn *c)
{
        return &c->server->crowds[c->kind];
}

/* ---- accounts ---- */

static void host_put(struct host *h)
{
        if (h->n[CLIENT] + h->n[PROBE] + h->n[REFUSED] > 0 || h->account.n_writes > 0)
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

static void count(struct conn *c, enum kind kind)
{
        c->kind = kind;
        c->server->crowds[kind].n++;
        c->host->n[kind]++;
}

static void discount(struct conn *c)
{
        c->server->crowds[c->kind].n--;
        c->host->n[c->kind]--;
}

/* A stranger always has a host. */
static void set_stranger(struct conn *c, bool stranger)
{
        if (stranger == c->stranger)
                return;
        c->stranger = stranger;
        if (stranger) {
                TAILQ_INSERT_TAIL(&crowd_of(c)->strangers, c, by_coming);
                c->host->n_strangers++;
        } else {
                TAILQ_REMOVE(&crowd_of(c)->strangers, c, by_coming);
                c->host->n_strangers--;
        }
}

static void count_tx(struct conn *c, size_t now)
{
        for (struct rpc_account *a = &c->host->account; a; a = a->parent)
                a->held = a->held - c->tx + now;
        c->tx = now;
}

/* The stream keeps no memory for an empty buffer. */
static size_t beside_calls(const struct conn *c)
{
        const struct buf *tx = stream_tx(c->stream);

        return (buf_len(tx) > 0 && tx->cap > OUTPUT_PRESSED ? tx->cap : buf_len(tx)) +
               (c->http ? http_conn_held(c->http) : 0);
}

static void forget(struct conn *list[static DOOMED], const struct conn *c)
{
        size_t n = 0;

        for (size_t i = 0; i < DOOMED; i++)
                if (list[i] != c)
                        list[n++] = list[i];
        if (n < DOOMED)
                list[n] = NULL;
}

static void set_hungry(struct conn *c, bool hungry)
{
        struct server *s = c->server;

        if (hungry == c->hungry)
                return;
        c->hungry = hungry;
        if (!hungry) {
                TAILQ_REMOVE(&s->hungry, c, by_hunger);
                return;
        }
        if (TAILQ_EMPTY(&s->hungry))
                loop_timer_in(&s->feeding, FEED_EVERY);
        TAILQ_INSERT_TAIL(&s->hungry, c, by_hunger);
}

/* Nothing reports that others hold less, so a timer checks while somebody waits for room. */
static void on_feeding(struct loop_timer *t)
{
        struct server *s = container_of(t, struct server, feeding);
        struct conn *c, *last = TAILQ_LAST(&s->hungry, conns);

        for (int i = 0; i < LOOKS && (c = TAILQ_FIRST(&s->hungry)); i++) {
                bool given = rpc_conn_give(c->rpc);

                set_hungry(c, false);
                set_hungry(c, rpc_conn_begs(c->rpc)); /* behind all others */
                if (given)
                        stream_kick(c->stream);
                if (c == last)
                        break;
        }
        if (!TAILQ_EMPTY(&s->hungry))
                loop_timer_in(t, FEED_EVERY);
}

/* From here on nothing is reported about the connection, read or sent. */
static void conn_leave(struct conn *c)
{
        struct server *s = c->server;

        TAILQ_REMOVE(&crowd_of(c)->conns, c, next);
        if (s->look == c)
                s->look = TAILQ_NEXT(c, by_age);
        TAILQ_REMOVE(&s->by_age, c, by_age);
        forget(s->worst, c);
        forget(s->doomed, c);
        set_hungry(c, false);
        set_stranger(c, false);
        loop_timer_disarm(&c->timer);
        if (c->host)
                count_tx(c, 0);
        c->stream = stream_free(c->stream);
        TAILQ_INSERT_TAIL(&s->ending, c, next);
}

static void conn_end(struct conn *c)
{
        struct server *s = c->server;

        loop_later_cancel(&c->ending);
        TAILQ_REMOVE(&s->ending, c, next);
        if (c->http)
                http_conn_free(c->http);
        else
                rpc_conn_free(c->rpc);
        if (c->host) {
                discount(c);
                host_put(c->host);
        }
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

static void conn_free(struct conn *c)
{
        conn_leave(c);
        if (!c->rpc || c->http || rpc_conn_n_calls(c->rpc) <= ENDS_AT_ONCE)
                return conn_end(c);
        c->ending.group = &c->host->group;
        loop_share(&c->ending, c->server->loop, on_ending);
}

/* Logs @what was done to client @who, and @why. */
static void complain(struct server *s, struct complaint *about, const char *what,
                     const char *who, const char *why)
{
        struct boot_time now = loop_now(s->loop);

        about->n++;
        if (boot_before(now, about->again_at))
                return;
        about->again_at = boot_add(now, COMPLAIN_EVERY);
        log_warning("%s client %s: %s; %" PRIu64 " ended like this since it was last logged.",
                    what, who, why, about->n);
        about->n = 0;
}

static void complain_ended(struct server *s, const char *who, const char *why)
{
        complain(s, &s->ended, "Ended the connection of", who, why);
}

/* True if, at the rate at which the client has read since the last look, it would need more
 * than a minute for what waits for it; or if it has sent nothing more of a message that it
 * began. False if it merely has much data, or waits for us. Only what waited at both looks
 * counts, and only if they follow closely: nobody looks while there is room. */
static bool is_stuck(struct conn *c, struct boot_time now)
{
        const struct server *s = c->server;
        struct rpc_traffic t = {0}, was = c->seen;
        nsec_t since = boot_diff(now, c->looked_at),
               patience = s->account.held > 2 * s->account.max ? PATIENCE_LEAST : PATIENCE;
        uint64_t taken;
        size_t unsent;

        if (since < patience || !c->rpc)
                return c->stuck;
        t = rpc_conn_traffic(c->rpc);
        /* The kernel buffers megabytes for a slow reader, and then takes nothing for seconds.
         */
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
        return (c->rpc ? rpc_conn_held(c->rpc) : 0) + c->tx;
}

/* Compares addresses by what they hold, and connections of one address likewise. */
static bool holds_more(const struct conn *a, const struct conn *b)
{
        if (a->host != b->host)
                return a->host->account.held > b->host->account.held;
        return conn_held(a) > conn_held(b);
}

static void insert(struct conn *list[static DOOMED], struct conn *c)
{
        size_t at = 0;

        while (at < DOOMED && list[at] && !holds_more(c, list[at]))
                at++;
        if (at == DOOMED)
                return;
        memmove(list + at + 1, list + at, (DOOMED - at - 1) * sizeof(*list));
        list[at] = c;
}

/* Continues to look for clients that do not read: a few connections are all checked at once,
 * many in parts. */
static void look(struct server *s, struct boot_time now)
{
        struct conn *c = s->look ? s->look : TAILQ_FIRST(&s->by_age);

        for (int i = 0; c && i < LOOKS; i++, c = TAILQ_NEXT(c, by_age))
                if (c->host && is_stuck(c, now) && conn_held(c) > 0)
                        insert(s->worst, c);
        s->look = c;
        if (c)
                return;
        memcpy(s->doomed, s->worst, sizeof(s->doomed));
        memset(s->worst, 0, sizeof(s->worst));
}

/* Clients together hold too much, although none is given more; or somebody waits for room.
 * Closes one of the connections that do not read. */
static void relieve(struct server *s)
{
        struct boot_time now = loop_now(s->loop);
        struct conn *c;

        if (s->stops || (s->account.held <= s->account.max && !s->account.wanted) ||
            boot_before(now, s->relieved_at))
                return;
        s->relieved_at = boot_add(now, RELIEVE_EVERY);
        s->account.wanted = false; /* those that wait will set it again */
        look(s, now);
        while ((c = s->doomed[0]) && !(is_stuck(c, now) && conn_held(c) > 0))
                forget(s->doomed, c);
        if (!c)
                return;
        complain_ended(s, stream_peer(c->stream),
                       "clients hold all the memory that --max-client-bytes allows, and this "
                       "one holds most of those that do not read");
        conn_free(c);
}

static struct rpc_limits limits_of(const struct conn *c)
{
        const struct server *s = c->server;

        return (struct rpc_limits){
                .message_max = s->cfg.request_max,
                .calls_max = CALLS_MAX,
                .too_large = "etcdserver: request is too large",
                .too_many = status_too_many.text,
                .account = &c->host->account,
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

static const struct http_site secure_site = {
        .method_of = gateway_method_of, .has = resource_is, .date = date_http};

/* A port for probes has no methods. */
static const struct gateway_method *no_method(const char *path unused_)
{
        return NULL;
}

static const struct http_site probe_site = {
        .method_of = no_method, .has = resource_is_probe, .date = date_http};

static int speak_http1(struct conn *c)
{
        struct rpc_limits limits = limits_of(c);
        const struct port *port = c->port;
        int r = http_conn_new(&c->http, &limits,
                              port->probes ? &probe_site
                              : port->tls  ? &secure_site
                                           : &c->server->site,
                              &c->server->desk, port->probes ? api_accept_probe : api_accept,
                              c->server->api);

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
                complain(c->server, &c->server->strangers, "Refused", stream_peer(c->stream),
                         "it speaks TLS, and this port is one without (http://)");
        r = http1 ? speak_http1(c) : speak_http2(c);
        if (r == 0)
                r = input(c, c->head, c->n_head);
        return r < 0 ? r : input(c, data.p + n, data.len - n);
}

static void on_data(struct stream *s, struct view data)
{
        struct conn *c = stream_userdata(s);
        struct server *server = c->server;
        struct conns *conns = &crowd_of(c)->conns;
        int r;

        if (c->told)
                return;
        r = c->rpc ? input(c, data.p, data.len) : first_input(c, data);
        if (r == -ENOMEM)
                return conn_free(c);
        if (!c->rpc || c->told)
                return;
        if (c->http)
                count_tx(c, beside_calls(c));
        set_hungry(c, rpc_conn_begs(c->rpc));
        if (r < 0)
                stream_close_after_tx(s); /* the GOAWAY that says why is sent first */
        stream_kick(s);
        if (rpc_conn_n_calls(c->rpc) > 0) {
                set_stranger(c, false);
                c->called_at = loop_now(server->loop);
                TAILQ_REMOVE(conns, c, next);
                TAILQ_INSERT_TAIL(conns, c, next);
        }
        if ((rpc_conn_backlog(c->rpc) > BACKLOG_HIGH && buf_len(stream_tx(s)) > 0) ||
            (c->http && http_conn_is_full(c->http)))
                stream_pause(s, true);
        relieve(server);
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
        count_tx(c, beside_calls(c));
        set_hungry(c, rpc_conn_begs(c->rpc));
        if (!c->ended && rpc_conn_backlog(c->rpc) < BACKLOG_LOW &&
            !(c->http && http_conn_is_full(c->http)))
                stream_pause(s, false);
        if (can_go_on(c))
                stream_kick(s);
        relieve(server); /* answers are built here, perhaps while nothing is sent */
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
                complain(c->server, &c->server->strangers, "Refused", stream_peer(s), why);
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
                        complain_ended(c->server, stream_peer(c->stream), why);
                return conn_free(c);
        }
        rpc_conn_forgive(c->rpc);
        rpc_conn_each_call(c->rpc, end_half_sent, c);
        loop_timer_in(t, REQUEST_TIMEOUT);
}

/* Closes the connection that has been without a call for longest, to make room for another. */
static bool make_room(const struct server *s, struct crowd *crowd)
{
        struct boot_time now = loop_now(s->loop);
        struct conn *c = TAILQ_FIRST(&crowd->conns);

        for (int i = 0; c && i < IDLE_LOOKS; i++, c = TAILQ_NEXT(c, next))
                if ((!c->rpc || rpc_conn_n_calls(c->rpc) == 0) &&
                    boot_diff(now, c->called_at) >= IDLE_MIN) {
                        conn_free(c);
                        return true;
                }
        return false;
}

/* Whether @m, which has had no call since it arrived, must make room for @c. */
static bool makes_room(const struct conn *m, const struct conn *c)
{
        return boot_diff(loop_now(c->server->loop), m->called_at) >= STRANGE_MIN ||
               m->host->n_strangers > STRANGE_FEW + 2 * c->host->n_strangers;
}

/* Closes one of the connections that have had no call since they arrived; with @own, only one
 * of the address of @c: among the oldest, one of the address that has most of them. So a flood
 * of connections that send nothing, or only begin a handshake, keeps nobody out. */
static bool end_stranger(const struct conn *c, bool own)
{
        struct conn *m = TAILQ_FIRST(&crowd_of(c)->strangers), *most = NULL;

        for (int i = 0; m && i < STRANGE_LOOKS; i++, m = TAILQ_NEXT(m, by_coming))
                if ((!own || m->host == c->host) && makes_room(m, c) &&
                    (!most || m->host->n_strangers > most->host->n_strangers))
                        most = m;
        if (!most)
                return false;
        complain_ended(c->server, stream_peer(most->stream),
                       "others wait for a place, and it has asked for nothing");
        conn_free(most);
        return true;
}

static const char *too_many(const struct conn *c)
{
        const struct server *s = c->server;
        struct crowd *crowd = crowd_of(c);

        if (c->kind == CLIENT && c->host->n[CLIENT] > s->cfg.connections_of_address &&
            !end_stranger(c, true))
                return "its address has too many (--max-connections-per-address)";
        if (crowd->n <= crowd->max || end_stranger(c, false) || make_room(s, crowd))
                return NULL;
        return c->kind == PROBE
                       ? "there are too many on the ports for probes (--listen-metrics-urls)"
                       : "there are too many (--max-connections)";
}

/* A refused connection no longer counts, and so uses nobody's slot. Only a few of these wait at
 * a time: in a flood, clients are not told. */
static int refuse(struct conn *c, const char *why)
{
        struct server *s = c->server;
        struct crowd *refused = &s->crowds[REFUSED];

        complain_ended(s, stream_peer(c->stream), why);
        if (c->port->tls)
                return -EBUSY; /* to tell the client would cost a handshake */
        set_stranger(c, false);
        TAILQ_REMOVE(&crowd_of(c)->conns, c, next);
        discount(c);
        count(c, REFUSED);
        TAILQ_INSERT_TAIL(&refused->conns, c, next);
        if (refused->n > refused->max)
                conn_free(TAILQ_FIRST(&refused->conns));
        loop_timer_in(&c->timer, REFUSED_TIMEOUT);
        return 0;
}

static int greet(struct conn *c, int fd)
{
        struct server *s = c->server;
        const struct port *port = c->port;
        const char *why;
        int r;

        r = stream_accept(&c->stream, s->loop, fd, port->tls ? s->cfg.tls : NULL, &stream_ops,
                          c);
        if (r < 0)
                return r;
        c->host = host_get(s, stream_peer(c->stream));
        if (!c->host)
                return -ENOMEM;
        count(c, c->kind);
        set_stranger(c, true);
        stream_set_group(c->stream, &c->host->group);
        c->turn.of = &c->host->turn;
        why = too_many(c);
        if (why)
                return refuse(c, why);
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
        c->port = port;
        c->kind = port->probes ? PROBE : CLIENT;
        c->called_at = loop_now(s->loop);
        loop_timer_init(&c->timer, s->loop, on_timer);
        TAILQ_INSERT_TAIL(&crowd_of(c)->conns, c, next);
        TAILQ_INSERT_TAIL(&s->by_age, c, by_age);
        if (greet(c, fd) < 0)
                conn_free(c);
}

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
                .held = s->account.held + s->account.kept,
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
        relieve(arg);
}

static const struct api_conns conns = {.kick = kick,
                                       .common_name = common_name,
                                       .turn = turn,
                                       .load = load,
                                       .clock = clock_of,
                                       .turns = turns,
                                       .relieve = relieve_all};

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
                        snprintf(err, err_size, "%s wants TLS: give --cert-file and --key-file",
                                 item);
                        return -EINVAL;
                }
                s->ports[i] = (struct port){.server = s, .tls = u.tls, .probes = probes};
                if (r == 0)
                        r = listener_new(&s->listeners[i], s->loop, &u, on_accept,
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
        s->account.max = s->account.kept_max = cfg->memory_max;
        s->crowds[CLIENT].max = cfg->connections_max;
        s->crowds[PROBE].max = SERVER_PROBES_MAX;
        s->crowds[REFUSED].max = REFUSED_MAX;
        for (size_t i = 0; i < N_KINDS; i++) {
                TAILQ_INIT(&s->crowds[i].conns);
                TAILQ_INIT(&s->crowds[i].strangers);
        }
        TAILQ_INIT(&s->by_age);
        TAILQ_INIT(&s->ending);
        TAILQ_INIT(&s->hungry);
        loop_timer_init(&s->feeding, l, on_feeding);
        RB_INIT(&s->hosts);
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

/* With HTTP/2 the end of the connection says enough. With HTTP/1.1 it would mean no answer, or
 * half of one, and the client could not tell what that means; etcd answers, too. */
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
        struct host *h;

        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_listeners; i++)
                listener_free(s->listeners[i]);
        say_goodbye(s);
        while ((c = TAILQ_FIRST(&s->by_age)))
                conn_free(c);
        while ((c = TAILQ_FIRST(&s->ending)))
                conn_end(c);
        while ((h = RB_ROOT(&s->hosts))) { /* these have writes, and go with the last one */
                RB_REMOVE(hosts, &s->hosts, h);
                h->server = NULL;
        }
        loop_timer_disarm(&s->feeding);
        http_desk_fini(&s->desk);
        free(s);
        return NULL;
}
