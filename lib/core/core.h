/*
 * The lease core of one replica: the state machine on top of the log, requests that wait for
 * their entry, renewals in batches, expiry, and reads that wait for a confirmation of
 * leadership.
 *
 * No socket, no clock: the simulator runs this with replica.h on virtual time. Requests are
 * embedded in their owners and answered exactly once, by `done`, unless withdrawn.
 * Single-threaded.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/base.h"
#include "base/histogram.h"
#include "base/rnd.h"
#include "base/tree.h"
#include "consensus/replica.h"
#include "core/changes.h"
#include "core/shares.h"
#include "core/status.h"
#include "state/permit.h"
#include "state/state.h"

struct core;

struct core_config {
        uint64_t cluster_id, member_id;
        uint64_t ancestor;   /* the cluster from which ours was forced to descend; 0: none */
        uint32_t version;    /* the newest cluster version that this replica knows; 0:
                              * CLUSTER_NEWEST; a lower one is for tests */
        nsec_t finish_after; /* the cluster version rises by itself when all members have been
                              * able to for so long; 0: never */
        nsec_t min_ttl;      /* shorter TTLs are raised to it */
        nsec_t timeout;      /* for a request that cannot be committed */
        size_t max_txn_ops;
        enum lease_tie lease_tie;
        uint64_t quota;       /* bytes of keys and values; beyond it, NOSPACE is raised; 0: no
                               * quota */
        int64_t compact_keep; /* automatic compaction: how many revisions to keep; 0: off ... */
        nsec_t compact_age;   /* ... or for how long to keep them */
        bool plaintext_peers; /* members on other machines may be reached without TLS */
        nsec_t leader_timeout;  /* after this time without a leader, `hasleader` streams end */
        nsec_t watch_progress;  /* the interval of progress notifications */
        nsec_t cache_term;      /* the longest term of a cache lease; 0: none are given */
        unsigned ahead_divisor; /* a lease that is renewed in a loop is renewed ahead by TTL /
                                 * this (renew_pace.h); 0: the default; others are for tests */
        size_t waiting_max;     /* reads, and writes, that wait (shares.h); the same */
        uint64_t seed;
};

/* Part of a request, and private to the core: when it ends at the latest. */
struct core_timeout {
        union {
                TAILQ_ENTRY(core_timeout) next; /* the usual timeout: in the order of starts */
                RB_ENTRY(core_timeout) by_time; /* a shorter one */
        };
        bool is_shorter;
        struct boot_time at; /* NEVER: it does not run (any more) */
        void (*over)(struct core *c, struct core_timeout *t);
};

/* A command on its way through the log. */
struct core_write {
        void (*done)(struct core_write *w, struct status st, struct view reply);
        /* For owners that must learn the outcome even if nobody waits any more: called once at
         * the deadline, instead of `done`, if the command may still be applied. `done` follows
         * when the outcome is known. NULL: `done` is called at the deadline. */
        void (*overdue)(struct core_write *w);
        struct requester by; /* zeroes: the core itself */
        /* Private to the core. */
        RB_ENTRY(core_write) by_seq;
        uint64_t seq;
        uint64_t term; /* the term in which it was proposed; 0: not yet */
        enum cmd_type type;
        const struct cmd_user *user; /* borrowed until `done`; NULL: the core itself */
        struct buf body;
        struct core_timeout timeout;
        /* For a write that was refused because clients may have cached keys that it changes,
         * and that now waits. */
        TAILQ_ENTRY(core_write) next_waiting;
        uint64_t waits_for;        /* the cached range whose cache terms end last; 0: none */
        struct boot_time again_at; /* when these cache terms will have ended */
};

/* A read that waits until the local state is linearizable for it. */
struct core_read {
        void (*done)(struct core_read *rd, struct status st);
        struct requester by; /* zeroes: the core itself */
        TAILQ_ENTRY(core_read) next;
        uint64_t id;
        struct lease_time at; /* set when the read is done: a lease time after the request
                               * (struct replica_ops) */
        struct core_timeout timeout;
};

