/*
 * Shared work: carries out what member/work.h decides. A membership consists of the member's
 * key and the key of each task that it has, below /tenure/CLUSTER/work/GROUP/, on the lease of
 * the tie's session; one watch follows all of the group, and one transaction takes many tasks.
 *
 * Tasks are taken on the condition that the member's key is on that lease. So a request that
 * was delayed does nothing once the lease has ended, or the member has left.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "tenure/tenure.h"

LIST_HEAD(work_list, tenure_work);

void works_start(struct tenure *t);
void works_fini(struct tenure *t);

/* All tasks are lost, because their lease is; the tie may hold another one already. */
void works_lost(struct tenure *t);
void works_soon(struct tenure *t);
