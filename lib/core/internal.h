/*
 * What the files of core/ share. Not for other folders.
 *
 *     core.c      set-up, requests, and what runs in each turn
 *     timeouts.c  when requests end without an answer
 *     writes.c    commands on their way through the log
 *     caches.c    commands that wait until cache terms end
 *     reads.c     reads that wait until they are linearizable
 *     renewals.c  renewals: where they wait, and how they become commands
 *     renew_pace.c  when a batch is sent, and with which renewals
 *     confirm.c   renewals that a read answers
 *     expiry.c    expiry of leases, and lease time in the log
 *     apply.c     applies entries and installs snapshots, as the replica's callbacks
 *     upkeep.c    alarms and automatic compaction
 *     changes.c   changes of the members
 *     shares.c    who has how much of what is bounded
 *     orders.c    what an operator orders of this replica
 *     upgrade.c   the cluster version rises
 */
#pragma once

#include "core/core.h"
#include "core/renew_pace.h"
#include "core/upkeep.h"
#include "state/loader.h"
#include "state/saver.h"

#define SCRATCH_KEEP ((size_t) 64 << 10)

RB_HEAD(core_writes, core_write);
#define NO_WRITE UINT64_MAX

RB_HEAD(core_timeouts, core_timeout);
TAILQ_HEAD(core_usual_timeouts, core_timeout);

/* Reads up to number @upto are linearizable once entry @index is applied. */
struct confirmed {
        uint64_t upto, index;
        struct lease_time at;
};
#define CONFIRMED_MAX 64

TAILQ_HEAD(core_renewals, core_renewal);

/* A state beside ours: being loaded, or to be freed. */
struct aside {
        STAILQ_ENTRY(aside) next;
        struct state state;
};

/* An instant before which something does not happen is 0 until it is set, here and in the
 * structs below; any other is BOOT_TIME_NEVER while there is nothing to wait for. */
struct core {
        struct core_config cfg;
        uint32_t newest; /* cluster version that we know */
        struct state state;
        struct state_saver savers[REPLICA_SAVES];
        struct aside *loaded; /* NULL: none; loaded with ... */
        struct state_loader loader;
        STAILQ_HEAD(, aside) gone; /* old states, freed in slices ... */
        struct boot_time gone_at;  /* ... the next one at this time */
        uint64_t installs;
        uint64_t replayed_to; /* the last entry of the log when it was opened */
        struct {
                bool on;         /* an entry is half applied ... */
                size_t at;       /* ... up to this byte of its commands ... */
                struct buf out;  /* ... with this part of the answer to the next command */
                size_t reported; /* and its expired leases are reported up to this byte */
                struct cmd_slots reported_slots;
        } part;
        struct replica *replica; /* borrowed */
        const struct core_owner *owner;
        void *owner_data;
        struct rnd rnd;
        struct boot_time now;
        struct core_counts counts;
        struct shares shares;
        struct core_usual_timeouts usual_timeouts;
        struct core_timeouts shorter_timeouts;

        struct core_writes writes;
        size_t n_writes;
        uint64_t next_seq;
        struct buf command;      /* scratch memory for a proposal */
        uint64_t term_seen;      /* the highest term of an applied entry */
        uint64_t repropose_from; /* writes from this number on may have to be proposed (again);
                                  * NO_WRITE: none */
        struct {
                bool on;             /* a snapshot hides the outcome of the writes ... */
                uint64_t from, upto; /* ... with these numbers ... */
                uint64_t term;       /* ... that were proposed in this term or a later one */
        } skipped;

        TAILQ_HEAD(core_waiting, core_write) waiting; /* writes that wait for cache leases */
        struct core_write *waiting_check; /* the next one to check; NULL: no check is under
                                           * way */
        struct boot_time waiting_at;      /* when to check those again that have been checked */
        uint64_t waiting_returned;        /* the count of returned terms when the last check
                                           * began */
        uint64_t issuer;                  /* our id as an issuer of cache leases: a
                                           * new one in each life */

        TAILQ_HEAD(core_reads, core_read) reads;   /* by their ids, which ascend */
        struct confirmed confirmed[CONFIRMED_MAX]; /* both numbers ascend */
        unsigned n_confirmed;
        unsigned reads_left; /* how many may still be answered in this turn */
        uint64_t next_read;
        uint64_t served; /* reads up to this entry may be answered */
        bool caught_up;
        struct core_read first; /* our own: shows how far the others were when we started */

        struct core_renewals arrived, queued; /* see renewals.c */
        struct renew_pace pace;

        struct boot_time expire_not_before; /* when we may act on deadlines again */
        struct boot_time busy_since;        /* since when entries have been half applied, for
                                             * which renewals were given no time */
        struct lease_time grace_began;      /* the last time for them began here, and ends at
                                             * `expire_not_before` */
        struct upkeep upkeep;
        struct boot_time sibling_at; /* when to raise the alarm about another core again */
        struct boot_time descend_at; /* when to tell the others our ancestor again */
        struct {
                uint64_t term; /* in which we last appended the command that raises it ... */
                uint32_t to;   /* ... to this one */
                struct boot_time again_at; /* when it may rise by itself again */
                char why[320];             /* it cannot */
        } upgrade;
        struct changes changes;
        LIST_HEAD(, core_order) orders;
        struct boot_time tick_at; /* when to check again whether the log needs a lease time */

