/*
 * The event loop: descriptors, deadlines and signals, on libev.
 *
 * One loop, one thread. A turn is: what descriptors, signals and timers bring; a share of the
 * input that waits; the hooks, stage by stage; then what is to be sent. Each hook is handed the
 * time and returns when it wants to run next; the loop sleeps until the soonest of those
 * instants and of the timers, or until something comes.
 *
 * All of them are behind a single timerfd on CLOCK_BOOTTIME, so that a host that slept wakes up
 * with every deadline due at once (timerfd_create(2)); libev's own timers stop during suspend
 * and are not used. No timer goes by the clock that leases go by (loop/clock.h), and the rates
 * of the two may differ. So a timer is a hint: compare with a fresh boot_now() before any act
 * that a lease protects.
 *
 * Hooks and timers are embedded in their owners: to start or to arm one cannot fail.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <ev.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/tree.h"
#include "loop/clock.h"

struct loop;

must_check_ int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free)

/* In a child of fork(2), before loop_free(): what the kernel watches is the parent's, too, and
 * stays. */
void loop_leave_to_parent(struct loop *l);

/* Runs until loop_stop(). */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* For who has an event loop of his own and runs this one inside it, from the start: a
 * descriptor of the loop's that is readable when there is something to do, a timer that is due
 * included, or a negative errno; and what does that, without waiting. That returns whether
 * there is more to do at once. What is asked for outside of it (a call, a timer, a hook) counts
 * from the next loop_dispatch() on. */
must_check_ int loop_nest(struct loop *l);
must_check_ bool loop_dispatch(struct loop *l);

/* Where one who reads puts what he has read, until he has dealt with it: one at a time in a
 * loop, and another place in each loop, for each may have a thread. */
#define LOOP_ROOM ((size_t) 64 * 1024)
uint8_t *loop_room(struct loop *l);

/* ---- how long its turns are ----
 *
 * A turn is what runs between two sleeps, or between two questions to the kernel where there is
 * no sleep; what those take counts, too. No turn should be long: the next heartbeat waits for
 * its end. Code that serves many hands work over in pieces, see loop_share(). */

/* The longest turn: how long, and which piece of it was the longest. */
struct loop_turn {
        nsec_t took;
        nsec_t piece;     /* of that, the longest piece */
        const char *what; /* what ran in it, for a person */
        char who[80];     /* for whom; may be "" */
};

/* Calls @fn at the end of each turn that took @least or longer. */
void loop_watch_turns(struct loop *l, nsec_t least,
                      void (*fn)(const struct loop_turn *t, void *arg), void *arg);

/* The longest turn of this minute and the one before. */
nsec_t loop_longest_turn(struct loop *l);

/* How long they took since the start (histogram_way); borrowed, as long as the loop. */
const struct histogram *loop_turns(const struct loop *l);

/* Says what the time since the last such word went into; descriptors, timers, signals, hooks
 * and what waits for its turn are distinguished without it. Returns the time. */
struct boot_time loop_lap(struct loop *l, const char *what, const char *who);
/* The same for less, where there are many pieces in a turn: see boot_glance(). */
void loop_piece(struct loop *l, const char *what, const char *who);

/* When that word came last, without a look at the clock: the time, but for what the running
 * piece has taken. For when something came, or began; not for an act that a lease protects. */
struct boot_time loop_now(const struct loop *l);
/* Where that is kept, for who asks often; borrowed, as long as the loop. */
const struct boot_time *loop_clock(const struct loop *l);

/* By how much the latest of the timers since the last question came too late, those aside that
 * were due when they were armed. */
nsec_t loop_take_lag(struct loop *l);

/* A descriptor. Embedded; lives until loop_io_stop(). @events: EV_READ, EV_WRITE.
 *
 * Of what nobody has read yet the kernel tells in each turn again, and of ten thousand that
 * takes longer than a turn may. So of those of a crowd it tells once (EPOLLET, epoll(7)), for a
 * part of each turn: @fn only takes note (loop_share_input()); a reader that stops before there
 * is no more, or wants no events for a while, goes on by itself. */
#define LOOP_ENDED                                                                \
        0x40 /* with EV_READ, to one of a crowd: nothing follows what can be read \
              */
struct loop_io {
        struct ev_io ev;
        struct loop *loop;
        const char *what; /* the owner's, before the start, for loop_lap(); NULL: @fn says it */
        bool of_crowd;    /* the same: one of thousands, see below */
        int wanted;       /* the loop's: events, of one of a crowd */
        void (*fn)(struct loop_io *io, int events);
};

