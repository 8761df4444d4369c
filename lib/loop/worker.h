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
        void (*drop)(struct worker_job *job); /* called instead of `done` if the worker is freed
                                               * first */
        struct worker_job *next;              /* the worker's */
        struct boot_time submitted_at;        /* the worker's */
        nsec_t took, took_in_all; /* for `done`: how long `run` took, and how long ago the job
                                   * was submitted */
};

must_check_ int worker_new(struct worker **ret, struct loop *l, const char *thread_name);

/* Finishes the jobs that were submitted, joins the thread, and drops jobs that were not handed
 * back. Accepts NULL; returns NULL. */
struct worker *worker_free(struct worker *w);

/* Like worker_free(), for jobs that nobody waits for: does not wait for a job that is running;
 * the thread, the worker and the job are left behind, and freed if the job ends. @loop may be
 * freed. */
struct worker *worker_abandon(struct worker *w);
DEFINE_CLEANUP(struct worker *, worker_free)

/* The job must stay valid until `done` or `drop`. */
void worker_submit(struct worker *w, struct worker_job *job);
