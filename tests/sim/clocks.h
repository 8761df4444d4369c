/* CLOCK_BOOTTIME of each host. */
#pragma once

#include "base/clock.h"

struct world;

struct host_clock {
        int32_t ppm;    /* how fast it is */
        nsec_t ahead;   /* of a clock that counts each sleep exactly */
        nsec_t stepped; /* by that much in the last sleep that it did not count so ... */
        struct boot_time woke_at; /* ... which ended then */
};

struct boot_time clock_of(const struct world *w, const struct host_clock *c);
/* When it will show @t; now, if it does already. */
nsec_t true_time_of(const struct world *w, const struct host_clock *c, struct boot_time t);
/* The host wakes up, having slept that long. Returns whether its clock counted something else.
 */
bool clock_wakes(struct world *w, struct host_clock *c, nsec_t slept);
