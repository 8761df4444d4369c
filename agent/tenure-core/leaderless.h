/* Logs that there is no leader, once that has lasted, and what this replica knows about the
 * cause. An operator of a cluster that has lost its majority, or of a replica that the others
 * no longer know, finds it in the log of each replica. */
#pragma once

#include "core/core.h"
#include "links.h"

struct leaderless {
        struct loop_timer timer;
        struct core *core;         /* borrowed, as ... */
        const struct links *links; /* ... this is */
        struct boot_time since;    /* NEVER: there is a leader */
};

/* Begins with no leader. */
void leaderless_start(struct leaderless *l, struct loop *loop, struct core *core,
                      const struct links *links);
void leaderless_fini(struct leaderless *l); /* may be called without leaderless_start() */

/* @there: whether there is a leader now. */
void leaderless_changed(struct leaderless *l, bool there);
