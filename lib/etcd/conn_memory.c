/* What connections may hold: the bytes held for all of them are bounded, and for those of one
 * address. Above the bound one that does not read is ended, and messages wait for room. */
#include "etcd/conn.h"

#define SMALL ((size_t) 16 << 10)   /* a smaller buffer counts by what is in it */
#define PATIENCE (5 * NSEC_PER_SEC) /* between two checks of what a client reads ... */
#define PATIENCE_LEAST NSEC_PER_SEC /* ... and this if more than twice the limit is held */
#define TAKEN_WITHIN 60 /* seconds: a client that would need longer counts as not reading */
#define RELIEVE_EVERY (10 * NSEC_PER_MSEC)
#define LOOKS 512 /* connections in one look: 0.3 ms; thousands would take 10 to 50 */
#define FEED_EVERY (2 * NSEC_PER_MSEC)

/* ---- what is held ---- */

static void count_tx(struct conn *c, size_t now)
{
        for (struct rpc_account *a = &c->host->account; a; a = a->parent)
                a->held = a->held - c->tx + now;
        c->tx = now;
}

/* A stream with an empty buffer keeps no memory. */
static size_t beside_calls(const struct conn *c)
{
        const struct buf *tx = stream_tx(c->stream);

        return (buf_len(tx) > 0 && tx->cap > SMALL ? tx->cap : buf_len(tx)) +
               (c->http ? http_conn_held(c->http) : 0);
}

static size_t conn_held(const struct conn *c)
{
        return (c->rpc ? rpc_conn_held(c->rpc) : 0) + c->tx;
}

/* ---- those that wait for room ---- */

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

/* Nothing reports that others hold less, so a timer checks while a connection waits for
 * room. */
static void on_feeding(struct loop_timer *t)
{
        struct server *s = container_of(t, struct server, feeding);
        struct conn *c, *last = TAILQ_LAST(&s->hungry, conns);

        for (int i = 0; i < LOOKS && (c = TAILQ_FIRST(&s->hungry)); i++) {
                bool given = rpc_conn_give(c->rpc);

                set_hungry(c, false);
                set_hungry(c, rpc_conn_begs(c->rpc)); /* after all others */
                if (given)
                        stream_kick(c->stream);
                if (c == last)
                        break;
        }
        if (!TAILQ_EMPTY(&s->hungry))
                loop_timer_in(t, FEED_EVERY);
}

/* ---- those that do not read ---- */

static void forget(struct conn *list[static DOOMED], const struct conn *c)
{
        size_t n = 0;

        for (size_t i = 0; i < DOOMED; i++)
                if (list[i] != c)
                        list[n++] = list[i];
        if (n < DOOMED)
                list[n] = NULL;
}

/* True if the client has sent nothing more of a message that it began. What waits in the socket
 * it has sent: then we are slow. */
static bool sends_no_more(const struct conn *c, struct rpc_traffic was, struct rpc_traffic now)
{
        return min_of(now.in, was.in) > 0 && now.received == was.received &&
               stream_unread(c->stream) == 0;
}

/* True if, at the rate at which the client has read since the last check, it would need more
 * than a minute for what waits for it; or if it sends no more of a message. False if it merely
 * has much data, or waits for us. Only what waited at both checks counts, and only if they
 * follow closely: there are no checks while there is room. A client that was found to
 * send no more counts as sending again once a byte has come. */
static bool is_stuck(struct conn *c, struct boot_time now)
{
        const struct server *s = c->server;
        struct rpc_traffic t, was = c->seen;
        nsec_t since = boot_diff(now, c->looked_at),
               patience = s->account.held > 2 * s->account.max ? PATIENCE_LEAST : PATIENCE;
        bool follows = since < 2 * PATIENCE;
        uint64_t taken;
        size_t unsent;

        if (!c->rpc)
                return false;
        if (since < patience)
                return c->lags ||
                       (c->silent && sends_no_more(c, was, rpc_conn_traffic(c->rpc)));
        t = rpc_conn_traffic(c->rpc);
        /* The kernel buffers megabytes for a slow reader, and then takes nothing for seconds.
         */
        unsent = stream_unsent(c->stream);
        t.out += unsent;
        t.taken -= min_of(t.taken, (uint64_t) unsent);
        c->looked_at = now;
        c->seen = t;
        taken = (t.taken - min_of(t.taken, was.taken)) / (uint64_t) (since / NSEC_PER_SEC);
        c->lags = follows && taken * TAKEN_WITHIN < min_of(t.out, was.out);
        c->silent = follows && sends_no_more(c, was, t);
        return c->lags || c->silent;
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

/* Continues to look for clients that do not read: a few connections are checked at once, many
 * in parts. */
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

void memory_relieve(struct server *s)
{
        struct boot_time now = loop_now(s->loop);
        struct conn *c;

        if (s->stops || (s->account.held <= s->account.max && !s->account.wanted) ||
            boot_before(now, s->relieved_at))
                return;
        s->relieved_at = boot_add(now, RELIEVE_EVERY);
        s->account.wanted = false; /* those that still wait will set it again */
        look(s, now);
        while ((c = s->doomed[0]) && !(is_stuck(c, now) && conn_held(c) > 0))
                forget(s->doomed, c);
        if (!c)
                return;
        conn_report_end(c,
                        "--max-client-bytes is used up; of the clients that do not read, this "
                        "one holds most");
        conn_free(c);
}

/* ---- ---- */

static void report_refused_calls(struct conn *c)
{
        uint64_t n = c->host->account.n_refused;

        c->host->account.n_refused = 0;
        if (n > 0)
                conn_report_calls(c, n);
}

void memory_recount(struct conn *c)
{
        report_refused_calls(c);
        count_tx(c, beside_calls(c));
        set_hungry(c, rpc_conn_begs(c->rpc));
}

void memory_leave(struct conn *c)
{
        struct server *s = c->server;

        if (s->look == c)
                s->look = TAILQ_NEXT(c, by_age);
        forget(s->worst, c);
        forget(s->doomed, c);
        set_hungry(c, false);
        if (c->host)
                count_tx(c, 0);
}

void memory_init(struct server *s)
{
        s->account.max = s->account.kept_max = s->cfg.memory_max;
        TAILQ_INIT(&s->hungry);
        loop_timer_init(&s->feeding, s->loop, on_feeding);
}

void memory_fini(struct server *s)
{
        loop_timer_disarm(&s->feeding);
}
