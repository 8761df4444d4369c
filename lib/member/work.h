/*
 * Shared work, as one member of the group sees it: which other members there are, which member
 * should have each task, which one has it now, and what to do next.
 *
 * In the core, a member is a key members/NAME with its record (work_record.h), and a task that
 * a member has is a key tasks/NAME; both are on the lease of the member's session. Each member
 * computes which member should have a task (rendezvous.h), but the task's key decides: it is
 * created only if there is none, and deleted only by its owner, after the task has ended, or by
 * the core, after the owner's lease has ended. So a task belongs to one member at a time, even
 * if two members know different states of the group; the key's create_revision is the fencing
 * token (I12).
 *
 * Once we have requested that a key be deleted, the task never begins again by that key, even
 * if we still see it: it may be gone by then. Pure: what was seen is the input, the next steps
 * are the output.
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
        bool seen;  /* in the present look at all keys */
        bool fresh; /* new: the tasks that it should have are not computed yet */
};

/* The next step for a task. */
enum work_step {
        WORK_NOTHING,
        WORK_TAKE,  /* ask the core to create its key, then call work_asked() */
        WORK_BEGIN, /* it is ours, with the token `created`: start it, call work_began() */
        WORK_END,   /* it runs and must stop: tell the program, call work_stops() */
        WORK_GIVE,  /* ask the core to delete its key, then call work_asked() */
};

enum work_run { WORK_IDLE, WORK_RUNS, WORK_STOPS };

struct work_task {
        const char *name; /* owned by the record, or: */
        char number[WORK_NUMBER_MAX];
        uint64_t hash;
        const struct work_peer *best; /* the member that should have it; NULL: none */
        uint64_t log;                 /* rendezvous_log() of `best` */
        bool unassigned;              /* `best` is gone, or has changed */
        /* The key, as seen; 0: there is none. */
        int64_t lease, created;
        enum work_step asked; /* WORK_TAKE or WORK_GIVE: requested, and the key has not changed
                               * since */
        int64_t given;        /* create_revision of the key that we have asked to be deleted */
        enum work_run run;
        int64_t token; /* the token with which it runs or stops */
        bool seen;
        void *arg; /* the caller's data */
};

struct work {
        struct work_peer self;
        struct work_task *tasks;
        size_t n;
        LIST_HEAD(, work_peer) peers;
        nsec_t settle;
        int64_t lease; /* 0: no lease is held */
        bool leaving;
        bool changed;   /* for some tasks, `best` has to be computed again */
        bool unlisted;  /* our own key was deleted, or is attached to another lease */
        bool unsettled; /* a member has joined lately */
        struct boot_time joined_first, joined_last;
};

/* Takes @record. @settle: tasks move to new members once none has joined for this long or, if
 * members keep joining, after five times that. Returns 0 or -ENOMEM. */
must_check_ int work_init(struct work *w, const char *name, struct work_record *record,
                          nsec_t settle);
void work_fini(struct work *w);

/* A lease is held from now on, and nothing of the group was seen yet. @lease 0: none is held
 * any more. */
void work_hold(struct work *w, int64_t lease);
/* Takes no more tasks, and gives all of them back. */
void work_leave(struct work *w);

/* Reports a key of the group that was written, or deleted. Malformed keys belong to nobody.
 * Returns 0, or -ENOMEM: then read all keys again. */
must_check_ int work_seen(struct work *w, struct view key, struct view value, int64_t lease,
                          int64_t created, struct boot_time now);
void work_seen_deleted(struct work *w, struct view key);
/* Call these before the first and after the last key of a read of the whole group; keys that
 * were not among them are gone. */
void work_look(struct work *w);
void work_looked(struct work *w);

/* Computes which member should have which task. Call it before work_next_step() if anything was
 * seen. */
void work_assign(struct work *w);
enum work_step work_next_step(const struct work *w, const struct work_task *t,
                              struct boot_time now);
/* When a step may be due even if nothing happens. */
struct boot_time work_next(const struct work *w, struct boot_time now);

/* ---- results of steps ---- */

void work_asked(struct work_task *t, enum work_step what);
/* The core refused the request. (If it was carried out, the key shows it.) */
void work_refused(struct work_task *t, enum work_step what);
void work_began(struct work_task *t);
void work_stops(struct work_task *t);
/* The task has stopped. */
void work_ended(struct work_task *t);

/* Why the task must stop, as a text for operators. */
void work_why(const struct work *w, const struct work_task *t, char *to, size_t size);

struct work_task *work_find(struct work *w, const char *task);
/* Whether a task runs, or a key of a task that is ours may be in the core. */
bool work_is_busy(const struct work *w);