void loop_io_start(struct loop_io *io, struct loop *l, int fd, int events,
                   void (*fn)(struct loop_io *io, int events));
void loop_io_change(struct loop_io *io, int events); /* 0: none for now */
void loop_io_stop(struct loop_io *io);               /* may be stopped already */

/* A one-shot deadline. Embedded; init once, disarm before it goes away. Those of one instant
 * run in the order in which they were armed. To arm costs O(log n). Of thousands that are due
 * at once, as after a pause, a turn runs a part. */
struct loop_timer {
        RB_ENTRY(loop_timer) by_time;
        struct loop *loop;
        void (*fn)(struct loop_timer *t);
        struct boot_time when;
        uint64_t order; /* of being armed; 0: it is not */
};

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t));
void loop_timer_arm(struct loop_timer *t, struct boot_time when); /* moves an armed one */
void loop_timer_in(struct loop_timer *t, nsec_t after);           /* from now on */
void loop_timer_disarm(struct loop_timer *t);
static inline bool loop_timer_armed(const struct loop_timer *t)
{
        return t->order != 0;
}

/* ---- what runs in each turn ---- */

/* In this order, whenever they were started; in one stage, in the order of their start. */
enum loop_stage {
        LOOP_DECIDE, /* what has come is judged, and time passes: session; consensus, leases */
        LOOP_ACT,    /* what follows from it: the agent's list, the guard */
        LOOP_BUS,    /* D-Bus sends what those before have said, and takes what has come */
        /* Here streams send what waits. */
        LOOP_BEHIND, /* what may wait for that: watchers, locks, scans */
        LOOP_STAGES,
};

/* Runs in every turn, before the loop sleeps: the place to act on what the turn has gathered.
 * Embedded. */
struct loop_hook {
        TAILQ_ENTRY(loop_hook) next;
        struct loop *loop; /* NULL while not started */
        enum loop_stage stage;
        const char *what; /* as of a descriptor */
        /* Returns when to run again at the latest: what is not ahead is the next turn, which
         * comes at once; BOOT_TIME_NEVER when something happens. May end @h, and others. */
        struct boot_time (*run)(struct loop_hook *h, struct boot_time now);
        struct boot_time when; /* the loop's: what that said */
};

void loop_hook_start(struct loop_hook *h, struct loop *l, enum loop_stage stage,
                     struct boot_time (*run)(struct loop_hook *h, struct boot_time now));
void loop_hook_stop(struct loop_hook *h); /* may be stopped already */

/* There is something to do: it runs again in this turn or, should it have run already, at once
 * in the next. From inside of itself nothing: what it returns counts. */
void loop_hook_again(struct loop_hook *h);

/* Runs once, after the hooks and before the loop sleeps: the place to send in one go. Embedded.
 */
TAILQ_HEAD(loop_laters, loop_later);

struct loop_later {
        TAILQ_ENTRY(loop_later) next;
        struct loop_laters *list; /* NULL while not queued */
        struct loop_part *part;   /* the loop's: where it shares; NULL: it does not */
        unsigned asked_in;        /* the loop's: a turn */
        struct loop_group *group; /* the owner's: see loop_share(); NULL: those without one */
        void (*fn)(struct loop_later *d);
};

/* Those who count as one where the loop is shared, as the connections of an address may. Its
 * owner's, for longer than anybody in it is queued. */
struct loop_group {
        struct loop_part {
                TAILQ_ENTRY(loop_part) next; /* while anybody is queued */
                struct loop_laters members;
                struct loop_ring *ring;
        } in, out;
};
void loop_group_init(struct loop_group *g);

void loop_later(struct loop_later *d, struct loop *l,
                void (*fn)(struct loop_later *d)); /* may be queued already */
void loop_later_cancel(struct loop_later *d);

/* The same for what many may want at once, and what the others, timers and hooks must not wait
 * for: runs in this turn or in a later one, a few milliseconds of all such in each turn; one
 * group after the other, and in each in the order of asking. @fn does a small piece
 * (LOOP_PIECE), and asks again if there is more. */
#define LOOP_PIECE (500 * NSEC_PER_USEC)
void loop_share(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d));

/* The same before the hooks, for what brings input: at most once in a turn. Not @patient: in
 * each turn, whatever the others take, and before them. */
void loop_share_input(struct loop_later *d, struct loop *l, bool patient,
                      void (*fn)(struct loop_later *d));

struct loop_signal {
        struct ev_signal ev;
        struct loop *loop;
        void (*fn)(struct loop_signal *s);
};

void loop_signal_start(struct loop_signal *s, struct loop *l, int signo,
                       void (*fn)(struct loop_signal *s));
