/*
 * A thread for blocking calls - fsync, name look-ups - which does one job after the other and
 * hands the results back to the loop.
 *
 * The job's `run` is called in the worker's thread and may touch nothing but the job; `done` is
 * called in the loop's thread, in the order of submission.
 */
#pragma once

#include "loop/loop.h"

struct worker;

struct worker_job {
        void (*run)(struct worker_job *job);
        void (*done)(struct worker_job *job);
        void (*drop)(
                struct worker_job *job); /* instead of `done`, when the worker goes first */
        struct worker_job *next;         /* the worker's */
        struct boot_time submitted_at;   /* the same */
        nsec_t took, took_in_all; /* for `done`: how long `run` took, and all since then */
};

must_check_ int worker_new(struct worker **ret, struct loop *l, const char *thread_name);

/* Finishes the jobs that were submitted, joins the thread, and drops jobs that were not handed
 * back. Accepts NULL; returns NULL. */
struct worker *worker_free(struct worker *w);

/* As worker_free(), for jobs that nobody waits for: a job that runs now is not waited for, and
 * its thread, the worker and the job are left to the end of the process. @loop may go. */
struct worker *worker_abandon(struct worker *w);
DEFINE_CLEANUP(struct worker *, worker_free)

/* The job must stay where it is until `done`. */
void worker_submit(struct worker *w, struct worker_job *job);
