/*
 * The granter's deadlines: when each lease may be called expired, soonest first.
 *
 * In lease time (base/clock.h), so that they follow from the log alone and every replica has
 * the same: a new leader goes on with the true remaining time (I2, A7), and an outage, in which
 * lease time stands still, costs no lease anything (I1). Only the leader acts on them. Pure:
 * the caller passes `now`. Renewing costs O(1), since a deadline only moves later and the heap
 * is put right when the old one comes up, a few in each turn; adding and dropping cost O(log
 * n).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct deadlines {
        struct deadline *of_slot; /* indexed by slot; owned */
        size_t n_slots, slots_cap;
        uint32_t *heap; /* slots; owned */
        size_t n, heap_cap;
};

void deadlines_init(struct deadlines *d);
void deadlines_fini(struct deadlines *d);

/* Lets the lease in @slot end at @end; an earlier end than before is honoured too. Returns 0 or
 * -ENOMEM. */
must_check_ int deadlines_set(struct deadlines *d, uint32_t slot, struct lease_time end);

/* Drops @slot; does nothing when it has no deadline. */
void deadlines_clear(struct deadlines *d, uint32_t slot);

/* The end of @slot; LEASE_TIME_NEVER when it has none. */
struct lease_time deadlines_get(const struct deadlines *d, uint32_t slot);

/* Renewed leases that are put right in one turn: less than a millisecond's worth. */
#define DEADLINES_LOOKS ((size_t) 2048)

/* When to look again: never after the soonest end that has not been asked for, and before it
 * while renewed leases are still to be put right, some with each call; LEASE_TIME_NEVER when
 * there is none. */
struct lease_time deadlines_next(struct deadlines *d);

/* Names a slot whose end is at or before @now, and hides it until @again, since an expiry that
 * was proposed may fail and is then due again (A10): only deadlines_clear(), at apply, ends it.
 * Takes off *@looks the renewed ones that it put right. Returns false when nothing is due, or
 * they did not last to see what is. */
bool deadlines_pop(struct deadlines *d, struct lease_time now, struct lease_time again,
                   size_t *looks, uint32_t *ret_slot);
