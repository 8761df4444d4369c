/*
 * What the files of shared work share: work.c joins, looks, leaves and is what programs call;
 * work_tasks.c takes tasks and gives them back; work_report.c reports to the program. Not for
 * others.
 */
#pragma once

#include "member/node_record.h"
#include "member/work.h"
#include "tenure/calls.h"
#include "tenure/work.h"

/* Of a transaction of etcd's, which has 128 operations and counts one more for the level above.
 */
#define WORK_BATCH 100

enum work_state {
        WORK_OUT,     /* nothing is held to join with */
        WORK_JOIN,    /* the member's key is to be written */
        WORK_LOOK,    /* what is there? */
        WORK_FOLLOW,  /* as the watch tells */
        WORK_REFUSED, /* which was reported */
};

/* Tasks for which one transaction is under way. */
struct batch {
        struct tenure_call *call; /* NULL: none is */
        struct work_task *tasks[WORK_BATCH];
        bool done[WORK_BATCH];
        size_t n;
};

struct tenure_work {
        LIST_ENTRY(tenure_work) entry;
        struct tenure *tenure;
        char *group; /* owned */
        struct work work;
        enum work_state state;
        bool leaving;      /* by tenure_work_leave() */
        bool unlisted;     /* after that: the member's key is deleted */
        bool look_again;   /* what was reported could not be kept, or the watch has ended */
        struct buf prefix; /* of the group's keys */
        struct buf self;   /* the member's */
        struct buf record; /* and its value */
        struct batch takes, gives;
        struct tenure_call *call; /* another one that is under way */
        struct tenure_watch *watch;
        struct boot_time probe_at; /* the endpoint of the watch */
        struct boot_time retry_at;
        nsec_t backoff;
        struct boot_time look_at; /* not before */
        nsec_t look_gap;
        bool untold; /* what was asked for has its answer, and the watch has not told of it: */
        struct boot_time tell_by;
};

/* ---- work.c ---- */

/* Another time is set, later each time. */
void work_again(struct tenure_work *w);
/* Takes the result of the call that was in *@slot; false: there is no answer, or it is a
 * refusal, which was reported. */
bool work_has_answer(struct tenure_work *w, struct tenure_call *c, struct tenure_call **slot);
/* Asks @q; @done takes the answer, which is in *@slot meanwhile. It is asked elsewhere when no
 * answer comes, so that it may be done twice, and late: what makes a key does so only where
 * there is none, and what deletes one only if it was created then. Returns 0, or a negative
 * errno once another time is set. */
must_check_ int work_ask(struct tenure_work *w, const struct call_kind *kind,
                         const ProtobufCMessage *q, call_done_fn done,
                         struct tenure_call **slot);
ProtobufCBinaryData work_bytes(const struct buf *b);
void work_if_lease(Pb__Compare *c, ProtobufCBinaryData key, int64_t lease);

/* ---- work_tasks.c ---- */

/* What is to be done with each. */
void work_do_tasks(struct tenure_work *w, struct boot_time now);

/* ---- work_report.c ---- */

void work_report_begin(struct tenure_work *w, struct work_task *task);
void work_report_end(struct tenure_work *w, struct work_task *task);
/* All that run. */
void work_report_ends(struct tenure_work *w);
/* What says that the group is left, to be queued; NULL: there is no memory for it. */
struct queued *work_event_left(struct tenure_work *w, int error, const char *why);
/* What the program has not heard yet of a task's beginning. */
void work_take_back(struct tenure_work *w, struct work_task *task);
