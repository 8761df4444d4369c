/* In place of loop/worker.c: workers without a thread, whose jobs are done when a test says so.
 */
#pragma once

#include "loop/worker.h"

/* Does the next job of @w; false when none waits. */
bool worker_do(struct worker *w);

/* Does all that waits at any worker, in its order. */
void workers_run(void);
