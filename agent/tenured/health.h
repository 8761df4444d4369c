/* What slows this host down, as the kernel and our own loop report it, checked with every
 * heartbeat: nothing wakes up for it. */
#pragma once

#include "session/degraded.h"

struct health {
        int fds[3]; /* /proc/pressure/{cpu,memory,io}; -1 if the kernel has none */
        struct boot_time looked_at; /* the renewal at which they were read last */
        struct degraded degraded;
};

void health_init(struct health *h);
void health_fini(struct health *h);

/* Returns whether `degraded.why` has changed. @lag: how late the loop ran since the last look.
 */
bool health_look(struct health *h, const struct degraded_config *cfg, nsec_t lag,
                 struct boot_time now);
