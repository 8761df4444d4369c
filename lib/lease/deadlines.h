/*
 * The granter's deadlines: when each lease may be called expired, soonest first.
 *
 * Local to a replica and never in the log: apply time + TTL on CLOCK_BOOTTIME. Every replica
 * keeps them, so that a new leader goes on with the true remaining time (I2, A7); only the
 * leader acts on them. An outage moves those it hit. Pure: the caller passes `now`. Renewing
 * costs O(1), since a deadline only moves later and the heap is put right when the old one
 * comes up; adding and dropping cost O(log n).
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

/* Lets the lease in @slot, counted from @now, end at @end; an earlier end than before is
 * honoured too. Returns 0 or -ENOMEM. */
must_check_ int deadlines_set(struct deadlines *d, uint32_t slot, struct boot_time now,
                              struct boot_time end);

/* Drops @slot; does nothing when it has no deadline. */
void deadlines_clear(struct deadlines *d, uint32_t slot);

/* Moves every deadline by @outage, which ended at @end: time in which the core could have
 * accepted no renewal (I1). A lease is excused only for what of it lies behind its last
 * renewal, so that nothing is excused twice, and a replayed excuse adds nothing to a deadline
 * that counts from the replay (I2). Costs O(leases); it happens once per outage. */
void deadlines_excuse(struct deadlines *d, struct boot_time end, nsec_t outage);

/* The end of @slot; BOOT_TIME_NEVER when it has none. */
struct boot_time deadlines_get(const struct deadlines *d, uint32_t slot);

/* When to look again: never after the soonest end that has not been asked for; BOOT_TIME_NEVER
 * when there is none. */
struct boot_time deadlines_next(struct deadlines *d);

/* Names a slot whose end is at or before @now, and hides it until @again, since an expiry that
 * was proposed may fail and is then due again (A10): only deadlines_clear(), at apply, ends it.
 * Returns false when nothing is due. */
bool deadlines_pop(struct deadlines *d, struct boot_time now, struct boot_time again,
                   uint32_t *ret_slot);
