/* In place of loop/worker.c: workers without a thread, whose jobs run when a test says so. */
#pragma once

#include "loop/worker.h"

/* Runs the next job of @w; false if there is none. */
bool worker_do(struct worker *w);

/* Takes the next job of @w, as its thread does that begins to run it; NULL: there is none. As
 * the thread does, the caller runs it, and then either says that it is done or, if @w was
 * abandoned meanwhile, drops it. */
struct worker_job *worker_take(struct worker *w);

/* Runs the next job of any worker; false if there is none. */
bool workers_do(void);

/* The worker that was made last; NULL: there is none. */
struct worker *worker_newest(void);

/* Runs all jobs of all workers, in order. */
void workers_run(void);
