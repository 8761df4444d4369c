/*
 * TCP between the hosts of the replicas that have real links: what their kernels and the
 * network do with connections. Only sockets.c, which the links stand on, calls it.
 *
 * Bytes arrive in order. What does not get through is sent again, the longer it has waited the
 * later; after five seconds the sender gives up (TCP_USER_TIMEOUT), while the other side, which
 * hears nothing, does so only when its keep-alive probes are not answered. A host that has
 * started again resets connections of before, once it gets something on them.
 */
#pragma once

#include "base/buf.h"
#include "world.h"

/* A host that is none of the replicas', and an address that leads to no host. */
#define SOMEBODY NODES_MAX
#define NOWHERE (NODES_MAX + 1)

struct stream;

enum tcp_kind {
        TCP_CALL,   /* SYN */
        TCP_ACCEPT, /* its acknowledgement */
        TCP_BYTES,
        TCP_END, /* FIN */
        TCP_RESET
};

struct tcp_parcel {
        STAILQ_ENTRY(tcp_parcel) next;
        enum tcp_kind kind;
        nsec_t sent, at;
        bool again;   /* it did not get through at first */
        bool arrived; /* it waits in the socket */
        struct buf bytes;
};

enum { CALLER, CALLED };

struct tcp {
        LIST_ENTRY(tcp) next;
        int fd; /* of the side that was called */
        struct tcp_side {
                unsigned host;
                struct stream *stream; /* who reads and writes; NULL: nobody, or nobody yet */
                bool closed;           /* nobody any more */
                bool gone;             /* and its host knows nothing of the connection */
                STAILQ_HEAD(, tcp_parcel) in; /* what is on its way to this side */
                nsec_t last;                  /* when the last of that arrives */
                nsec_t heard;                 /* when something last did */
                nsec_t unheeded; /* since when what it has sent is not acknowledged; 0: all is
                                  */
                nsec_t probe_at;
        } side[2];
        bool knocks; /* it waits to be accepted */
        bool speaks; /* bytes of the caller have arrived */
};

LIST_HEAD(tcp_list, tcp);
extern struct tcp_list tcp_all;

void tcp_begin(struct world *w);
void tcp_end(void);
/* Begins to connect; @s is the caller's stream, or NULL. */
struct tcp *tcp_call(unsigned from, unsigned to, struct stream *s);
struct tcp *tcp_find(int fd);
/* Sends as much as the kernel takes, and returns how much that is. */
size_t tcp_send(struct tcp *c, int side, const uint8_t *p, size_t n);
/* The bytes that the other kernel does not have yet. */
size_t tcp_unacknowledged(const struct tcp *c, int side);
/* Whether it would take anything. */
bool tcp_accepts(const struct tcp *c, int side);
/* The process closes its side. */
void tcp_close(struct tcp *c, int side);
/* What has arrived and was not read; NULL: nothing. The caller frees it. */
struct tcp_parcel *tcp_take(struct tcp *c, int side);
void tcp_parcel_free(struct tcp_parcel *p);
/* Does what the kernels and the network do until now. */
void tcp_run(void);
nsec_t tcp_next(void);
/* Connections between the two end, as by a reset of something in between. */
void tcp_break(unsigned a, unsigned b);
/* A process has ended and its kernel closes its connections, or all is gone with its host. */
void tcp_process_ends(unsigned host, bool power);
/* A process goes on after a pause: there is room in its sockets. */
void tcp_resumes(unsigned host);
/* For accounts: what is under way from one to the other waits to be sent again, or arrives
 * nowhere. */
bool tcp_is_stuck(const struct tcp *c);
/* Whether the network or a host keeps @a and @b from talking. */
bool tcp_is_cut(unsigned a, unsigned b);
/* When something between the two last went wrong; it does now. */
nsec_t tcp_troubled(unsigned a, unsigned b);
void tcp_trouble(unsigned a, unsigned b);

/* ---- callers.c ---- */

void callers_begin(struct world *w);
void callers_run(void);
nsec_t callers_next(void);
/* Whether somebody called as this replica, and as one of 0.1.0. If no link of its own stands,
 * its answers are refused until it calls itself. */
bool callers_posed_as_old(unsigned replica);
