/*
 * The only clock of the programs: CLOCK_MONOTONIC_RAW plus the time that the host slept.
 *
 * Leases need two hosts' clocks to run at the same rate. CLOCK_BOOTTIME advances during
 * suspend, but is slewed with the date: chrony slews by up to 8 %, adjtimex(2) allows 10 %, and
 * no margin in use allows for that. CLOCK_MONOTONIC_RAW depends on the oscillator alone and
 * stands still in suspend. CLOCK_BOOTTIME is CLOCK_MONOTONIC plus the time asleep, so the
 * difference of the two, which no slew changes, is what the raw clock lacks (clock_gettime(2)).
 *
 * Timers cannot wait on this clock (timerfd_create(2)), and other programs do not read it. For
 * both purposes the functions below convert to CLOCK_BOOTTIME. Per thread: no lock, no shared
 * state.
 */
#pragma once

#include <time.h>

#include "base/base.h"
#include "base/clock.h"

struct boot_time boot_now(void);

/* boot_now() at a third of the cost, for measuring how long pieces of work take: it lacks the
 * time asleep since the last boot_now(). */
struct boot_time boot_glance(void);

/* Whether @t is ahead, for callers that ask a million times a second: reads only one clock as
 * long as the answer would be true at any rate at which CLOCK_BOOTTIME may run, and all of them
 * otherwise. After a suspend it is as correct as boot_now(). Zeroed at first; for one thread at
 * a time. */
struct boot_ahead {
        struct boot_time of; /* the instant that `until` is about */
        nsec_t until;        /* as long as CLOCK_BOOTTIME is before this, the answer is true */
};
bool boot_is_ahead(struct boot_ahead *a, struct boot_time t);

/* A descriptor that is readable from about @when on (timerfd_create(2)): rather after than
 * before, at the present rate of CLOCK_BOOTTIME. If the rate changes, it is early or late
 * accordingly; so code that waits long arms it again when boot_rate() has changed. Owned by the
 * caller; or a negative errno. BOOT_TIME_NEVER: disarmed. */
must_check_ int boot_timer_new(void);
void boot_timer_arm(int fd, struct boot_time when);

/* The recent rate of CLOCK_BOOTTIME by this clock; 1 while the date is not being slewed. */
double boot_rate(void);

/* For other programs, which read CLOCK_BOOTTIME: its value at @t, in microseconds. If the rate
 * is not 1, the value for an instant that is ahead is rather too early. 0, for no instant,
 * stays 0.
 */
int64_t boot_usec(struct boot_time t);

/* How long the calling thread has had a processor since it began. A system call. */
nsec_t thread_cpu_time(void);

/* The time namespace, which CLOCK_BOOTTIME depends on: the inode of /proc/self/ns/time
 * (time_namespaces(7)); 0: unknown. */
uint64_t boot_namespace(void);

/* ---- internals, for tests; pure ---- */

/* Readings of one moment, taken in this order. */
struct clock_reading {
        nsec_t monotonic, boot, raw;
};

struct boot_clock {
        void (*read)(struct clock_reading *ret);
        bool started;
        nsec_t asleep;               /* since boot */
        nsec_t last;                 /* the latest value returned; it never goes back */
        struct clock_reading marked; /* the start of the present measurement of the rate */
        double rate;
};

struct boot_time boot_clock_now(struct boot_clock *c);
struct boot_time boot_clock_glance(struct boot_clock *c, nsec_t raw);
/* @boot: CLOCK_BOOTTIME now. */
bool boot_clock_is_ahead(struct boot_clock *c, struct boot_ahead *a, struct boot_time t,
                         nsec_t boot);
/* The value of CLOCK_BOOTTIME at @t. */
struct timespec boot_clock_timer(struct boot_clock *c, struct boot_time t);
int64_t boot_clock_usec(struct boot_clock *c, struct boot_time t);