/* A renewal of one lease. `ttl_ms` is 0 when the lease is gone. */
struct core_renewal {
        void (*done)(struct core_renewal *rn, struct status st, int64_t ttl_ms);
        int64_t lease;
        /* Stands in for the id, which the core then fills in; empty: none. Owned by the caller
         * until `done`. */
        ProtobufCBinaryData name;
        uint32_t slot; /* a hint: the lease's slot when it was last looked up */
        /* Private to the core. */
        TAILQ_ENTRY(core_renewal) next;
        struct core_renewals *in; /* the list that has it (renewals.c) */
        struct core_timeout timeout;
        struct boot_time came_at; /* the renewed TTL begins no earlier */
        bool ahead;               /* the lease is renewed in a loop: its TTL begins later */
        uint64_t as_of;           /* the last entry that was applied when it was queued */
};

must_check_ int core_new(struct core **ret, const struct core_config *cfg,
                         struct boot_time now);
struct core *core_free(struct core *c);
DEFINE_CLEANUP(struct core *, core_free)

/* What the owner knows about its link to a member. */
struct core_link {
        bool up;
        uint64_t downs;  /* how often the link broke */
        uint64_t unsent; /* dropped frames: there was no link, or too much was queued */
};

/* The ops for replica_new(), with the core as userdata; the owner provides `send` and
 * `fatal`. */
extern const struct replica_ops core_replica_ops;
struct core_owner {
        void (*send)(void *u, uint64_t peer, struct view frame);
        void (*fatal)(void *u, const char *why);
        /* The following may be NULL; without `room` there is no limit. */
        size_t (*room)(void *u, uint64_t peer);
        struct core_link (*link)(void *u, uint64_t peer);
        /* A lease expired when an entry was applied: for the journal (A48). */
        void (*expired)(void *u, int64_t lease, size_t n_keys, uint64_t term);
        void (*changed)(void *u);
        /* configured: the set of members has changed. removed: we are no longer a member. */
        void (*configured)(void *u);
        void (*removed)(void *u);
};
void core_set_owner(struct core *c, const struct core_owner *owner, void *userdata);
/* @r: opened by replica_new(); replica_start() is called later. */
void core_attach(struct core *c, struct replica *r);

/* What this replica publishes about itself in MemberList. It is proposed once there is a
 * leader, and again when it has changed. */
must_check_ int core_set_member(struct core *c, const char *name, const char *client_urls);

/* The attached replica; borrowed, valid as long as the core. */
const struct replica *core_replica(const struct core *c);
struct state *core_state(struct core *c);
const struct core_config *core_config(const struct core *c);
struct replica_status core_status(const struct core *c);
/* A random lease id that is free as far as this replica knows. */
int64_t core_new_lease_id(struct core *c);
/* True while a command that removes many keys is half applied: then nobody may read the state,
 * and no request may be accepted. It is false between two commands of an entry. Borrowed; valid
 * as long as the core. */
const bool *core_half_applied(const struct core *c);

struct boot_time core_now(const struct core *c); /* the time of the last call */
/* A pointer to that time; borrowed, and valid as long as the core. */
const struct boot_time *core_clock(const struct core *c);

/* For metrics: counts since the start. */
struct core_counts {
        uint64_t writes_failed;   /* commands that were not applied, or may not have been */
        uint64_t reads_failed;    /* reads that did not become linearizable in time */
        struct histogram batches; /* renewals in one command (histogram_sizes) */
        /* How much of its TTL a lease had left when a renewal came, in thousandths. */
        struct histogram left; /* core_left_shape */
        uint64_t covered;      /* renewals that needed no command */
};
extern const struct histogram_shape core_left_shape;
/* Borrowed; valid as long as the core. */
const struct core_counts *core_counts(const struct core *c);

/* The number of commands that wait for the log. */
size_t core_n_writes(const struct core *c);

/* Zeroes if the owner does not provide it. */
struct core_link core_link(const struct core *c, uint64_t peer);

/* The nearest known deadline of a lease; LEASE_TIME_NEVER: none. */
struct lease_time core_next_deadline(struct core *c);

struct lease_time core_lease_time(const struct core *c);

/* Fills cluster, member, term and revision. */
void core_header(const struct core *c, Pb__ResponseHeader *h);

/* The cluster from which ours was forced to descend; 0: none is known. */
uint64_t core_ancestor(const struct core *c);

/* Whether core @id, which descends from @ancestor, goes on from the same data as ours. */
bool core_is_kin(const struct core *c, uint64_t id, uint64_t ancestor);

