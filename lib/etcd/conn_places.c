/* Which connections may be there: so many of each kind, and so many of one address. One that
 * has asked for nothing makes room for another. */
#include <stdio.h>

#include "etcd/conn.h"

#define IDLE_MIN (10 * NSEC_PER_SEC) /* after this long without calls it may be closed ... */
#define IDLE_LOOKS 64                /* ... if among this many that have been idle longest */
#define STRANGE_MIN NSEC_PER_SEC     /* IDLE_MIN of one that never had a call ... */
#define STRANGE_FEW 8    /* ... or whose address has this many more than twice ours */
#define STRANGE_LOOKS 64 /* it must be one of this many that came first */
#define REFUSED_MAX 64   /* connections that are still being told why they are refused */

static int host_cmp(const struct host *a, const struct host *b)
{
        return strcmp(a->name, b->name);
}

TREE_GENERATE(hosts, host, by_name, host_cmp)

static struct crowd *crowd_of(const struct conn *c)
{
        return &c->server->crowds[c->kind];
}

/* ---- addresses ---- */

static void host_put(struct server *s, struct host *h)
{
        if (h->n[CLIENT] + h->n[PROBE] + h->n[REFUSED] > 0)
                return;
        RB_REMOVE(hosts, &s->hosts, h);
        party_unref(h->party);
        free(h);
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
        h->party = shares_address(api_shares(s->api), h->name);
        if (!h->party) {
                free(h);
                return NULL;
        }
        h->account.parent = &s->account;
        loop_group_init(&h->group);
        h->account.max = h->account.kept_max = s->cfg.memory_max / 2;
        RB_INSERT(hosts, &s->hosts, h);
        return h;
}

/* ---- places ---- */

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
        conn_report_end(most, "evicted for another client: no call since it connected");
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

        conn_report_end(c, why);
        if (c->port->tls)
                return -EBUSY; /* to tell the client would cost a handshake */
        set_stranger(c, false);
        TAILQ_REMOVE(&crowd_of(c)->conns, c, next);
        discount(c);
        count(c, REFUSED);
        TAILQ_INSERT_TAIL(&refused->conns, c, next);
        if (refused->n > refused->max)
                conn_free(TAILQ_FIRST(&refused->conns));
        return 0;
}

int place_take(struct conn *c)
{
        const char *why;

        c->host = host_get(c->server, stream_peer(c->stream));
        if (!c->host)
                return -ENOMEM;
        c->party = shares_connection(c->host->party);
        count(c, c->kind);
        TAILQ_INSERT_TAIL(&crowd_of(c)->conns, c, next);
        set_stranger(c, true);
        if (!c->party)
                return -ENOMEM;
        why = too_many(c);
        return why ? refuse(c, why) : 0;
}

void place_called(struct conn *c)
{
        struct conns *conns = &crowd_of(c)->conns;

        set_stranger(c, false);
        c->called_at = loop_now(c->server->loop);
        TAILQ_REMOVE(conns, c, next);
        TAILQ_INSERT_TAIL(conns, c, next);
}

void place_leave(struct conn *c)
{
        if (!c->host) /* it never had a place */
                return;
        TAILQ_REMOVE(&crowd_of(c)->conns, c, next);
        set_stranger(c, false);
}

void place_free(struct conn *c)
{
        discount(c);
        party_unref(c->party);
        host_put(c->server, c->host);
}

void places_init(struct server *s)
{
        s->crowds[CLIENT].max = s->cfg.connections_max;
        s->crowds[PROBE].max = SERVER_PROBES_MAX;
        s->crowds[REFUSED].max = REFUSED_MAX;
        for (size_t i = 0; i < N_KINDS; i++) {
                TAILQ_INIT(&s->crowds[i].conns);
                TAILQ_INIT(&s->crowds[i].strangers);
        }
        RB_INIT(&s->hosts);
}
