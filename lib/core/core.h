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
#include "core/status.h"
#include "state/permit.h"
#include "state/state.h"

struct core;

struct core_config {
        uint64_t cluster_id, member_id;
        nsec_t min_ttl; /* shorter TTLs are raised to it */
        nsec_t timeout; /* of a request that cannot be committed */
        size_t max_txn_ops;
        enum lease_tie lease_tie;
        uint64_t quota;       /* bytes of keys and values; past it NOSPACE is raised; 0: none */
        int64_t compact_keep; /* automatic compaction: how many revisions stay; 0: off... */
        nsec_t compact_age;   /* ...or for how long they stay */
        bool plaintext_peers; /* members may be on other machines without TLS */
        nsec_t leader_timeout; /* without a leader for so long, `hasleader` streams end */
        nsec_t watch_progress; /* the interval of progress notifications */
        nsec_t cache_term;     /* the longest term of a cache lease; 0: none are given */
        uint64_t seed;
};

/* A command on its way through the log. */
struct core_write {
        void (*done)(struct core_write *w, struct status st, struct view reply);
        /* For owners that have to know the outcome even when nobody waits any more: called once
         * at the deadline, instead of `done`, if the command may still be applied. `done`
         * follows when the outcome is known. NULL: `done` is called at the deadline. */
        void (*overdue)(struct core_write *w);
        /* The core's own. */
        RB_ENTRY(core_write) by_seq;
        uint64_t seq;
        uint64_t term; /* in which it was proposed; 0: not yet */
        enum cmd_type type;
        const struct cmd_user *user; /* borrowed until `done`; NULL: the core itself */
        struct buf body;
        struct boot_time deadline;
        /* Refused while clients may have in a cache what it changes: it waits. */
        TAILQ_ENTRY(core_write) next_waiting;
        uint64_t waits_for;        /* the range whose terms end last; 0: none */
        struct boot_time again_at; /* the terms have ended by then */
};

/* A wait for the moment from which a local read is linearizable. */
struct core_read {
        void (*done)(struct core_read *rd, struct status st);
        RB_ENTRY(core_read) by_id;
        uint64_t id;
        TAILQ_ENTRY(core_read) by_index; /* once that is known */
        uint64_t index;                  /* once known; 0 before */
        struct boot_time deadline;
};

/* A renewal of one lease. `ttl_ms` is 0 when the lease is gone. */
struct core_renewal {
        void (*done)(struct core_renewal *rn, struct status st, int64_t ttl_ms);
        STAILQ_ENTRY(core_renewal) next;
        int64_t lease;
        /* Instead of the id, which the core then fills in; empty: none. Owned by the caller
         * until `done`.
         */
        ProtobufCBinaryData name;
        uint32_t slot;            /* where the lease was when the renewal came; a hint */
        struct boot_time came_at; /* its term begins no earlier */
        struct core_read read;    /* for a lease that this replica does not know (yet) */
        struct core *core;
};

must_check_ int core_new(struct core **ret, const struct core_config *cfg,
                         struct boot_time now);
struct core *core_free(struct core *c);
DEFINE_CLEANUP(struct core *, core_free)

/* What the owner knows of its link to a member. */
struct core_link {
        bool up;
        uint64_t downs;  /* how often it broke */
        uint64_t unsent; /* frames that were dropped: there was no link, or too much waited */
};

/* The ops to give to replica_new(), with the core as userdata, and the replica, once it is
 * there; `send` and `fatal` are the owner's. */
extern const struct replica_ops core_replica_ops;
struct core_owner {
        void (*send)(void *u, uint64_t peer, struct view frame);
        void (*fatal)(void *u, const char *why);
        /* From here on each may be NULL; without this one there is no bound. */
        size_t (*room)(void *u, uint64_t peer);
        struct core_link (*link)(void *u, uint64_t peer);
        /* A lease ended by expiry at apply: for the journal (A48). */
        void (*expired)(void *u, int64_t lease, size_t n_keys, uint64_t term);
        void (*changed)(void *u);
        /* The set of members is another one; we are not of it any more. */
        void (*configured)(void *u);
        void (*removed)(void *u);
};
void core_set_owner(struct core *c, const struct core_owner *owner, void *userdata);
void core_attach(struct core *c, struct replica *r);

/* What this replica publishes about itself in MemberList; proposed once there is a leader, and
 * again if it has changed. */
must_check_ int core_set_member(struct core *c, const char *name, const char *client_urls);

struct state *core_state(struct core *c);
const struct core_config *core_config(const struct core *c);
struct replica_status core_status(const struct core *c);
bool core_learns(const struct core *c); /* the same as in the status, at less cost */
uint64_t core_disk_bytes(const struct core *c);
/* Calls @fn for each member of the cluster. */
void core_each_peer(const struct core *c,
                    void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                    void *arg);
