#include "tcp.h"

#include "sockets.h"

#define AGAIN (200 * MSEC) /* RTO_MIN of Linux */
#define CALL_AGAIN NSEC_PER_SEC
#define GIVE_UP (5 * NSEC_PER_SEC) /* see stream.c, also for the next ones */
#define IDLE (10 * NSEC_PER_SEC)
#define UNANSWERED (9 * NSEC_PER_SEC)
#define PIECE ((size_t) 8 << 10) /* of what a narrow link carries */
#define FD_FIRST (1 << 20)       /* no real descriptor, so that to close one does nothing */

struct tcp_list tcp_all = LIST_HEAD_INITIALIZER(tcp_all);

static struct world *w;
static struct rnd rnd;
static int fds;
static size_t buffer;                             /* of a socket */
static nsec_t troubled[NOWHERE + 1][NOWHERE + 1]; /* see tcp_troubled() */

void tcp_begin(struct world *world)
{
        w = world;
        rnd_init(&rnd, ~world->seed * 3);
        fds = FD_FIRST;
        buffer = chance_in(&rnd, 50) ? rnd_between(&rnd, 500, 8000)
                                     : rnd_between(&rnd, 8000, 1 << 20);
        if (w->bulk)
                buffer = max_of(buffer, (size_t) 1 << 16);
        if (w->rated)
                buffer = (size_t) 256 << 10 << rnd_between(&rnd, 0, 4);
        memset(troubled, 0, sizeof(troubled));
}

void tcp_parcel_free(struct tcp_parcel *p)
{
        if (p)
                buf_fini(&p->bytes);
        free(p);
}

/* Drops what is on its way to that side; with @arrived, also what it has not read. */
static void drop(struct tcp_side *to, bool arrived)
{
        struct tcp_parcel *p, *next;

        STAILQ_FOREACH_SAFE (p, &to->in, next, next)
                if (arrived || !p->arrived) {
                        STAILQ_REMOVE(&to->in, p, tcp_parcel, next);
                        tcp_parcel_free(p);
                }
        to->last = 0;
}

static void destroy(struct tcp *c)
{
        LIST_REMOVE(c, next);
        drop(&c->side[CALLER], true);
        drop(&c->side[CALLED], true);
        free(c);
}

void tcp_end(void)
{
        struct tcp *c;

        while ((c = LIST_FIRST(&tcp_all)))
                destroy(c);
}

struct tcp *tcp_find(int fd)
{
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next)
                if (c->fd == fd)
                        return c;
        return NULL;
}

/* ---- the network ---- */

static bool has_no_host(unsigned i)
{
        return i == NOWHERE || (i < NODES_MAX && (W->r[i].asleep || W->r[i].dark));
}

bool tcp_is_cut(unsigned a, unsigned b)
{
        return has_no_host(a) || has_no_host(b) ||
               (a < NODES_MAX && b < NODES_MAX && (W->cut[a][b] || W->cut[b][a]));
}

void tcp_trouble(unsigned a, unsigned b)
{
        troubled[a][b] = troubled[b][a] = W->now;
}

nsec_t tcp_troubled(unsigned a, unsigned b)
{
        return troubled[a][b];
}

static bool is_lossy(unsigned in_1000)
{
        return w->faults.loss && !w->calm && rnd_between(&rnd, 1, 1000) <= in_1000;
}

static bool is_between_replicas(const struct tcp *c)
{
        return c->side[0].host < REPLICAS_MAX && c->side[1].host < REPLICAS_MAX;
}

/* How much longer the way to that side takes at present. */
static nsec_t delay_to(const struct tcp *c, int to)
{
        return is_between_replicas(c) ? w->links[c->side[!to].host][c->side[to].host].delay : 0;
}

/* When @n bytes to that side have left. */
static nsec_t carry(const struct tcp *c, int to, size_t n)
{
        return is_between_replicas(c) ? rates_carry(w, c->side[!to].host, c->side[to].host, n)
                                      : w->now;
}

/* What was on its way to that side was dropped. */
static void spare(const struct tcp *c, int to)
{
        if (is_between_replicas(c))
                rates_break(w, c->side[!to].host, c->side[to].host);
}

static struct tcp_parcel *post_parcel(struct tcp *c, int to, enum tcp_kind kind, size_t n)
{
        struct tcp_side *s = &c->side[to];
        struct tcp_parcel *p = calloc(1, sizeof(*p));

