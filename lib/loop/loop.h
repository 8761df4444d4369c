/*
 * The event loop: descriptors, deadlines and signals, on libev.
 *
 * One loop, one thread. A turn consists of: the events of descriptors, signals and timers; a
 * share of the waiting input; the hooks, stage by stage; then sending. Each hook gets the time
 * and returns when it wants to run next; the loop sleeps until the soonest of those instants
 * and of the timers, or until an event.
 *
 * All of these use a single timerfd on CLOCK_BOOTTIME, so that a host that slept wakes up with
 * every deadline due at once (timerfd_create(2)); libev's own timers stop during suspend and
 * are not used. No timer runs on the clock of leases (loop/clock.h), and the rates of the two
 * may differ. So a timer is a hint: compare with a fresh boot_now() before any act that a lease
 * protects.
 *
 * Hooks and timers are embedded in their owners: to start or to arm one cannot fail.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <ev.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/tree.h"
#include "loop/clock.h"

struct loop;

must_check_ int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free)

/* In a child of fork(2), before loop_free(): the descriptors in epoll belong to the parent,
 * too, and stay there. */
void loop_leave_to_parent(struct loop *l);

/* Runs until loop_stop(). */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* For callers that have an event loop of their own and run this one inside it, from the start.
 * loop_nest() returns a descriptor that is readable when there is something to do, including a
 * timer that is due, or a negative errno. loop_dispatch() does it, without waiting, and returns
 * whether there is more to do at once, which the descriptor does not show. Requests made
 * outside of it (a call, a timer, a hook) take effect with the next loop_dispatch(). */
must_check_ int loop_nest(struct loop *l);
must_check_ bool loop_dispatch(struct loop *l);

/* A buffer for data that was just read, until it is processed: for one reader at a time. Each
 * loop has its own, since each may have its own thread. */
#define LOOP_ROOM ((size_t) 64 * 1024)
uint8_t *loop_room(struct loop *l);
/* A buffer for writers: a writer moves the buffer's memory to its own, and returns it once it
 * is empty. The buffer is empty while another writer has the memory. */
struct buf *loop_spare(struct loop *l);

/* ---- how long its turns are ----
 *
 * A turn is what runs between two sleeps or, without a sleep, between two calls of
 * epoll_wait(), including these calls. No turn should be long: the next heartbeat waits for its
 * end. Code that serves many clients splits its work into pieces, see loop_share(). */

/* The longest turn: how long, and which piece of it was the longest. */
struct loop_turn {
        nsec_t took;
        nsec_t ran;       /* the processor time in it; includes up to 5 ms from before it */
        nsec_t piece;     /* the time that its longest piece took */
        const char *what; /* what ran in that piece, for a person */
        char who[80];     /* for whom; may be "" */
};

/* Calls @fn at the end of each turn that took @least or longer. */
void loop_watch_turns(struct loop *l, nsec_t least,
                      void (*fn)(const struct loop_turn *t, void *arg), void *arg);

/* The longest turn of this minute and the one before. */
nsec_t loop_longest_turn(struct loop *l);

/* How long they took since the start (histogram_way); borrowed, as long as the loop. */
const struct histogram *loop_turns(const struct loop *l);

/* Records what the time since the last call was spent on. The loop itself records descriptors,
 * timers, signals, hooks and shared pieces. Returns the time. */
struct boot_time loop_lap(struct loop *l, const char *what, const char *who);
/* loop_lap() at less cost, for many pieces in a turn: see boot_glance(). */
void loop_piece(struct loop *l, const char *what, const char *who);

/* The time of the last such call, without reading the clock: it lacks the time that the running
 * piece has taken. For recording when something arrived or began; not for an act that a lease
 * protects. */
struct boot_time loop_now(const struct loop *l);
/* A pointer to that time, for frequent readers; borrowed, as long as the loop. */
const struct boot_time *loop_clock(const struct loop *l);

/* How late the latest timer ran since the last call, not counting timers that were due when
 * they were armed. */
nsec_t loop_take_lag(struct loop *l);

/* A descriptor. Embedded; lives until loop_io_stop(). @events: EV_READ, EV_WRITE.
 *
 * Level-triggered polling of 10,000 readable descriptors takes longer than a turn may, so those
 * of a crowd are edge-triggered (EPOLLET, epoll(7)): @fn only takes note (loop_share_input());
 * a reader that stops before the socket is empty, or wants no events for a while, has to
 * continue by itself. */
