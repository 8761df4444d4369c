/*
 * Locks: the key that was created first holds the lock; each one that waits watches the one
 * before it, so that a release wakes one and not all.
 *
 * The key is NAME/LEASE-IN-HEX, as `etcdctl lock`, the Lock service and `tenurectl lock` make
 * it: all of these exclude each other. The create_revision is the order, and the token. Before
 * a lock is announced, one transaction has seen both that its key is still the one that we
 * created and that no key is before it (A38, tests/LESSONS.md). With the agent's place, all
 * programs of the host have one lease, and so one key: they take turns (loop/host_turn.h).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "tenure/tenure.h"

LIST_HEAD(lock_list, tenure_lock);

void locks_start(struct tenure *t);
void locks_fini(struct tenure *t);

/* All locks are lost, for @why, because their lease is; the tie may hold another one already.
 */
void locks_lost(struct tenure *t, const char *why);
void locks_soon(struct tenure *t);