        if (!p)
                abort();
        p->kind = kind;
        p->sent = carry(c, to, n);
        p->at = p->sent + delay_to(c, to) + time_in(&rnd, 100 * NSEC_PER_USEC, FRAME_MOST);
        if (is_lossy(5))
                p->at += time_in(&rnd, MSEC, FRAME_LATE);
        s->last = p->at = max_of(p->at, s->last + 1);
        STAILQ_INSERT_TAIL(&s->in, p, next);
        sockets_stir();
        return p;
}

/* The first parcel that is still on its way to that side. */
static struct tcp_parcel *under_way(const struct tcp_side *s)
{
        struct tcp_parcel *p;

        STAILQ_FOREACH (p, &s->in, next)
                if (!p->arrived)
                        return p;
        return NULL;
}

static size_t bytes_to(const struct tcp_side *s, bool only_arrived)
{
        const struct tcp_parcel *p;
        size_t n = 0;

        STAILQ_FOREACH (p, &s->in, next)
                n += p->arrived || !only_arrived ? buf_len(&p->bytes) : 0;
        return n;
}

size_t tcp_unacknowledged(const struct tcp *c, int side)
{
        const struct tcp_side *to = &c->side[!side];

        return bytes_to(to, false) - bytes_to(to, true);
}

struct tcp *tcp_call(unsigned from, unsigned to, struct stream *s)
{
        struct tcp *c = calloc(1, sizeof(*c));

        if (!c)
                abort();
        c->fd = fds++;
        for (int i = 0; i < 2; i++) {
                STAILQ_INIT(&c->side[i].in);
                c->side[i].heard = w->now;
        }
        c->side[CALLER].host = from;
        c->side[CALLER].stream = s;
        c->side[CALLED].host = to;
        LIST_INSERT_HEAD(&tcp_all, c, next);
        (void) post_parcel(c, CALLED, TCP_CALL, 0);
        return c;
}

bool tcp_accepts(const struct tcp *c, int side)
{
        const struct tcp_side *to = &c->side[!side];
        const struct tcp_parcel *p = under_way(to);

        if (w->rated)
                return bytes_to(to, false) < buffer;
        return bytes_to(to, false) < buffer &&
               (!p || w->now - p->sent <= w->narrow + delay_to(c, !side));
}

size_t tcp_send(struct tcp *c, int side, const uint8_t *p, size_t n)
{
        unsigned a = c->side[side].host, b = c->side[!side].host;
        size_t done = 0;

        /* Something in between breaks the link, for a while. */
        if (is_lossy(4) && a < REPLICAS_MAX && b < REPLICAS_MAX) {
                w->links[a][b].down_until = w->now + time_in(&rnd, MSEC, 300 * MSEC);
                tcp_break(a, b);
        }
        if (c->side[side].gone)
                return n;
        while (done < n && tcp_accepts(c, side)) {
                size_t some = min_of(n - done, w->rated ? PIECE : buffer);

                if (chance_in(&rnd, 20))
                        some = rnd_between(&rnd, 1, some);
                buf_add(&post_parcel(c, !side, TCP_BYTES, some)->bytes, p + done, some);
                done += some;
        }
        return done;
}

/* ---- the ends of connections ---- */

/* Nothing that was under way to the other side arrives any more. */
static void reset(struct tcp *c, int side)
{
        struct tcp_side *to = &c->side[!side];

        tcp_trouble(c->side[0].host, c->side[1].host);
        drop(to, false);
        spare(c, !side);
        if (!to->closed)
                (void) post_parcel(c, !side, TCP_RESET, 0);
}

void tcp_close(struct tcp *c, int side)
{
        struct tcp_side *s = &c->side[side];
        struct tcp_parcel *p = STAILQ_FIRST(&s->in);
        bool unread = p && p->arrived && p->kind == TCP_BYTES;

        if (s->closed)
                return;
        s->closed = true;
        s->stream = NULL;
        drop(s, true);
        p = STAILQ_FIRST(&c->side[!side].in);
        if (p && p->kind == TCP_CALL && p->again) { /* it is not repeated */
                drop(&c->side[!side], true);
                c->side[!side].closed = true;
        }
        sockets_stir();
        if (s->gone || c->side[!side].closed)
                return;
        tcp_trouble(c->side[0].host, c->side[1].host);
        if (unread)
                reset(c, side);
        else
                (void) post_parcel(c, !side, TCP_END, 0);
}

