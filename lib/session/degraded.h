/* Decides whether something slows this host down so much that its heartbeats are at risk, and
 * what: pressure stall information (Documentation/accounting/psi.rst) and how late our own loop
 * runs. Reported before the place is lost, for software that decides where work runs. Pure. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct degraded_config {
        unsigned percent; /* of the last 10 s in which work stood still for memory or disks; 0:
                             never report the host as degraded, not even for `lag` */
        unsigned cpu_percent; /* of the last 10 s in which some work waited for a processor; 0:
                                 ignore this, since a busy host is not a sick one */
        nsec_t lag;           /* how late our loop may run */
};

struct degraded {
        struct boot_time since;
        char why[96]; /* "" while the host is well; otherwise what slowed it down first */
};

struct degraded_reading {
        double cpu, memory, io; /* percent, avg10; negative: the kernel does not report it */
        nsec_t lag;             /* the worst since the last reading */
};

/* The percentage behind `avg10=` in the line that begins with @kind, "some" or "full", of a
 * file in /proc/pressure; -1 when there is none. */
double pressure_parse(const char *text, const char *kind);

/* Returns whether `why` has changed. It becomes "" again when every reading is below half of
 * its threshold, but not sooner than after 10 s. */
bool degraded_update(struct degraded *d, const struct degraded_config *cfg,
                     const struct degraded_reading *r, struct boot_time now);
