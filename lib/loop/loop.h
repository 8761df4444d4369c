/*
 * The event loop: descriptors, deadlines on CLOCK_BOOTTIME and signals, on libev.
 *
 * One loop, one thread. Timers sit in a heap behind a single timerfd, so that a host that slept
 * wakes up with every deadline due at once (timerfd_create(2), CLOCK_BOOTTIME); libev's own
 * timers stop during suspend and are not used. A timer is a hint: compare with a fresh
 * boot_now() before any act that a lease protects.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <ev.h>

#include "base/base.h"
#include "base/clock.h"

struct loop;

/* The only clock of the programs (clock_gettime(2), CLOCK_BOOTTIME). */
struct boot_time boot_now(void);

must_check_ int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free)

/* Runs until loop_stop(). */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* By how much the latest of the timers since the last question came too late, those aside that
 * were due when they were armed. */
nsec_t loop_take_lag(struct loop *l);

/* A descriptor. Embedded; lives until loop_io_stop(). @events: EV_READ, EV_WRITE. */
struct loop_io {
        struct ev_io ev;
        struct loop *loop;
        void (*fn)(struct loop_io *io, int events);
};

void loop_io_start(struct loop_io *io, struct loop *l, int fd, int events,
                   void (*fn)(struct loop_io *io, int events));
void loop_io_change(struct loop_io *io, int events); /* 0: none for now */
void loop_io_stop(struct loop_io *io);               /* may be stopped already */

/* A one-shot deadline. Embedded; init once, disarm before it goes away. */
struct loop_timer {
        struct loop *loop;
        void (*fn)(struct loop_timer *t);
        struct boot_time when;
        size_t at; /* position in the loop's heap, plus one; 0 when not armed */
};

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t));
must_check_ int loop_timer_arm(struct loop_timer *t,
                               struct boot_time when); /* 0 or -ENOMEM; moves an armed one */
void loop_timer_disarm(struct loop_timer *t);
static inline bool loop_timer_armed(const struct loop_timer *t)
{
        return t->at != 0;
}

/* Runs every time before the loop sleeps, in the order in which hooks were started: the place
 * to act on what an iteration gathered. Embedded. */
struct loop_hook {
        TAILQ_ENTRY(loop_hook) next;
        struct loop *loop; /* NULL while not started */
        void (*fn)(struct loop_hook *h);
};

void loop_hook_start(struct loop_hook *h, struct loop *l, void (*fn)(struct loop_hook *h));
void loop_hook_stop(struct loop_hook *h);

/* Runs once, after the hooks and before the loop sleeps: the place to send in one go. Embedded.
 */
struct loop_later {
        TAILQ_ENTRY(loop_later) next;
        struct loop *loop; /* NULL while not queued */
        void (*fn)(struct loop_later *d);
};

void loop_later(struct loop_later *d, struct loop *l,
                void (*fn)(struct loop_later *d)); /* may be queued already */
void loop_later_cancel(struct loop_later *d);

struct loop_signal {
        struct ev_signal ev;
        void (*fn)(struct loop_signal *s);
};

void loop_signal_start(struct loop_signal *s, struct loop *l, int signo,
                       void (*fn)(struct loop_signal *s));
