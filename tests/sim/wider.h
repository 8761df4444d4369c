/*
 * A state machine whose structs have other sizes, beside the replicas.
 *
 * It is lib/state once more, compiled with TENURE_WIDER (state/charge.h), as if it were a later
 * version, or on another machine. It applies each entry when the first replica has applied it,
 * and check.c compares their states (I4). Now and then it starts again from the snapshot of a
 * replica. The world does not notice it.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

/* Empties the state. */
void wider_begin(void);
void wider_end(void);

/* The last entry that it has applied. */
uint64_t wider_applied(void);

/* Applies an entry, and does nothing if it has applied it before. Returns 0 or a negative
 * errno. */
must_check_ int wider_apply(uint64_t index, struct lease_time at, struct view commands);

/* Goes on from another replica's snapshot. Returns 0, -EBADMSG or -ENOMEM; then the state is
 * empty. */
must_check_ int wider_load(struct view snapshot);

uint64_t wider_hash(void);
