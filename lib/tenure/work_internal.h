/*
 * Shared by the files of shared work: work.c joins, looks, leaves, and has the functions of
 * tenure.h; work_tasks.c takes tasks and gives them back; work_report.c reports to the program.
 * Not for use elsewhere.
 */
#pragma once

#include "member/node_record.h"
#include "member/work.h"
#include "tenure/calls.h"
#include "tenure/work.h"

/* Tasks in one transaction: etcd allows 128 operations, and counts one more for the level
 * above. */
#define WORK_BATCH 100

enum work_state {
        WORK_OUT,     /* no lease is held to join with */
        WORK_JOIN,    /* write the member's key */
        WORK_LOOK,    /* read all keys of the group */
        WORK_FOLLOW,  /* follow them by the watch */
        WORK_REFUSED, /* the core has refused us, which was reported */
};

/* Tasks for which one transaction is under way. */
struct batch {
        struct tenure_call *call; /* NULL: none is */
        struct work_task *tasks[WORK_BATCH];
        bool done[WORK_BATCH];
        size_t n;
};

/* A change that the watch still has to report, if `is` is true. */
struct work_owed {
        bool is;
        struct boot_time by;
};

struct tenure_work {
        LIST_ENTRY(tenure_work) entry;
        struct tenure *tenure;
        char *group; /* owned */
        struct work work;
        enum work_state state;
        bool leaving;      /* by tenure_work_leave() */
        bool unlisted;     /* after that: the member's key is deleted */
        bool look_again;   /* a report could not be stored, or the watch has ended */
        struct buf prefix; /* of the group's keys */
        struct buf self;   /* the member's key */
        struct buf record; /* its value */
        struct batch takes, gives;
        struct tenure_call *call; /* another call that is under way */
        struct tenure_watch *watch;
        struct boot_time probe_at; /* when to probe the endpoint of the watch */
        struct boot_time retry_at;
        nsec_t backoff;
        struct boot_time look_at; /* do not look before this */
        nsec_t look_gap;
        struct work_owed untold;    /* changes by our own requests, which were answered */
        struct work_owed contested; /* the owners of tasks whose takes were refused */
};

/* ---- work.c ---- */

/* Sets the time of the next try, after a delay that grows. */
void work_again(struct tenure_work *w);
/* Takes the result of the call that was in *@slot. Returns false if there is no answer, or if
 * it is a refusal, which was reported. */
bool work_has_answer(struct tenure_work *w, struct tenure_call *c, struct tenure_call **slot);
/* Sends @q; @done takes the answer, and until then the call is in *@slot. If no answer comes,
 * the request is sent elsewhere, so it may be done twice, or late. For that reason, a key is
 * created only if there is none, and deleted only if its create_revision is the expected one.
 * Returns 0, or a negative errno after setting the time of the next try. */
must_check_ int work_ask(struct tenure_work *w, const struct call_kind *kind,
                         const ProtobufCMessage *q, call_done_fn done,
                         struct tenure_call **slot);
ProtobufCBinaryData work_bytes(const struct buf *b);
void work_if_lease(Pb__Compare *c, ProtobufCBinaryData key, int64_t lease);

/* ---- work_tasks.c ---- */

/* Does what is due for each task. */
void work_do_tasks(struct tenure_work *w, struct boot_time now);

/* ---- work_report.c ---- */

void work_report_begin(struct tenure_work *w, struct work_task *task);
void work_report_end(struct tenure_work *w, struct work_task *task);
/* Reports TENURE_TASK_END for all tasks that run. */
void work_report_ends(struct tenure_work *w);
/* Makes a TENURE_WORK_LEFT, which the caller queues. Returns NULL if out of memory. */
struct queued *work_event_left(struct tenure_work *w, int error, const char *why);
/* Drops the TENURE_TASK_BEGIN of a task, if the program has not taken it yet. */
void work_take_back(struct tenure_work *w, struct work_task *task);