struct tcp_parcel *tcp_take(struct tcp *c, int side)
{
        struct tcp_side *s = &c->side[side];
        struct tcp_parcel *p = STAILQ_FIRST(&s->in);

        if (!p || !p->arrived)
                return NULL;
        STAILQ_REMOVE_HEAD(&s->in, next);
        return p;
}

/* A side hears from its own kernel that the connection is over. */
static void give_up(struct tcp *c, int side)
{
        struct tcp_side *s = &c->side[side];

        tcp_trouble(c->side[0].host, c->side[1].host);
        drop(s, false);
        spare(c, side);
        s->unheeded = 0;
        s->gone = true;
        if (!s->closed)
                post_parcel(c, side, TCP_RESET, 0)->arrived = true;
}

void tcp_break(unsigned a, unsigned b)
{
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next)
                if (c->side[CALLER].host == a && c->side[CALLED].host == b) {
                        give_up(c, CALLER);
                        give_up(c, CALLED);
                }
}

void tcp_process_ends(unsigned host, bool power)
{
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next)
                for (int i = 0; i < 2; i++) {
                        struct tcp_side *s = &c->side[i];

                        if (s->host != host)
                                continue;
                        tcp_trouble(c->side[0].host, c->side[1].host);
                        if (s->stream)
                                stream_lost(s->stream);
                        s->gone = s->gone || power;
                        c->knocks = c->knocks && i == CALLER;
                        tcp_close(c, i);
                        /* Something in between may tell the others at once. */
                        if (power && w->hints)
                                reset(c, i);
                }
}

void tcp_resumes(unsigned host)
{
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next)
                for (int i = 0; i < 2; i++) {
                        struct tcp_parcel *p = under_way(&c->side[i]);

                        if (c->side[i].host == host && p && p->again)
                                p->at = w->now;
                }
        sockets_stir();
}

/* ---- the kernels ---- */

/* Whether the sender sends it: without acknowledgements it sends nothing new for long. */
static bool is_held_back(const struct tcp_side *from, const struct tcp_parcel *p)
{
        return from->unheeded > 0 && p->sent - from->unheeded > AGAIN && p->kind != TCP_RESET;
}

/* Whether it gets through. */
static bool passes(const struct tcp *c, int to, const struct tcp_parcel *p)
{
        const struct tcp_side *s = &c->side[to], *from = &c->side[!to];
        unsigned a = from->host, b = s->host;
        bool known = a < REPLICAS_MAX && b < REPLICAS_MAX;

        if (has_no_host(b) || (known && W->cut[a][b]))
                return false;
        if (p->kind == TCP_CALL &&
            (tcp_is_cut(a, b) || (known && w->now < W->links[a][b].down_until)))
                return false;
        if (p->kind == TCP_BYTES && bytes_to(s, true) > 2 * buffer)
                return false;
        return true;
}

static void called(struct tcp *c)
{
        struct tcp_side *s = &c->side[CALLED];

        if (!sockets_listen(s->host)) {
                s->closed = s->gone = true;
                return reset(c, CALLED);
        }
        c->knocks = true;
        (void) post_parcel(c, CALLER, TCP_ACCEPT, 0);
}

static void arrive(struct tcp *c, int to, struct tcp_parcel *p)
{
        struct tcp_side *s = &c->side[to], *from = &c->side[!to];

        s->heard = w->now;
        if (tcp_is_cut(s->host, from->host)) {
                if (from->unheeded == 0 && p->kind >= TCP_BYTES) {
                        from->unheeded = p->sent;
                        from->probe_at = w->now + AGAIN;
                }
        } else {
                from->unheeded = 0;
        }
        if (p->kind == TCP_RESET) {
                s->gone = true;
                from->gone = from->closed = true;
        }
        c->speaks = c->speaks || (to == CALLED && p->kind == TCP_BYTES);
        if (p->kind != TCP_CALL && !s->closed && s->host != SOMEBODY) {
                p->arrived = true;
                return sockets_stir();
        }
        STAILQ_REMOVE(&s->in, p, tcp_parcel, next);
        if (p->kind == TCP_CALL)
                called(c);
        else if (!s->closed && p->kind >= TCP_END)
                tcp_close(c, to);
        else if (s->closed && p->kind < TCP_END)
                reset(c, to); /* nobody reads that */
        tcp_parcel_free(p);
}

