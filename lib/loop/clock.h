/*
 * The only clock of the programs: CLOCK_MONOTONIC_RAW plus the time that the host slept.
 *
 * Leases need two hosts' clocks to run at the same rate. CLOCK_BOOTTIME goes on during suspend,
 * but is slewed with the date: chrony slews by up to 8 %, adjtimex(2) allows 10 %, and no
 * margin in use allows for that. CLOCK_MONOTONIC_RAW depends on the oscillator alone and stands
 * still in suspend. CLOCK_BOOTTIME is CLOCK_MONOTONIC plus the time asleep, so the difference
 * of the two, which no slew changes, is what the raw clock lacks (clock_gettime(2)).
 *
 * This clock cannot be waited for (timerfd_create(2)), and other programs do not read it. For
 * both purposes there is CLOCK_BOOTTIME, by the functions below. Per thread: no lock, no shared
 * state.
 */
#pragma once

#include <time.h>

#include "base/base.h"
#include "base/clock.h"

struct boot_time boot_now(void);

/* The same for a third of the cost, for how long pieces of work take: what was slept since
 * boot_now() looked last, it does not see. */
struct boot_time boot_glance(void);

/* Whether @t is ahead, for who asks a million times a second: true costs one clock for as long
 * as it would be at any rate at which CLOCK_BOOTTIME may go; the others are looked at when not.
 * After a suspend it is as right as boot_now(). Zeroed at first; of one thread at a time. */
struct boot_ahead {
        struct boot_time of; /* what `until` is about */
        nsec_t until;        /* of CLOCK_BOOTTIME: true before that */
};
bool boot_is_ahead(struct boot_ahead *a, struct boot_time t);

/* A descriptor that is readable from about @when on (timerfd_create(2)): rather
 * after than before, at the rate at which CLOCK_BOOTTIME goes now. If that changes, it is early
 * or late by as much; so code that waits long arms it again when boot_rate() has moved. Owned
 * by the caller; or a negative errno. BOOT_TIME_NEVER: disarmed. */
must_check_ int boot_timer_new(void);
void boot_timer_arm(int fd, struct boot_time when);

/* CLOCK_BOOTTIME's rate by ours, of late; 1 where the date is not being mended. */
double boot_rate(void);

/* For other programs, which read CLOCK_BOOTTIME: what that was or will be at @t, in
 * microseconds. Where the rate is not 1, it is rather too early for what lies ahead. @t 0 stays
 * 0: there is none.
 */
int64_t boot_usec(struct boot_time t);

/* In which CLOCK_BOOTTIME is what it is here: the inode of /proc/self/ns/time
 * (time_namespaces(7)); 0: unknown. */
uint64_t boot_namespace(void);

/* ---- how it is done, for tests: pure ---- */

/* Of one moment, read in this order. */
struct clock_reading {
        nsec_t monotonic, boot, raw;
};

struct boot_clock {
        void (*read)(struct clock_reading *ret);
        bool started;
        nsec_t asleep;               /* since boot */
        nsec_t last;                 /* what was said; it is never less afterwards */
        struct clock_reading marked; /* where the rate is measured from */
        double rate;
};

struct boot_time boot_clock_now(struct boot_clock *c);
struct boot_time boot_clock_glance(struct boot_clock *c, nsec_t raw);
/* @boot: CLOCK_BOOTTIME, now. */
bool boot_clock_is_ahead(struct boot_clock *c, struct boot_ahead *a, struct boot_time t,
                         nsec_t boot);
/* What CLOCK_BOOTTIME will be at @t. */
struct timespec boot_clock_timer(struct boot_clock *c, struct boot_time t);
int64_t boot_clock_usec(struct boot_clock *c, struct boot_time t);
