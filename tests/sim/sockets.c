#include "sockets.h"

#include <stdio.h>

#include "loop/listener.h"
#include "names.h"
#include "tcp.h"

#define READ_MOST ((size_t) 64 << 10)

struct stream {
        LIST_ENTRY(stream) next;
        struct tcp *tcp; /* NULL: closed */
        int side;
        bool open, kicked, close_after_tx, in_callback, freed;
        struct buf tx;
        const struct stream_ops *ops;
        void *userdata;
        unsigned host;
        char peer[80];
};

struct listener {
        unsigned host;
        listener_fn fn;
        void *userdata;
};

static struct {
        struct loop loop;
        struct listener *listener;
} hosts[REPLICAS_MAX];

static LIST_HEAD(, stream) streams = LIST_HEAD_INITIALIZER(streams);
static struct rnd rnd;
static nsec_t wake; /* nothing is due before */
static unsigned speaker;

static unsigned host_of(const struct loop *l)
{
        for (unsigned i = 0; i < REPLICAS_MAX; i++)
                if (l == &hosts[i].loop)
                        return i;
        abort();
}

void sockets_stir(void)
{
        wake = 0;
}

nsec_t sockets_due_at(void)
{
        return wake;
}

void sockets_rest(nsec_t until)
{
        wake = until;
}

void sockets_begin(struct world *w)
{
        rnd_init(&rnd, ~w->seed * 5);
        memset(hosts, 0, sizeof(hosts));
        wake = 0;
        names_begin(w);
}

struct loop *sockets_start(const struct replica_node *n)
{
        loop_init(&hosts[n->i].loop, &n->clock);
        return &hosts[n->i].loop;
}

/* ---- streams ---- */

static int stream_new(struct stream **ret, unsigned host, const struct stream_ops *ops,
                      void *userdata)
{
        struct stream *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->host = host;
        s->ops = ops;
        s->userdata = userdata;
        LIST_INSERT_HEAD(&streams, s, next);
        *ret = s;
        return 0;
}

int stream_accept(struct stream **ret, struct loop *l, int fd, struct tls *tls,
                  const struct stream_ops *ops, void *userdata)
{
        struct tcp *c = tcp_find(fd);
        int r = stream_new(ret, host_of(l), ops, userdata);

        (void) tls;
        if (r < 0)
                return r;
        (*ret)->tcp = c;
        (*ret)->side = CALLED;
        (*ret)->open = true;
        c->side[CALLED].stream = *ret;
        snprintf((*ret)->peer, sizeof((*ret)->peer), "10.0.0.%u:%d", c->side[CALLER].host + 1,
                 c->fd);
        stream_kick(*ret);
        return 0;
}

int stream_connect(struct stream **ret, struct loop *l, const struct sockaddr *addr,
                   socklen_t addr_len, struct tls *tls, const char *name,
                   const struct stream_ops *ops, void *userdata)
{
        struct names_place at = names_look(addr);
        int r = stream_new(ret, host_of(l), ops, userdata);

        (void) addr_len;
        (void) tls;
        (void) name;
        if (r < 0)
                return r;
        snprintf((*ret)->peer, sizeof((*ret)->peer), "%s", at.text);
        {
                MEMORY(MEMORY_OURS);
                (*ret)->tcp = tcp_call((*ret)->host, at.host, *ret);
        }
        return 0;
}

void stream_set_owner(struct stream *s, const struct stream_ops *ops, void *userdata)
{
        s->ops = ops;
        s->userdata = userdata;
}

void *stream_userdata(const struct stream *s)
{
        return s->userdata;
}

struct buf *stream_tx(struct stream *s)
{
        return &s->tx;
}

size_t stream_unsent(const struct stream *s)
{
        return buf_len(&s->tx) + (s->tcp ? tcp_unacknowledged(s->tcp, s->side) : 0);
}

const char *stream_peer(const struct stream *s)
{
        return s->peer;
}

void stream_kick(struct stream *s)
{
        s->kicked = s->tcp != NULL;
        sockets_stir();
}

void stream_close_after_tx(struct stream *s)
{
        s->close_after_tx = true;
        stream_kick(s);
}

bool sockets_is_open(const struct stream *s)
{
        return s->tcp && s->open;
}

unsigned sockets_speaker(void)
{
        return speaker;
}

void stream_lost(struct stream *s)
{
        s->tcp = NULL;
        s->open = s->kicked = false;
}

static void shut(struct stream *s)
{
        MEMORY(MEMORY_OURS);

        if (s->tcp)
                tcp_close(s->tcp, s->side);
        stream_lost(s);
}

static void destroy(struct stream *s)
{
        LIST_REMOVE(s, next);
        buf_fini(&s->tx);
        free(s);
}

struct stream *stream_free(struct stream *s)
{
        if (!s)
                return NULL;
        shut(s);
        if (s->in_callback)
                s->freed = true;
        else
                destroy(s);
        return NULL;
}

static void dead(struct stream *s, const char *why)
{
        if (!s->tcp)
                return;
        shut(s);
        s->ops->on_close(s, why);
}

static void leave(struct stream *s)
{
        s->in_callback = false;
        if (s->freed)
                destroy(s);
}

