/*
 * The only clock of the programs: CLOCK_MONOTONIC_RAW, and the time that the host slept.
 *
 * Leases want two hosts' clocks to run at the same rate. CLOCK_BOOTTIME goes on during suspend,
 * but is slewed with the date: chrony does so by up to 8 %, adjtimex(2) lets 10 % pass, and no
 * margin in use allows for that. CLOCK_MONOTONIC_RAW is the oscillator's alone and stands still
 * in suspend. CLOCK_BOOTTIME is CLOCK_MONOTONIC and the time asleep, so the difference of the
 * two, which no slew changes, is what the raw clock lacks (clock_gettime(2)).
 *
 * Neither is a clock to wait on (timerfd_create(2)), nor one that other programs read. Both get
 * CLOCK_BOOTTIME, by the functions below. Per thread: no lock, no shared state.
 */
#pragma once

#include <time.h>

#include "base/base.h"
#include "base/clock.h"

struct boot_time boot_now(void);

/* A descriptor that is readable from about @when on (timerfd_create(2)): rather
 * after than before, at the rate at which CLOCK_BOOTTIME goes now. If that changes, it is early
 * or late by as much; so whoever waits long arms it again when boot_rate() has moved. Owned by
 * the caller; or a negative errno. BOOT_TIME_NEVER: disarmed. */
must_check_ int boot_timer_new(void);
void boot_timer_arm(int fd, struct boot_time when);

/* CLOCK_BOOTTIME's rate by ours, of late; 1 where the date is not being mended. */
double boot_rate(void);

/* For others, who read CLOCK_BOOTTIME: what that was or will be at @t, in microseconds. Where
 * the rate is not 1, it is rather too early for what lies ahead. @t 0 stays 0: there is none.
 */
int64_t boot_usec(struct boot_time t);

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
/* What CLOCK_BOOTTIME will be at @t. */
struct timespec boot_clock_timer(struct boot_clock *c, struct boot_time t);
int64_t boot_clock_usec(struct boot_clock *c, struct boot_time t);
