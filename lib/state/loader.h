/*
 * Loads a snapshot in slices, beside the present state.
 *
 * A partly loaded state must not be used: a caller that gives up frees it. Pure.
 */
#pragma once

#include "state/state.h"

struct state_loader {
        struct state *state; /* borrowed */
        struct view in;      /* the rest, which has not been read yet; borrowed */
        unsigned part;       /* the part of the snapshot that is being loaded, of which ... */
        uint64_t n;          /* ... this many items are left */
        struct view key;     /* the key to which the next versions belong */
        uint64_t n_versions;
        struct kv_order order;
};

/* Begins to load @snapshot. @s is uninitialized; the caller frees it in any case.
 */
void state_load_start(struct state_loader *l, struct state *s, struct view snapshot);

/* Continues: subtracts its cost from *@left, in units of roughly 0.3 us. Returns 1 if that was
 * not enough; 0 when everything was loaded; -EBADMSG or -ENOMEM. */
must_check_ int state_load_some(struct state_loader *l, size_t *left);

void state_loader_fini(struct state_loader *l);