#define LOOP_ENDED                                                                \
        0x40 /* with EV_READ, to one of a crowd: nothing follows what can be read \
              */
struct loop_io {
        struct ev_io ev;
        struct loop *loop;
        const char *what; /* the owner's, before the start, for loop_lap(); NULL: @fn says it */
        bool of_crowd;    /* set before the start, too: one of thousands, see below */
        int wanted;       /* the loop's: events, of one of a crowd */
        void (*fn)(struct loop_io *io, int events);
};

void loop_io_start(struct loop_io *io, struct loop *l, int fd, int events,
                   void (*fn)(struct loop_io *io, int events));
void loop_io_change(struct loop_io *io, int events); /* 0: none for now */
void loop_io_stop(struct loop_io *io);               /* may be stopped already */

/* A one-shot deadline. Embedded; init once, disarm before it goes away. Those of one instant
 * run in the order in which they were armed. Arming costs O(log n). If thousands are due at
 * once, as after a pause, a turn runs only a part. */
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

/* Hooks run in this order, whenever they were started; within a stage, in the order of their
 * start. */
enum loop_stage {
        LOOP_DECIDE, /* judges input, and lets time pass: session; consensus, leases */
        LOOP_ACT,    /* what follows from it: the agent's list, the guard */
        LOOP_BUS,    /* D-Bus sends the messages of the stages before, and reads its input */
        /* Here streams send what waits. */
        LOOP_BEHIND, /* what may wait for that: watchers, locks, scans */
        LOOP_STAGES,
};

/* Runs in every turn, before the loop sleeps: the place to act on everything that the turn has
 * gathered. Embedded. */
struct loop_hook {
        TAILQ_ENTRY(loop_hook) next;
        struct loop *loop; /* NULL while not started */
        enum loop_stage stage;
        const char *what; /* as of a descriptor */
        /* Returns when to run again at the latest: an instant that is not ahead means the next
         * turn, at once; BOOT_TIME_NEVER: only when something happens. May stop @h, and
         * others. */
        struct boot_time (*run)(struct loop_hook *h, struct boot_time now);
        struct boot_time when; /* the loop's: what that said */
};

void loop_hook_start(struct loop_hook *h, struct loop *l, enum loop_stage stage,
                     struct boot_time (*run)(struct loop_hook *h, struct boot_time now));
void loop_hook_stop(struct loop_hook *h); /* may be stopped already */

/* There is something to do: the hook runs in this turn or, if it has run already, at once in
 * the next. No effect from inside of the hook: its return value counts. */
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

/* Members that count as one where the loop is shared, such as the connections of an address.
 * The owner keeps it for longer than any member is queued. */
struct loop_group {
        struct loop_part {
                TAILQ_ENTRY(loop_part) next; /* while anybody is queued */
                struct loop_laters members;
                struct loop_ring *ring;
        } in, newcomers, out;
};
void loop_group_init(struct loop_group *g);

void loop_later(struct loop_later *d, struct loop *l,
                void (*fn)(struct loop_later *d)); /* may be queued already */
void loop_later_cancel(struct loop_later *d);

/* Like loop_later(), for work that many may want at once, and that other work, timers and hooks
 * must not wait for: it runs in this turn or in a later one; all such work gets a few
 * milliseconds in each turn. Groups take turns; within a group the order is that of the calls.
 * @fn does a small piece (LOOP_PIECE), and calls this again if there is more. */
#define LOOP_PIECE (500 * NSEC_PER_USEC)
void loop_share(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d));

/* Like loop_share(), but before the hooks, for reading input: at most once in a turn. If not
 * @patient, it runs in each turn, whatever the others take, and before them. */
void loop_share_input(struct loop_later *d, struct loop *l, bool patient,
                      void (*fn)(struct loop_later *d));

/* Like loop_share(), for a newcomer, which is not known yet and may cost much, such as a TLS
 * handshake. It runs after those that are not newcomers, also after those of its own group that
 * ask later; at least one newcomer gets its turn in each turn of the loop. */
void loop_share_greeting(struct loop_later *d, struct loop *l,
                         void (*fn)(struct loop_later *d));

struct loop_signal {
        struct ev_signal ev;
        struct loop *loop;
        void (*fn)(struct loop_signal *s);
};

/* A signal belongs to one loop; stop it before another one starts it. The second may be called
 * without the first. */
void loop_signal_start(struct loop_signal *s, struct loop *l, int signo,
                       void (*fn)(struct loop_signal *s));
void loop_signal_stop(struct loop_signal *s);
