/*
 * Shared work, as one member of the group sees it: who else is there, whose each task is to be,
 * who has it now, and what is to be done next.
 *
 * In the core a member is a key members/NAME with its record (work_record.h), and a task that
 * somebody has is a key tasks/NAME, both on the lease of the member's session. Whose a task is
 * to be, each member computes for itself (rendezvous.h); the task's key decides. It is made
 * only where there is none, and deleted only by its owner, once the task has ended, or by the
 * core, once the owner's lease has. So a task is at one member at a time, however different
 * what two members have seen; its create_revision is the fencing token (I12).
 *
 * A key that was asked to be deleted never lets a task begin again, even if it is still seen:
 * it may be gone by then. Pure: what was seen goes in, and what to do comes out.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/buf.h"
#include "base/clock.h"
#include "member/work_record.h"

struct work_peer {
        LIST_ENTRY(work_peer) entry;
        char *name; /* owned */
        uint64_t hash;
        struct work_record record;
        bool seen;  /* in the look that is going on */
        bool fresh; /* what it is to have is not computed yet */
};

/* What is to be done with a task next. */
enum work_step {
        WORK_NOTHING,
        WORK_TAKE,  /* ask the core for its key: work_asked() */
        WORK_BEGIN, /* it is ours, by the token `created`: work_began() */
        WORK_END,   /* it runs, and is to be stopped: work_stops() */
        WORK_GIVE,  /* ask the core to delete its key: work_asked() */
};

enum work_run { WORK_IDLE, WORK_RUNS, WORK_STOPS };

struct work_task {
        const char *name; /* of the record, or: */
        char number[WORK_NUMBER_MAX];
        uint64_t hash;
        const struct work_peer *best; /* who is to have it; NULL: nobody */
        uint64_t log;                 /* rendezvous_log() of that one */
        bool unassigned;              /* who was to have it is gone, or is another now */
        /* The key, as seen; 0: there is none. */
        int64_t lease, created;
        enum work_step asked; /* WORK_TAKE, WORK_GIVE: and the key was not seen changed since */
        int64_t given;        /* the key that was created then was asked to be deleted */
        enum work_run run;
        int64_t token; /* by which it runs, or stops */
        bool seen;
        void *arg; /* the caller's */
};

struct work {
        struct work_peer self;
        struct work_task *tasks;
        size_t n;
        LIST_HEAD(, work_peer) peers;
        nsec_t settle;
        int64_t lease; /* 0: none is held */
        bool leaving;
        bool changed;   /* who is to have what is not computed yet, for some */
        bool unlisted;  /* our own key was deleted, or is on another lease */
        bool unsettled; /* somebody has joined */
        struct boot_time joined_first, joined_last;
};

/* Takes @record. @settle: for how long nobody joins before a task is moved for who has joined;
 * when they go on joining, five times that. Returns 0 or -ENOMEM. */
must_check_ int work_init(struct work *w, const char *name, struct work_record *record,
                          nsec_t settle);
void work_fini(struct work *w);

/* A lease is held, with nothing seen of the group yet; 0: it is held no more. */
void work_hold(struct work *w, int64_t lease);
/* No task is taken any more, and all are given back. */
void work_leave(struct work *w);

/* A key below the group's, as it was written, or deleted. Keys that make no sense to us are
 * nobody's. Returns 0, or -ENOMEM: look again. */
must_check_ int work_seen(struct work *w, struct view key, struct view value, int64_t lease,
                          int64_t created, struct boot_time now);
void work_seen_deleted(struct work *w, struct view key);
/* All keys are looked at: before the first and after the last; what was not among them is gone.
 */
void work_look(struct work *w);
void work_looked(struct work *w);

/* Before work_next_step(), when anything was seen: who is to have what. */
void work_assign(struct work *w);
enum work_step work_next_step(const struct work *w, const struct work_task *t,
                              struct boot_time now);
/* When a step may be due though nothing happens. */
struct boot_time work_next(const struct work *w, struct boot_time now);

/* ---- it is done ---- */

void work_asked(struct work_task *t, enum work_step what);
/* The core has not done that; where it has, the key tells. */
void work_refused(struct work_task *t, enum work_step what);
void work_began(struct work_task *t);
void work_stops(struct work_task *t);
/* It has stopped. */
void work_ended(struct work_task *t);

/* Why it is to be stopped, for a person. */
void work_why(const struct work *w, const struct work_task *t, char *to, size_t size);

struct work_task *work_find(struct work *w, const char *task);
/* It runs, or a key of it may be there that is ours. */
bool work_is_busy(const struct work *w);
