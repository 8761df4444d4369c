/*
 * The connections of the client port. Shared by server.c, conn.c, conn_places.c and
 * conn_memory.c; not for use elsewhere.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/tree.h"
#include "etcd/server.h"
#include "http/conn.h"
#include "rpc/conn.h"

#define PREFACE "PRI" /* how HTTP/2 begins (RFC 9113, 3.4); HTTP/1.1 has no such method */
#define DOOMED 16 /* candidates, known once all have been checked; one is closed each time */
#define PORTS_MAX 24

/* What a connection counts as. */
enum kind {
        CLIENT,
        PROBE,   /* on a port for probes, which is served even if there is no room for
                  * clients */
        REFUSED, /* closed as soon as it was told that it is refused */
        N_KINDS,
};

/* A message that is logged rarely, with a count. */
struct complaint {
        struct boot_time again_at;
        uint64_t n;
};

/* An address that clients come from. It exists while it has connections. */
struct host {
        RB_ENTRY(host) by_name;
        char name[64];
        size_t n[N_KINDS]; /* connections of each kind */
        size_t n_strangers;
        struct rpc_account account;
        struct party *party; /* owned, a reference */
        struct api_turn turn;
        struct loop_group group;
};

RB_HEAD(hosts, host);

struct conn {
        TAILQ_ENTRY(conn) next; /* in the list of its crowd, or of connections that end */
        TAILQ_ENTRY(conn) by_age;
        TAILQ_ENTRY(conn) by_hunger;
        TAILQ_ENTRY(conn) by_coming;
        bool stranger; /* in `strangers`: it has not had a call yet */
        bool hungry;   /* in `hungry`: large messages have begun and wait for room */
        struct server *server;
        struct host *host;
        struct party *party; /* owned, a reference; like `host` */
        struct stream *stream;
        struct rpc_conn *rpc; /* NULL until the client has shown which HTTP it speaks */
        const struct port *port;
        enum kind kind;
        bool told;                      /* it was told that it is refused */
        struct http_conn *http;         /* carries its calls if it speaks HTTP/1.1; else NULL */
        char head[sizeof(PREFACE) - 1]; /* the first bytes, until they show which HTTP it is */
        size_t n_head;
        bool ended;              /* the client sends no more, and still gets answers */
        struct loop_timer timer; /* ends messages that have not arrived completely */
        struct boot_time called_at,
                looked_at;       /* when it last had a call, or else when it came */
        struct rpc_traffic seen; /* at the last check, see is_stuck() */
        bool lags, silent;       /* by that check, it does not read, or sends no more */
        size_t tx;               /* bytes in the stream and in http_conn, as counted */
        struct api_turn turn;
        struct loop_later ending; /* it is closed; its calls are ended in slices */
};

struct port {
        struct server *server;
        bool tls, probes;
        const struct http_site *site;
};

/* Connections of one kind, which use no slots of another kind. */
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
        struct conn *worst[DOOMED];  /* of this round: the connections that hold most; then
                                      * NULL */
        struct conn *doomed[DOOMED]; /* the result of the last complete round */
        struct hosts hosts;
        struct http_desk desk;
        struct rpc_account account; /* for all clients */
        struct boot_time relieved_at;
        struct complaint ended, strangers, calls;
        bool stops;
};

/* ---- conn.c: one connection ---- */

/* Takes over @fd, which has arrived at the port @userdata. */
void conn_accept(int fd, void *userdata);
/* Ends the connection: at once, or in parts if it has many calls; then it is in `ending`. */
void conn_free(struct conn *c);
/* Ends at once one that is in `ending`. */
void conn_end(struct conn *c);
/* Logs that the connection is ended, and why. */
void conn_report_end(const struct conn *c, const char *why);
/* Logs that @n of its calls were refused. */
void conn_report_calls(const struct conn *c, uint64_t n);

/* ---- conn_places.c: how many there may be ---- */

/* Gives a connection that has arrived a place; if none is left, one that asks for nothing makes
 * room. Otherwise it becomes one of those that are told why they are refused, or the result is
 * -EBUSY; or -ENOMEM. */
must_check_ int place_take(struct conn *c);
/* The connection has a call: it is the last one to make room. */
void place_called(struct conn *c);
/* Takes the connection out of its crowd's lists; its place is still taken. */
void place_leave(struct conn *c);
/* Frees the place of the connection. */
void place_free(struct conn *c);
void places_init(struct server *s);

/* ---- conn_memory.c: what they may hold ---- */

/* Counts again what is held for the connection, and sees whether it waits for room. */
void memory_recount(struct conn *c);
/* Nothing is held in its buffers any more, and it waits for nothing. */
void memory_leave(struct conn *c);
/* Ends a connection that does not read if all together hold too much, or if others wait. */
void memory_relieve(struct server *s);
void memory_init(struct server *s);
void memory_fini(struct server *s);
