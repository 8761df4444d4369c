/*
 * Fencing: what must not run on two hosts is down before the cluster may learn that this host's
 * place is free. A pure function of (what is held, what was seen, now); agent/tenured/fence.c
 * carries out the acts.
 *
 *     down -> up -> stopping -> down
 *
 * Counted back from the holder's deadline: `lead` before it the stop in order begins; at half
 * of that what is left is killed, and its clean-up may still run; an eighth of it before the
 * deadline everything is frozen, which a renewal undoes; from the deadline on, or whenever the
 * place is lost, it is frozen and killed, again and again, until all of it has been seen down.
 * Each order is repeated until it is seen to be carried out: only a look counts, never a
 * missing answer or any number of answers. No clock, no descriptor, no allocation.
 *
 * A service manager that has not accepted the stop would start again, by its Restart=, what is
 * killed. Until it has, everything is frozen where it would have been killed.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* What is to be done, in this order; several at a time. */
enum fencing_act {
        FENCING_FREEZE = 1 << 0, /* whatever is bound, at the kernel */
        FENCING_KILL = 1 << 1,   /* the same; all of it is known to be stopped */
        FENCING_CLOSE = 1 << 2,  /* the gate: nothing bound may start any more */
        FENCING_STOP = 1 << 3,   /* ask the service manager to; fencing_accepted() follows */
        FENCING_ALARM = 1 << 4,  /* it is the deadline, and not all is down */
        FENCING_REBOOT = 1 << 5,
        FENCING_THAW = 1 << 6,
        FENCING_FORGET = 1 << 7, /* all is down: an earlier life's word that it stops is over */
        FENCING_OPEN = 1 << 8,   /* the gate; fencing_barred() if it does not */
        FENCING_START = 1 << 9,  /* ask the service manager to */
        FENCING_LOOK = 1 << 10,  /* ask it what is up; fencing_saw() follows, always */
};

enum fencing_sight {
        FENCING_SAW_NOTHING,  /* nobody answered */
        FENCING_SAW_UP,       /* something bound is not yet inactive */
        FENCING_SAW_LEFTOVER, /* all is inactive, and a process of it is still there */
        FENCING_SAW_DOWN,     /* all is inactive, and no process is left */
        FENCING_SAW_STARTED,  /* the target is active, and nothing bound was looked at */
};

struct fencing_config {
        nsec_t lead; /* at most a quarter of the TTL counts */
        bool reboot; /* at the deadline, if not all is down */
};

/* What is held at the moment. */
struct fencing_place {
        bool held;
        bool leave; /* asked to leave, though it is held */
        struct boot_time deadline;
        nsec_t ttl;
};

struct fencing {
        struct fencing_config cfg;
        enum { FENCING_DOWN, FENCING_UP, FENCING_STOPPING } state;
        bool known;    /* that there is, or was, something up */
        bool found;    /* it is known by sight alone: no life of ours left it */
        bool opened;   /* by this life */
        bool started;  /* seen active since it was opened */
        bool lost;     /* the place ended while not all was down: remembered until it is */
        bool ordered;  /* the service manager is ordered to stop */
        bool accepted; /* ... and has a job for it: it starts nothing of it again */
        bool looking;  /* an answer is to come ... */
        bool stale;    /* ... to what was asked before the stop */
        bool leftover; /* as last seen */
        bool frozen, killed, alarmed, dirty;
        struct boot_time began, deadline;
        struct boot_time freeze_at, kill_at, kill_again, order_again, look_again;
        nsec_t patience; /* until an order is given once more */
};

/* @up: an earlier life left the gate open; @stopping: it was at stopping, and this is known. */
void fencing_init(struct fencing *f, const struct fencing_config *cfg, bool up, bool stopping);

/* What to do at @now. Call again after each fencing_saw(), and at fencing_wakeup(). */
unsigned fencing_next(struct fencing *f, const struct fencing_place *p, struct boot_time now);
struct boot_time fencing_wakeup(const struct fencing *f, const struct fencing_place *p,
                                struct boot_time now);

void fencing_saw(struct fencing *f, enum fencing_sight s);

/* The service manager has accepted the order to stop. */
void fencing_accepted(struct fencing *f);

/* The gate did not open: what is bound stays down. */
void fencing_barred(struct fencing *f);

/* Nothing that is bound runs, and nothing of a loss is left to do: the place may be given back,
 * or asked for. */
bool fencing_is_down(const struct fencing *f);

/* How much of @cfg's lead counts at this TTL, and how long before the deadline all is frozen.
 */
nsec_t fencing_lead(const struct fencing_config *cfg, nsec_t ttl);
nsec_t fencing_stillness(const struct fencing_config *cfg, nsec_t ttl);
