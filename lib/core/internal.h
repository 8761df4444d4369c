/*
 * What the files of core/ share. Not for others.
 *
 *     core.c      put together, asked, and run
 *     writes.c    commands on their way through the log
 *     caches.c    those that wait for the end of caches' terms
 *     reads.c     reads that wait to be linearizable
 *     renewals.c  renewals, in batches
 *     expiry.c    leases that are due, and the time of the log
 *     apply.c     entries, snapshots and other states, as the replica calls
 *     upkeep.c    alarms and automatic compaction
 *     changes.c   changes of the members
 */
#pragma once

#include "core/core.h"
#include "core/upkeep.h"
#include "state/loader.h"
#include "state/saver.h"

#define SCRATCH_KEEP ((size_t) 64 << 10)

RB_HEAD(core_writes, core_write);
RB_HEAD(core_reads, core_read);

/* A state beside ours: being loaded, or to be freed. */
struct aside {
        STAILQ_ENTRY(aside) next;
        struct state state;
};

struct core {
        struct core_config cfg;
        struct state state;
        struct state_saver saver;
        struct aside *loaded; /* NULL: none; by... */
        struct state_loader loader;
        STAILQ_HEAD(, aside) gone; /* these are freed, some of it at a time... */
        struct boot_time gone_at;  /* ...then */
        uint64_t installs;
        struct {
                bool on;         /* an entry is half applied... */
                size_t at;       /* ...up to this byte of its commands... */
                struct buf out;  /* ...with so much of the answer to the next one */
                size_t reported; /* and of what expires in it, up to this byte */
                struct cmd_slots reported_slots;
        } part;
        struct replica *replica; /* borrowed */
        const struct core_owner *owner;
        void *owner_data;
        struct rnd rnd;
        struct boot_time now;
        struct core_counts counts;

        struct core_writes writes;
        size_t n_writes, write_bytes;
        uint64_t next_seq;
        struct buf command;      /* as it is proposed */
        uint64_t term_seen;      /* the highest term of an applied entry */
        bool repropose;          /* some writes were not proposed, or not in this term... */
        uint64_t repropose_from; /* ...this one, and later ones */
        struct {
                bool on;             /* nobody knows what became of writes that were out... */
                uint64_t from, upto; /* ...of these... */
                uint64_t term;       /* ...in this term or a later one */
        } skipped;

        TAILQ_HEAD(core_waiting, core_write) waiting; /* writes, for the end of caches' terms */
        struct boot_time waiting_at;                  /* when to look at them */
        uint64_t waiting_returned;                    /* as of the last look */
        uint64_t issuer;                              /* of terms: this life */

        struct core_reads reads;
        TAILQ_HEAD(core_confirmed, core_read) confirmed; /* of them; ascending by index */
        size_t n_reads;
        unsigned reads_left; /* to be answered in this turn */
        uint64_t next_read;
        uint64_t served; /* up to this entry they may be answered */
        bool caught_up;
        struct core_read first; /* our own: how far the others were when we came */
        bool reads_dropped;     /* the replica asks for some that nobody waits for */

        STAILQ_HEAD(, core_renewal) renewals; /* waiting for their batch */
        struct core_renewal *unstamped;       /* the first of them that has no time yet */
        size_t n_renewals, n_batches_out;
        size_t n_early;              /* of them: they come again as soon as they are answered */
        size_t n_crowd;              /* so many do, or so */
        struct boot_time renewed_at; /* when the last batch went out */
        struct boot_time renew_at;   /* when the next has to */
        bool renew_next;             /* ...or at once, when none is on its way */
        bool renew_late;             /* ...or whatever is: some are late in their term */
        struct boot_time window_end; /* ...or at the latest now */
        struct boot_time soon_full;  /* when SOON_MAX batches are allowed again */

        struct boot_time expire_not_before; /* while we may not act on deadlines */
        struct boot_time busy_since;        /* an entry is half applied; NEVER */
        struct upkeep upkeep;
        struct changes changes;
        struct boot_time tick_at;     /* when to look again what the log says of time */
        struct boot_time timeouts_at; /* when to look for timed-out requests again */

        struct core_write member;
        bool member_out;
        char *member_name, *member_urls;
};

/* The raft term; 0 while there is no replica. */
uint64_t core_term(const struct core *c);

/* ---- writes.c ---- */

void core_write_finish(struct core *c, struct core_write *w, struct status st,
                       struct view reply);
/* The command was not applied, or may not have been. */
void core_write_fail(struct core *c, struct core_write *w, struct status st);
/* The first of them, if there is one: the core ends. */
void core_write_stop_first(struct core *c);
/* NULL: nobody waits for it. */
struct core_write *core_write_find(struct core *c, uint64_t seq);
/* Proposes it again, as if for the first time; a failure ends it. */
void core_write_again(struct core *c, struct core_write *w);
/* Proposes to the present leader the commands that were proposed in vain; from the first one
 * on. */
void core_writes_repropose_all(struct core *c);
void core_writes_repropose(struct core *c);
/* A snapshot has skipped entries: ends some of the commands that may have been in them. */
void core_writes_tell_lost(struct core *c);
/* An entry of @term is applied. */
void core_writes_term(struct core *c, uint64_t term);
/* Ends commands whose deadline has passed, at most *@left of them. */
void core_writes_time_out(struct core *c, size_t *left);

/* ---- caches.c ---- */

/* @w was refused, because of @wait: it is proposed again. */
void core_write_waits(struct core *c, struct core_write *w, const struct cached_wait *wait);
void core_write_waits_no_more(struct core *c, struct core_write *w);
/* Proposes again the commands that need not wait any more. */
void core_waiting_run(struct core *c);

/* ---- reads.c ---- */

void core_read_finish(struct core *c, struct core_read *rd, struct status st);
void core_read_stop_first(struct core *c);
/* Entries up to @applied are applied. */
void core_reads_serve(struct core *c, uint64_t applied);
/* Read @id is linearizable once @index is applied. */
void core_reads_at(void *core, uint64_t id, uint64_t index);
void core_reads_time_out(struct core *c, size_t *left);
/* Starts the first read, which shows how far the others were when we started. */
void core_reads_catch_up(struct core *c);

/* ---- renewals.c ---- */

/* It is @now at least. */
void core_pass_time(struct core *c, struct boot_time now);
/* Proposes the waiting renewals. */
void core_renewals_send(struct core *c);

/* ---- expiry.c ---- */

/* Proposes a command of our own, whose outcome nobody waits for. */
must_check_ int core_propose_own(struct core *c, enum cmd_type type, const struct buf *body);
void core_expire(struct core *c);
void core_tell_time(struct core *c);
/* Reports to the owner the leases that expire in @cmd. Returns false if *@left was not
 * enough. */
must_check_ bool core_report_expired(struct core *c, const struct cmd *cmd, uint64_t term,
                                     size_t *left);

/* ---- apply.c ---- */

/* Returns false if *@left was not enough. */
must_check_ bool core_free_gone(struct core *c, size_t *left);
void core_drop_loaded(struct core *c);
