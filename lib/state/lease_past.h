/*
 * Reads all leases as of one moment, in slices, while commands are applied.
 *
 * The leases are read slot by slot. Leases change in place; so while there is a reader, a lease
 * that is about to change is copied first: one copy for all readers that began before, kept
 * only until the last of them has passed it. While nobody reads, a change costs one comparison.
 * The copies are not part of the state: not of its hash, its snapshots or its quota (I4). Pure;
 * borrows the state.
 */
#pragma once

#include "state/state.h"

/* A lease as it was; borrowed until the next call or change. */
struct lease_then {
        int64_t id, ttl_ms;
        uint64_t born, renewed;
        struct lease_time end;
        uint32_t slot;
        struct view name, owner; /* no owner: empty */
};

struct lease_past {
        RB_ENTRY(lease_past) by_number;
        const struct state *state;
        struct leases *of; /* NULL: the reader was lost */
        uint64_t number;   /* a reader that began later has a larger number */
        size_t slot, n_slots;
};

/* Begins to read the present leases. lease_past_fini() follows. */
void lease_past_begin(struct lease_past *p, struct state *s);
void lease_past_fini(struct lease_past *p);

/* Reads the next lease. Works for about *@steps units of 50 ns, and subtracts those used.
 * Returns 1 with a lease; 0 at the end, when the reader is finished; -EAGAIN if *@steps was not
 * enough; or -ESTALE if the reader was lost: another state was loaded, or more changed than
 * could be kept. */
must_check_ int lease_past_next(struct lease_past *p, int64_t *steps, struct lease_then *ret);

/* ---- for code that changes leases ---- */

/* The content of @slot, which may be free, is about to change. */
void lease_past_keep_slot(struct state *s, uint32_t slot);
static inline void lease_past_keep(struct state *s, uint32_t slot)
{
        if (!RB_EMPTY(&s->leases.pasts) || !RB_EMPTY(&s->leases.kept))
                lease_past_keep_slot(s, slot);
}

/* Ends all readers, because all leases are about to be freed. */
void lease_past_drop_readers(struct leases *t);
/* After that, frees the copies in slices. Returns false if @left was not enough. */
must_check_ bool lease_past_free_some(struct leases *t, struct budget *left);