        struct core_write member;
        bool member_out;
        char *member_name, *member_urls;
};

/* The raft term; 0 while there is no replica. */
uint64_t core_term(const struct core *c);

/* ---- timeouts.c ---- */

/* Calls @over when @timeout has passed (0: the default), unless it is stopped before. */
void core_timeout_start(struct core *c, struct core_timeout *t, nsec_t timeout,
                        void (*over)(struct core *c, struct core_timeout *t));
void core_timeout_stop(struct core *c, struct core_timeout *t);
/* Why a request that timed out was not answered. */
struct status core_timeout_status(const struct core *c);
/* Ends requests that are due: only some in a turn, since there may be 100,000. */
void core_timeouts_run(struct core *c);
struct boot_time core_timeouts_next(struct core *c);

/* ---- writes.c ---- */

void core_write_finish(struct core *c, struct core_write *w, struct status st,
                       struct view reply);
/* Ends a command that was not applied, or may not have been. */
void core_write_fail(struct core *c, struct core_write *w, struct status st);
/* When the core stops: ends the first command, if there is one. */
void core_write_stop_first(struct core *c);
/* NULL: no such command waits. */
struct core_write *core_write_find(struct core *c, uint64_t seq);
/* Commands from @seq on that are not proposed (any more) shall be, at the end of this turn or
 * later; those for which that fails end. */
void core_writes_again(struct core *c, uint64_t seq);
/* Proposes to the current leader the commands whose proposals were lost. */
void core_writes_repropose(struct core *c);
/* After a snapshot that skipped entries: ends some of the commands that may have been in
 * them. */
void core_writes_end_skipped(struct core *c);
/* An entry of @term was applied. */
void core_writes_term(struct core *c, uint64_t term);
/* Proposes a command of the core itself; nobody waits for its outcome. */
must_check_ int core_propose_own(struct core *c, enum cmd_type type, const struct buf *body);

/* ---- caches.c ---- */

/* @w was refused because of @wait: proposes it again later. */
void core_write_waits(struct core *c, struct core_write *w, const struct cached_wait *wait);
void core_write_waits_no_more(struct core *c, struct core_write *w);
/* Proposes again the commands that need not wait any longer, some of them in each turn. */
void core_waiting_run(struct core *c);
/* Whether it has more to do at once: a check is under way, or cache terms have been given back
 * since the last one began. */
bool core_waiting_is_due(const struct core *c);

/* ---- orders.c ---- */

/* Ends the orders that are done, or cannot be done. */
void core_orders_run(struct core *c);
/* When the core stops: ends them all. */
void core_orders_end(struct core *c);

/* ---- upgrade.c ---- */

/* As struct replica_ops says. */
bool core_found(void *core);
/* Raises it when that is due. */
void core_upgrade_run(struct core *c);
struct boot_time core_upgrade_next(const struct core *c);

/* ---- reads.c ---- */

void core_read_finish(struct core *c, struct core_read *rd, struct status st);
void core_read_stop_first(struct core *c);
/* Entries up to @applied have been applied. */
void core_reads_serve(struct core *c, uint64_t applied);
/* Whether a read could be served now. */
bool core_reads_ready(struct core *c);
/* Reads up to @id are linearizable once @index is applied. */
void core_reads_at(void *core, uint64_t id, uint64_t index, struct lease_time at);
/* Starts our first read, which shows how far the others were when we started. */
void core_reads_catch_up(struct core *c);

/* ---- renewals.c ---- */

/* Moves renewals on: those that have arrived, and those that are to be sent now; @at_once: all
 * that wait for a batch. */
void core_renewals_run(struct core *c, bool at_once);
/* Answers all of @list with @st, which leaves it empty. */
void core_renewals_fail(struct core *c, struct core_renewals *list, struct status st);
void core_renewal_finish(struct core *c, struct core_renewal *rn, struct status st,
                         int64_t ttl_ms);
/* Queues a renewal of @l for the next batch. */
void core_renewal_queue(struct core *c, struct core_renewal *rn, const struct lease *l);
void core_renewal_move(struct core_renewal *rn, struct core_renewals *to);
/* The lease that has the renewal's id or name, or NULL. */
struct lease *core_renewal_lease(const struct core *c, struct core_renewal *rn);

/* ---- confirm.c ---- */

/* Requests one confirmation from the leader for all of @list, which leaves it empty. @covered:
 * their leases have been renewed ahead; otherwise they are unknown here. */
void core_renewals_confirm(struct core *c, struct core_renewals *list, bool covered);

/* ---- expiry.c ---- */

void core_expire(struct core *c);
void core_log_time(struct core *c);
/* Reports to the owner the leases that expire in @cmd. Returns false if *@left was not
 * enough. */
must_check_ bool core_report_expired(struct core *c, const struct cmd *cmd, uint64_t term,
                                     struct budget *left);

/* ---- core.c ---- */

/* Whether ours is the replica that was forced, and the log does not say so yet. */
bool core_has_to_descend(const struct core *c);

/* ---- apply.c ---- */

/* Returns false if *@left was not enough. */
must_check_ bool core_free_gone(struct core *c, struct budget *left);
void core_drop_loaded(struct core *c);
