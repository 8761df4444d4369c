/*
 * Fencing: everything that must not run on two hosts is down before the cluster can give this
 * host's place away. A pure function of (what is held, what was seen, now);
 * agent/tenured/fence.c carries out the acts.
 *
 *     down -> up -> stopping -> down
 *
 * Counted back from the holder's deadline: `lead` before it, the orderly stop begins. When half
 * of the lead is left, what still runs is killed, and its clean-up may still run. When an
 * eighth is left, everything is frozen, which a renewal undoes. From the deadline on, or as
 * soon as the place is lost, everything is frozen and killed, again and again, until all of it
 * has been seen down. Each order is repeated until it is seen to be carried out: only what was
 * seen counts, never an answer or the lack of one. No clock, no descriptor, no allocation.
 *
 * As long as the service manager has not accepted the stop, it would restart what is killed, by
 * Restart=. Until it has accepted, everything is frozen where it would otherwise be killed.
 *
 * What is down comes up only with a margin that lasts: if the next renewal, sent at half the
 * TTL and acknowledged as slowly as the last one, would come before the next stop. Otherwise a
 * core that answers slowly, but in time to keep the place, would have everything stopped and
 * started at each renewal. If the target was stopped because a renewal was late, soon after it
 * had started, it starts again only after renewals were in time for a while, which doubles each
 * time.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* What is to be done, in this order; several at a time. */
enum fencing_act {
        FENCING_FREEZE = 1 << 0, /* everything that is bound, by the kernel */
        FENCING_KILL = 1 << 1,   /* everything that is bound, once nothing will restart it */
        FENCING_CLOSE = 1 << 2,  /* the gate: nothing bound may start any more */
        FENCING_STOP = 1 << 3,   /* order the service manager to; fencing_accepted() follows */
        FENCING_ALARM = 1 << 4,  /* the deadline has come, and not everything is down */
        FENCING_REBOOT = 1 << 5,
        FENCING_THAW = 1 << 6,
        FENCING_FORGET = 1 << 7, /* all is down: forget an earlier life's record of a stop */
        FENCING_OPEN = 1 << 8,   /* the gate; fencing_barred() if it does not */
        FENCING_START = 1 << 9,  /* ask the service manager to */
        FENCING_LOOK = 1 << 10,  /* ask it what is up; fencing_saw() always follows */
};

enum fencing_sight {
        FENCING_SAW_NOTHING,  /* nobody answered */
        FENCING_SAW_UP,       /* something bound is not yet inactive */
        FENCING_SAW_LEFTOVER, /* everything is inactive, but some processes are left */
        FENCING_SAW_DOWN,     /* everything is inactive, and no process is left */
        FENCING_SAW_STARTED,  /* the target is active; the bound units were not looked at */
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
        bool known;    /* something is, or was, up */
        bool found;    /* known only because it was seen: no earlier life has recorded it */
        bool opened;   /* the gate, by this life */
        bool earlier;  /* what is up was left up by an earlier life */
        bool closed;   /* ... and then closed by the guard */
        bool started;  /* the target was seen active since the gate was opened */
        bool lost;     /* the place ended while not all was down; kept until all is */
        bool ordered;  /* the service manager was ordered to stop */
        bool accepted; /* ... and has a job for it: it will not restart anything */
        bool looking;  /* an answer is outstanding ... */
        bool stale;    /* ... to a look that began before the stop */
        bool leftover; /* as last seen */
        bool frozen, killed, alarmed, dirty;
        bool perhaps_frozen; /* by an earlier life; a thaw is never wrong */
        struct boot_time began, deadline;
        struct boot_time freeze_at, kill_at, kill_again, order_again, look_again;
        nsec_t patience; /* until an order is repeated ... */
        nsec_t pace;     /* ... and a look */
        /* How fast renewals of the place are acknowledged: */
        struct boot_time judged;       /* the deadline that the last one gave */
        struct boot_time steady_since; /* none has been too slow; NEVER: the last one was */
        unsigned n_slow;               /* in a row that were */
        nsec_t took;                   /* the last of these, roughly, since it was sent */
        nsec_t calm;                   /* for how long none may be, before anything comes up */
        struct boot_time up_since;
        bool starved; /* it was stopped because a renewal was late, while the place was held */
        bool slow;    /* ... which then arrived, or renewals keep arriving too late */
};

/* @up: an earlier life left the gate open; @stopping: that life has recorded that it was
 * stopping. */
void fencing_init(struct fencing *f, const struct fencing_config *cfg, bool up, bool stopping);

/* What to do at @now. Call again after each fencing_saw(), and at fencing_wakeup(). */
unsigned fencing_next(struct fencing *f, const struct fencing_place *p, struct boot_time now);
struct boot_time fencing_wakeup(const struct fencing *f, const struct fencing_place *p,
                                struct boot_time now);

void fencing_saw(struct fencing *f, enum fencing_sight s);

/* Perhaps everything is inactive now: look at once. */
void fencing_settled(struct fencing *f);

/* The service manager has accepted the order to stop. */
void fencing_accepted(struct fencing *f);

/* The gate could not be opened: what is bound stays down. What an earlier life has left up
 * stays up while the place is held, and counts as up. */
void fencing_barred(struct fencing *f);

/* The guard has closed the gate, and stops what is bound: the agent reported too late.
 * Everything bound stops before the target starts again. */
void fencing_closed(struct fencing *f);

/* It is not known any more whether the target is active: it is started again if necessary. */
void fencing_unsure(struct fencing *f);

/* Whether everything stays down, although @p is held, because renewals are acknowledged too
 * slowly: not within fencing_answer_max() of their sending. */
bool fencing_is_held_back(const struct fencing *f, const struct fencing_place *p);
nsec_t fencing_answer_max(const struct fencing_config *cfg, nsec_t ttl);

/* Whether nothing that is bound runs, and a loss leaves nothing to be done: only then may the
 * place be given back, or be asked for. */
bool fencing_is_down(const struct fencing *f);

/* How much of @cfg's lead counts at this TTL; and how long before the deadline everything is
 * frozen. */
nsec_t fencing_lead(const struct fencing_config *cfg, nsec_t ttl);
nsec_t fencing_stillness(const struct fencing_config *cfg, nsec_t ttl);
