/*
 * Shares: no connection, address or user can take all of what a replica bounds.
 *
 * Each bound is a pot. An address may have as much of a pot as nobody has: a single one has
 * half of it, n of them have one part in n + 1 each, and there is always some left for the
 * next. So may a user, while authentication is on. A connection may have as much as its address
 * still may. What the core does for itself - renewals, withdrawals of claims - has pots of its
 * own, which no client can fill. Requests beyond that get RESOURCE_EXHAUSTED.
 *
 *   pot          in all   counts                                       told
 *   -----------  -------  -------------------------------------------  ----------------------
 *   READS        100,000  reads that wait to be linearizable           too many requests
 *   WRITES       100,000  commands that are not applied yet ...        too many requests
 *   WRITE_BYTES  64 MiB   ... and their bytes                          too many requests
 *   CHANGES      100      changes of members under way                 too many requests
 *   CACHED       256      cached ranges, of the cluster                too many cached ranges
 *   OWN_READS    100,000  the core's, such as for a batch of renewals
 *   OWN_WRITES   100,000  the core's; a batch of renewals counts nowhere
 *
 * What a client holds in memory has shares by connection and address of the same kind, see
 * struct rpc_account. Everything costs O(1), but for finding a name.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/tree.h"

enum pot {
        POT_READS,
        POT_WRITES,
        POT_WRITE_BYTES,
        POT_CHANGES,
        POT_CACHED,
        POT_OWN_READS,
        POT_OWN_WRITES,
        N_POTS,
};

/* A connection, an address or a user. It exists while it has references: from its owner, and
 * from everything that it has. So what was not withdrawn with a connection still counts, and an
 * address that comes back finds what it left. */
struct party {
        RB_ENTRY(party) by_name; /* addresses and users */
        struct shares *shares;   /* NULL: those have ended, or it has no name */
        struct party *of;        /* of a connection: its address, with a reference */
        size_t refs;
        size_t has[N_POTS];
        /* For etcd/cache.c: until when it pays for writes that it has held up, and up to when
         * they are counted. */
        struct lease_time pays_until, paid_for;
        TAILQ_ENTRY(party) next_payer;
        bool pays; /* it is in that list */
        bool user;
        size_t len;
        char name[];
};

RB_HEAD(parties, party);

struct shares {
        struct {
                size_t n, max;
                size_t elsewhere; /* taken, but not through this replica */
        } pots[N_POTS];
        struct parties named;
};

/* The requester of something: both are borrowed, and NULL for the core itself. */
struct requester {
        struct party *conn, *user;
};

/* @waiting_max: of READS and WRITES; 0: the default. */
void shares_init(struct shares *s, size_t waiting_max);
/* Parties may outlive it. */
void shares_fini(struct shares *s);

/* Return a reference, or NULL: out of memory. */
struct party *shares_address(struct shares *s, const char *name);
struct party *shares_user(struct shares *s, const void *name, size_t len);
struct party *shares_connection(struct party *address);
struct party *party_ref(struct party *p);
/* Accepts NULL, and returns it. */
struct party *party_unref(struct party *p);

/* How much of a pot @by may have in addition to what it has. */
size_t shares_left(const struct shares *s, enum pot pot, struct requester by);
/* Takes @n of a pot. Returns false if that is more than the share of @by. */
must_check_ bool shares_take(struct shares *s, enum pot pot, struct requester by, size_t n);
/* Gives back what was taken with the same arguments. */
void shares_give(struct shares *s, enum pot pot, struct requester by, size_t n);
bool requester_is_core(struct requester by);
