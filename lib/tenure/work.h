/*
 * Shared work: what member/work.h decides, done. A membership is a member's key and, for each
 * task that it has, the task's, below /tenure/CLUSTER/work/GROUP/, on the lease of the tie's
 * own session; one watch for all of it, and one transaction for many tasks.
 *
 * Tasks are taken under the condition that the member's key is on that lease: so what was held
 * up on the way does nothing once the lease has ended, or the member has left.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "tenure/tenure.h"

LIST_HEAD(work_list, tenure_work);

void works_start(struct tenure *t);
void works_fini(struct tenure *t);

/* What was held is lost; after this, or at once, another lease is there. */
void works_lost(struct tenure *t);
void works_soon(struct tenure *t);