/* A client that may write is in core @id, which does: raises the alarm that stops ours. */
void core_hear_of(struct core *c, uint64_t id);

/* The shares that connections, addresses and users have of bounded resources; borrowed, valid
 * as long as the core. */
struct shares *core_shares(struct core *c);

/* Whether a command whose body is @m may go into the log, and what it costs; @user as for
 * core_write(), which is called next. This only keeps out of the log what would be refused: it
 * is asked again where the command is applied. If the quota is in the way, its alarm is raised.
 * To find out is charged to @left. */
struct status core_admit(struct core *c, enum cmd_type type, const struct cmd_user *user,
                         const void *m, struct budget *left, struct state_admission *ret);

/* Sends a command; @body is copied, @user borrowed until `done`; NULL: the core itself. It
 * survives a change of leader: a command that provably was not applied is proposed again.
 * @timeout 0: the default. Returns 0; -ENOBUFS: too many requests (shares.h); or -ENOMEM. On
 * failure `done` is not called. */
must_check_ int core_write(struct core *c, struct core_write *w, enum cmd_type type,
                           const struct cmd_user *user, const void *body, size_t n,
                           nsec_t timeout);

void core_read(struct core *c, struct core_read *rd, nsec_t timeout);
void core_renew(struct core *c, struct core_renewal *rn);

/* False until the first read since the start has been confirmed: until then the state may be as
 * old as when the previous process ended. */
bool core_caught_up(const struct core *c);

/* Cache leases (state/cached.h). Requests a cache term on [@q->key, @q->range_end) with this
 * life of this replica as issuer. The answer to @w is a CacheTerm, and arrives while the state
 * is the one in which the cache term was given. Returns status_ok; otherwise `done` is not
 * called. */
struct status core_cache(struct core *c, struct core_write *w, const struct cmd_user *user,
                         Pb__CacheTerm *q, nsec_t timeout);
/* Reports that the holders have returned all cache terms that this life gave on range @serial.
 * The report may be lost. */
void core_uncache(struct core *c, uint64_t serial);
/* When the last cache term that this life gave on @r ends; 0: there is none. */
struct lease_time core_cached_until(const struct core *c, const struct cached_range *r);

/* Withdraws a read; `done` will not be called. */
void core_read_cancel(struct core *c, struct core_read *rd);

/* Does what is due: expiry, batches of renewals, timeouts. Call no later than core_next(),
 * after replica_run(). */
void core_run(struct core *c, struct boot_time now);
struct boot_time core_next(struct core *c);

/* Changes the members. Returns 0; or -ENOBUFS: too many changes wait, and `done` will not be
 * called. */
must_check_ int core_change_members(struct core *c, struct core_change *ch, nsec_t timeout);

/* An id for a new member. */
uint64_t core_new_member_id(struct core *c);

/* What an operator orders of this replica, until it is done or cannot be done. `done` is called
 * once, perhaps at once; not if the order is withdrawn. */
struct core_order {
        void (*done)(struct core_order *o, struct status st);
        /* Private to the core. */
        LIST_ENTRY(core_order) next;
        /* Whether it is done, or cannot be done, and the answer. */
        bool (*is_over)(struct core *c, const struct core_order *o, struct status *ret);
        uint32_t version;  /* that the cluster is to have */
        uint64_t leader;   /* the member that is to lead */
        uint64_t index;    /* a snapshot is to be written with this entry ... */
        uint64_t failures; /* ... after so many that could not be */
        struct core_timeout timeout;
};
void core_withdraw_order(struct core *c, struct core_order *o);

/* Asks voter @member to lead: done when it does. */
void core_move_leader(struct core *c, struct core_order *o, uint64_t member, nsec_t timeout);

/* Raises the cluster version as far as all members can go: done when it is in force, also if it
 * is already. Refused if a member does not know a higher version, or does not answer. */
void core_finish_upgrade(struct core *c, struct core_order *o, nsec_t timeout);

/* A number that changes whenever a snapshot replaces the state, which invalidates all pointers
 * into the old state. */
uint64_t core_installs(const struct core *c);

/* Writes a snapshot now: done when it is on the disk, and old parts of the log are removed.
 * There is no timeout. */
void core_take_snapshot(struct core *c, struct core_order *o);

/* Passes the waiting renewals to the replica; called before replica_flush(). */
void core_flush(struct core *c, struct boot_time now);
