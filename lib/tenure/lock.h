/*
 * Locks: who came first, holds; each who waits watches the one before it, so that a release
 * wakes one and not all.
 *
 * The key is NAME/LEASE-IN-HEX, as `etcdctl lock`, the Lock service and `tenurectl lock` make
 * it: all of these exclude each other. The create_revision is the order, and the token. Before
 * a lock is announced, one transaction has seen that its key is still the one that was made and
 * that none is before it (A38, tests/LESSONS.md). With the agent's place several programs of
 * the host have one lease, and so one key: they take turns at that (loop/host_turn.h).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "tenure/tenure.h"

LIST_HEAD(lock_list, tenure_lock);

void locks_start(struct tenure *t);
void locks_fini(struct tenure *t);

/* What was held is lost, for @why; after this, or at once, another lease is there. */
void locks_lost(struct tenure *t, const char *why);
void locks_soon(struct tenure *t);
