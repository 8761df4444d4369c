/* Logs that there is no leader, once that has lasted, and what this replica knows about the
 * cause. An operator of a cluster that has lost its majority, or of a replica that the others
 * no longer know, finds it in the log of each replica. */
#pragma once

#include "core/core.h"
#include "links.h"

struct leaderless {
        struct loop_timer timer;
        struct core *core;         /* borrowed, as... */
        const struct links *links; /* ...this is */
        struct boot_time since;    /* NEVER: there is one */
};

/* There is none as yet. */
void leaderless_start(struct leaderless *l, struct loop *loop, struct core *core,
                      const struct links *links);
void leaderless_fini(struct leaderless *l); /* may not have started */

/* There is one now; or there is none. */
void leaderless_changed(struct leaderless *l, bool there);
