/*
 * Loads a snapshot (snapshot.h) in slices, beside the present state.
 *
 * Each value is checked. A snapshot that is damaged is refused as a whole: a partly loaded
 * state must not be used, and a caller that gives up frees it. Pure.
 */
#pragma once

#include "state/snapshot.h"

struct state_loader {
        struct state *state; /* borrowed */
        struct snapshot_in in;
        unsigned part;       /* of the snapshot; the one that is being loaded, if ... */
        bool begun;          /* ... the number of its items was read */
        uint64_t i, n;       /* the item that is next, and how many there are */
        struct view name;    /* of the key of which ... */
        uint64_t n_versions; /* ... so many versions are still to be loaded */
        struct kv_key *key;  /* NULL before the first of them */
        char wrong[128];     /* why it was refused: a clause */
        uint32_t newest; /* the cluster version up to which snapshots are loaded; CLUSTER_NEWEST
                          * unless the caller sets it */
};

/* Begins to load @snapshot. @s is uninitialized; the caller frees it in any case. */
void state_load_start(struct state_loader *l, struct state *s, struct view snapshot);

/* Continues in slices. Returns 1 if @left was not enough; 0 when everything was loaded;
 * -EBADMSG, and why in `wrong`; or -ENOMEM. */
must_check_ int state_load_some(struct state_loader *l, struct budget *left);
