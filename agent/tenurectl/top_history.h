/*
 * What happened to the members in the hour before `tenurectl top` was opened, from the history
 * of keys: one watch from the revision of an hour ago on, which ends where the live one began.
 *
 * Does nothing on a core that does not report the times of its revisions, such as an etcd.
 * Compacted changes are missing.
 */
#pragma once

#include "rpc/conn.h"
#include "top_model.h"
#include "wire/pb.h"

struct top_history;

must_check_ int top_history_new(struct top_history **ret, struct top_model *m);
struct top_history *top_history_free(struct top_history *h);

/* Takes a replica's status; of all replicas, the times that reach back furthest count. */
void top_history_times(struct top_history *h, const Pb__StatusResponse *p,
                       struct boot_time now);

bool top_history_has_begun(const struct top_history *h);
/* top_history_waits(): whether the watch can begin. Then call top_history_begin() once, on a
 * connection to any replica; @wall: nanoseconds since the Epoch, so that rounding moves no
 * event by a second. The caller kicks the connection. */
bool top_history_waits(const struct top_history *h);
void top_history_begin(struct top_history *h, struct rpc_conn *rpc, struct boot_time now,
                       nsec_t wall);
/* Gives up if the watch takes too long. Returns whether the history is complete or given up. */
bool top_history_is_done(struct top_history *h, struct boot_time now);

/* For the watch, and for tests: a change of /tenure/CLUSTER/nodes/NAME. */
void top_history_event(struct top_history *h, const Pb__Event *e);
