/*
 * Time as the code passes it around.
 *
 * An instant is a `struct boot_time` on a clock of the host's own since its boot, which goes on
 * during suspend and is not slewed (loop/clock.h); wrapping it makes mixing it with a duration,
 * or with another clock, a compile error. A duration is an `nsec_t`. Nothing here reads a
 * clock: boot_now() lives in loop/, so that a pure folder cannot call it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef int64_t nsec_t;

#define NSEC_PER_SEC INT64_C(1000000000)
#define NSEC_PER_MSEC INT64_C(1000000)
#define NSEC_PER_USEC INT64_C(1000)

struct boot_time {
        nsec_t ns;
};

#define BOOT_TIME_NEVER ((struct boot_time){.ns = INT64_MAX})

static inline struct boot_time boot_add(struct boot_time t, nsec_t d)
{
        return (struct boot_time){.ns = t.ns > INT64_MAX - (d > 0 ? d : 0) ? INT64_MAX
                                                                           : t.ns + d};
}

/* The time from @earlier to @later; negative if @later is the earlier one. */
static inline nsec_t boot_diff(struct boot_time later, struct boot_time earlier)
{
        return later.ns - earlier.ns;
}

static inline bool boot_before(struct boot_time a, struct boot_time b)
{
        return a.ns < b.ns;
}

static inline struct boot_time boot_min(struct boot_time a, struct boot_time b)
{
        return boot_before(a, b) ? a : b;
}

static inline struct boot_time boot_max(struct boot_time a, struct boot_time b)
{
        return boot_before(a, b) ? b : a;
}

/*
 * Lease time: what counts against leases. It runs like the leader's boot_time while the core
 * can accept renewals, and stands still during an outage, so that no lease pays for one. It is
 * replicated: an instant of it means the same on every replica, in the log and in snapshots;
 * consensus/lease_clock.h makes it.
 */
struct lease_time {
        nsec_t ns;
};

#define LEASE_TIME_NEVER ((struct lease_time){.ns = INT64_MAX})

static inline struct lease_time lease_time_add(struct lease_time t, nsec_t d)
{
        return (struct lease_time){.ns = t.ns > INT64_MAX - (d > 0 ? d : 0) ? INT64_MAX
                                                                            : t.ns + d};
}

static inline nsec_t lease_time_diff(struct lease_time later, struct lease_time earlier)
{
        return later.ns - earlier.ns;
}

static inline bool lease_time_before(struct lease_time a, struct lease_time b)
{
        return a.ns < b.ns;
}

static inline struct lease_time lease_time_max(struct lease_time a, struct lease_time b)
{
        return lease_time_before(a, b) ? b : a;
}
