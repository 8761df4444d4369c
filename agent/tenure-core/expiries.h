/* Logs each lease that expires, unless there are too many: a client can grant leases, and let
 * them expire, faster than any journal takes lines, and then journald(8) would drop those that
 * matter, too. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define EXPIRIES_AT_ONCE 1000 /* leases that are named in one period: 10 s */

struct expiries {
        struct boot_time until; /* of this period */
        unsigned named;         /* in it */
        uint64_t unnamed;       /* since the log last said how many */
};

void expiries_log(struct expiries *e, struct boot_time now, int64_t lease, size_t n_keys,
                  uint64_t term);