/* Hands over bytes as a read(2) may return them: of several parcels together, or a part. */
static void read_bytes(struct stream *s, const struct buf *b)
{
        size_t at = 0, n;

        while (at < buf_len(b) && s->tcp) {
                n = min_of(buf_len(b) - at, READ_MOST);
                if (chance_in(&rnd, 20))
                        n = rnd_between(&rnd, 1, n);
                s->ops->on_data(s, (struct view){buf_head(b) + at, n});
                at += n;
        }
}

static bool next_is_bytes(const struct stream *s)
{
        const struct tcp_parcel *p = s->tcp ? STAILQ_FIRST(&s->tcp->side[s->side].in) : NULL;

        return p && p->arrived && p->kind == TCP_BYTES;
}

static void take(struct stream *s, struct tcp_parcel *p)
{
        switch (p->kind) {
        case TCP_CALL:
                abort();
        case TCP_ACCEPT:
                s->open = true;
                if (s->ops->on_open)
                        s->ops->on_open(s);
                return stream_kick(s);
        case TCP_BYTES:
                while (next_is_bytes(s) && chance_in(&rnd, 70)) {
                        MEMORY(MEMORY_OURS);
                        struct tcp_parcel *more = tcp_take(s->tcp, s->side);

                        buf_add(&p->bytes, buf_head(&more->bytes), buf_len(&more->bytes));
                        tcp_parcel_free(more);
                }
                return read_bytes(s, &p->bytes);
        case TCP_END:
                return dead(s, "the other side closed the connection");
        case TCP_RESET:
                return dead(s, s->open ? "connection reset by peer" : "connection refused");
        }
}

/* Returns whether there was anything. */
static bool serve(struct stream *s)
{
        struct tcp_parcel *p = s->tcp ? tcp_take(s->tcp, s->side) : NULL;

        if (!p)
                return false;
        s->in_callback = true;
        speaker = s->tcp->side[!s->side].host;
        take(s, p);
        tcp_parcel_free(p);
        leave(s);
        return true;
}

static void flush(struct stream *s)
{
        size_t n;

        s->kicked = false;
        if (!s->tcp || !s->open)
                return;
        if (buf_error(&s->tx) < 0)
                return dead(s, "out of memory");
        if (buf_len(&s->tx) > 0) {
                MEMORY(MEMORY_OURS);

                n = tcp_send(s->tcp, s->side, buf_head(&s->tx), buf_len(&s->tx));
                trace_add(W, TRACED_WIRE, s->host << 8 | (unsigned) s->side, buf_head(&s->tx),
                          n);
                buf_consume(&s->tx, n);
        }
        if (buf_len(&s->tx) == 0 && s->close_after_tx)
                dead(s, "closed");
}

static bool has_room_again(const struct stream *s)
{
        return s->open && !s->kicked && buf_len(&s->tx) > 0 && tcp_accepts(s->tcp, s->side);
}

void sockets_flush(unsigned host)
{
        struct stream *s, *next;

        LIST_FOREACH_SAFE (s, &streams, next, next)
                if (s->host == host && s->tcp && s->kicked) {
                        s->in_callback = true;
                        flush(s);
                        leave(s);
                }
}

/* ---- listeners ---- */

int listener_new(struct listener **ret, struct loop *loop, const struct url *u, listener_fn fn,
                 void *userdata)
{
        struct listener *l = calloc(1, sizeof(*l));

        (void) u;
        if (!l)
                return -ENOMEM;
        *l = (struct listener){.host = host_of(loop), .fn = fn, .userdata = userdata};
        hosts[l->host].listener = l;
        *ret = l;
        return 0;
}

void listener_set_reserve(struct listener *l, unsigned n)
{
        (void) l;
        (void) n;
}

struct listener *listener_free(struct listener *l)
{
        if (!l)
                return NULL;
        hosts[l->host].listener = NULL;
        free(l);
        return NULL;
}

bool sockets_listen(unsigned host)
{
        return host < REPLICAS_MAX && hosts[host].listener;
}

/* Connections that are not accepted when the listener ends are reset. */
static bool accept_one(unsigned host)
{
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next) {
                const struct listener *l = hosts[host].listener;

                if (!c->knocks || c->side[CALLED].host != host)
                        continue;
                c->knocks = false;
                if (l)
                        l->fn(c->fd, l->userdata);
                if (!c->side[CALLED].stream)
                        tcp_close(c, CALLED);
                return true;
        }
        return false;
}

/* ---- a turn ---- */

static bool serve_one(unsigned host)
{
        struct stream *s;

        LIST_FOREACH (s, &streams, next)
                if (s->host == host && serve(s))
                        return true;
        return false;
}

bool sockets_turn(unsigned host)
{
        struct stream *s;
        bool any = false;

        while (serve_one(host) || accept_one(host) || names_answer(host) ||
               loop_run_timer(&hosts[host].loop))
                any = true;
        LIST_FOREACH (s, &streams, next)
                if (s->host == host && s->tcp && has_room_again(s))
                        any = s->kicked = true;
        return any;
}

nsec_t sockets_next(unsigned host)
{
        return min_of(loop_next(&hosts[host].loop), names_next(host));
}