/* A random lease id that is free as far as this replica knows. */
int64_t core_new_lease_id(struct core *c);
/* True while a command that removes many keys is half applied: then nobody may be shown the
 * state, and no request may be taken. Between two commands of an entry it is false. Borrowed,
 * as long as the core. */
const bool *core_busy(const struct core *c);

struct boot_time core_now(const struct core *c); /* as the last call brought it */
/* A pointer to it; borrowed, as long as the core. */
const struct boot_time *core_clock(const struct core *c);

/* For metrics: what has happened here since the start. */
struct core_counts {
        uint64_t writes_failed;   /* commands that were not applied, or may not have been */
        uint64_t reads_failed;    /* that did not become linearizable in time */
        struct histogram batches; /* renewals in one command (histogram_sizes) */
        /* How much of the term was left when a renewal came, in thousandths of its TTL. */
        struct histogram left; /* (core_left_shape) */
};
extern const struct histogram_shape core_left_shape;
/* Borrowed, as long as the core; the last two as long as what it was attached to. */
const struct core_counts *core_counts(const struct core *c);
const struct replica_counts *core_replica_counts(const struct core *c);
const struct store_counts *core_store_counts(const struct core *c);

/* A snapshot of another replica is on its way into our state. */
bool core_is_installing(const struct core *c);

/* Commands that wait for the log. */
size_t core_n_writes(const struct core *c);

/* Leader: how many entries of the log member @id is behind, as far as it has answered; of
 * itself and elsewhere 0. */
uint64_t core_peer_lag(const struct core *c, uint64_t id);

/* Zeroes if the owner does not provide it. */
struct core_link core_link(const struct core *c, uint64_t peer);

/* The nearest known deadline of a lease; LEASE_TIME_NEVER: none. */
struct lease_time core_next_deadline(struct core *c);

struct lease_time core_lease_time(const struct core *c);

/* Fills cluster, member, term and revision. */
void core_header(const struct core *c, Pb__ResponseHeader *h);

/* Requests that wait for the log, and bytes of them; past it: -ENOBUFS. */
#define CORE_WRITES_MAX 100000
#define CORE_WRITE_BYTES_MAX ((size_t) 512 << 20)

/* Sends a command; @body is copied, @user borrowed until `done`. It survives a leader change: a
 * command that provably was not applied is proposed again. @timeout 0: the default. Returns 0;
 * -ENOBUFS: too many requests; -ENOSPC: no room for what grows; or -ENOMEM. On failure `done`
 * is not called. */
must_check_ int core_write(struct core *c, struct core_write *w, enum cmd_type type,
                           const struct cmd_user *user, const void *body, size_t n,
                           nsec_t timeout);

void core_read(struct core *c, struct core_read *rd, nsec_t timeout);
void core_renew(struct core *c, struct core_renewal *rn);

/* False until a first read of this life has been confirmed: until then the state may be as old
 * as the end of the previous process. */
bool core_caught_up(const struct core *c);

/* Cache leases (state/cached.h). Requests a term on [@q->key, @q->range_end) for this life of
 * this replica; the answer to @w is a CacheTerm, and when it comes the state is that in which
 * the term was given. As core_write(). */
must_check_ int core_cache(struct core *c, struct core_write *w, const struct cmd_user *user,
                           Pb__CacheTerm *q, nsec_t timeout);
/* No holder has a term of this life on that range any more. Losing this message is allowed. */
void core_uncache(struct core *c, uint64_t serial);
/* The end of the terms that this life has given on @r; 0: it has given none. */
struct lease_time core_cached_until(const struct core *c, const struct cached_range *r);

/* Withdraws a read; `done` will not be called. */
void core_read_cancel(struct core *c, struct core_read *rd);

/* Does what is due: expiry, batch windows, timeouts. Call no later than core_next(), after
 * replica_run().
 */
void core_run(struct core *c, struct boot_time now);
struct boot_time core_next(struct core *c);

/* Changes the members; `done` is called in any case. */
void core_change_members(struct core *c, struct core_change *ch, nsec_t timeout);

/* Whether @bytes more may be added; if not, raises the alarm. This only spares the log, since
 * it is checked again where the command is applied. */
bool core_room(struct core *c, size_t bytes);

/* An id for a new member. */
uint64_t core_new_member_id(struct core *c);

/* Asks the named voter to lead. */
struct status core_move_leader(struct core *c, uint64_t member);

/* A number that changes whenever a snapshot replaces the state: anything borrowed from the old
 * one is gone. */
uint64_t core_installs(const struct core *c);

/* Writes a snapshot now, so that old parts of the log can be removed. */
void core_take_snapshot(struct core *c);

/* Hands gathered renewals to the replica; before replica_flush(). */
void core_flush(struct core *c, struct boot_time now);