/* Sends it again later, or gives up. */
static void try_again(struct tcp *c, int to, struct tcp_parcel *p)
{
        nsec_t age = w->now - p->sent;
        struct tcp_side *from = &c->side[!to];

        p->again = true;
        tcp_trouble(c->side[0].host, c->side[1].host);
        if (from->gone && from->closed) {
                /* Whoever sent it does not send it again. */
                drop(&c->side[to], false);
                return;
        }
        if (p->kind == TCP_RESET) { /* that is never repeated */
                from->gone = true;
                STAILQ_REMOVE(&c->side[to].in, p, tcp_parcel, next);
                return tcp_parcel_free(p);
        }
        if (age >= GIVE_UP && p->kind != TCP_CALL && !has_no_host(from->host)) {
                drop(&c->side[to], false);
                return give_up(c, !to);
        }
        /* RFC 6298, section 5.5 */
        p->at = w->now + age + (p->kind == TCP_CALL ? CALL_AGAIN : AGAIN);
        if (p->kind != TCP_CALL && age < GIVE_UP)
                p->at = min_of(p->at, p->sent + GIVE_UP);
        p->at = max_of(p->at, w->now + MSEC);
}

/* What it has sent is not acknowledged, or it has heard nothing for long. */
static void look_after(struct tcp *c, int side)
{
        struct tcp_side *s = &c->side[side], *other = &c->side[!side];
        bool cut = tcp_is_cut(s->host, other->host);
        struct tcp_parcel *p;

        if (s->closed || s->gone || has_no_host(s->host) || s->host == SOMEBODY)
                return;
        if (s->unheeded > 0 && w->now >= s->probe_at) {
                nsec_t age = w->now - s->unheeded;

                tcp_trouble(s->host, other->host);
                if (cut && age >= GIVE_UP)
                        return give_up(c, side);
                if (!cut) {
                        s->unheeded = 0;
                        sockets_stir();
                        p = under_way(other);
                        if (p && !p->again)
                                p->at = min_of(p->at, w->now);
                }
                s->probe_at = min_of(w->now + age + AGAIN, s->unheeded + GIVE_UP);
        }
        if (w->now - s->heard < IDLE || under_way(s))
                return;
        if (!cut && !other->gone)
                s->heard = w->now;
        else if (!cut || w->now - s->heard >= IDLE + UNANSWERED)
                give_up(c, side);
}

static void run_one(struct tcp *c)
{
        for (int i = 0; i < 2; i++) {
                struct tcp_parcel *p;

                while ((p = under_way(&c->side[i])) && p->at <= w->now)
                        if (is_held_back(&c->side[!i], p))
                                p->at = max_of(c->side[!i].probe_at, w->now + MSEC);
                        else if (passes(c, i, p))
                                arrive(c, i, p);
                        else
                                try_again(c, i, p);
                look_after(c, i);
        }
}

void tcp_run(void)
{
        struct tcp *c, *next;

        LIST_FOREACH_SAFE (c, &tcp_all, next, next) {
                run_one(c);
                if (c->side[0].closed && c->side[1].closed)
                        destroy(c);
        }
}

nsec_t tcp_next(void)
{
        nsec_t at = NEVER;
        struct tcp *c;

        LIST_FOREACH (c, &tcp_all, next)
                for (int i = 0; i < 2; i++) {
                        const struct tcp_side *s = &c->side[i];
                        const struct tcp_parcel *p = under_way(s);

                        if (p)
                                at = min_of(at, p->at);
                        if (s->closed || s->gone || has_no_host(s->host) || s->host == SOMEBODY)
                                continue;
                        if (s->unheeded > 0)
                                at = min_of(at, s->probe_at);
                        if (!p)
                                at = min_of(
                                        at,
                                        s->heard + IDLE +
                                                (w->now < s->heard + IDLE ? 0 : UNANSWERED));
                }
        return at;
}

bool tcp_is_stuck(const struct tcp *c)
{
        for (int i = 0; i < 2; i++) {
                const struct tcp_side *s = &c->side[i];
                const struct tcp_parcel *p = under_way(s);

                if ((p && p->again && p->kind != TCP_CALL) || s->unheeded > 0 || s->gone)
                        return true;
        }
        return false;
}
