/*
 * The granter's deadlines: when each lease may be called expired, soonest first.
 *
 * In lease time (base/clock.h), so that they follow from the log alone and every replica has
 * the same: a new leader continues with the true remaining time (I2, A7), and an outage, during
 * which lease time stands still, shortens no lease (I1). Only the leader acts on them. Pure:
 * the caller passes `now`. Renewing costs O(1), since a deadline only moves later, and the heap
 * is corrected only when the old one is reached, for a few leases in each turn; adding and
 * dropping cost O(log n).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "state/charge.h"

struct deadlines {
        WIDER;
        struct deadline *of_slot; /* indexed by slot; owned */
        size_t n_slots, slots_cap;
        uint32_t *heap; /* slots; owned */
        size_t n, heap_cap;
};

void deadlines_init(struct deadlines *d);
void deadlines_fini(struct deadlines *d);

/* Sets the end of the lease in @slot to @end, which may be earlier than before. Returns 0 or
 * -ENOMEM. */
must_check_ int deadlines_set(struct deadlines *d, uint32_t slot, struct lease_time end);

/* Drops @slot; does nothing when it has no deadline. */
void deadlines_clear(struct deadlines *d, uint32_t slot);

/* No slot from @n_slots on has a deadline: gives back memory that was for many more. */
void deadlines_end_at(struct deadlines *d, size_t n_slots);

/* The end of @slot; LEASE_TIME_NEVER when it has none. */
struct lease_time deadlines_get(const struct deadlines *d, uint32_t slot);

/* How many renewed leases are corrected in the heap in one turn: it takes less than a
 * millisecond. */
#define DEADLINES_LOOKS ((size_t) 2048)

/* When to call deadlines_pop() next: no later than the soonest end that was not yet returned;
 * earlier while renewed leases remain to be corrected, some with each call; LEASE_TIME_NEVER if
 * there are no deadlines. */
struct lease_time deadlines_next(struct deadlines *d);

/* Returns a slot whose end is at or before @now, and hides it until @again: a proposed expiry
 * may fail, and is then due again (A10); only deadlines_clear(), at apply, ends it. Subtracts
 * the number of leases that it corrected from *@looks. Returns false if nothing is due, or if
 * *@looks was used up before that was known. */
bool deadlines_pop(struct deadlines *d, struct lease_time now, struct lease_time again,
                   size_t *looks, uint32_t *ret_slot);
