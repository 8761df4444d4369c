/*
 * The guard beside the agent: what is bound is down before the cluster can give this host's
 * place away, also if the agent hangs, has ended, or does not come back. A pure function of
 * (the gate, whether the agent lives, the place that the agent wrote last, now);
 * agent/tenured/guard.c carries out the acts.
 *
 *     asleep -> watching -> frozen -> acting
 *
 * Behind a closed gate everything is down: the guard sleeps. While the agent lives it decides,
 * and the guard only watches, until everything has to stand still (fencing_stillness()): then
 * it freezes what is bound, which changes nothing if the agent's own fence works. If a living
 * agent has not brought everything down some time after the deadline, or as soon as no agent
 * lives, the guard acts: it runs a fence of its own. It watches again once a living agent holds
 * the place and has opened the gate.
 */
#pragma once

#include "session/fencing.h"

enum guarding_state {
        GUARDING_ASLEEP,
        GUARDING_WATCHING,
        GUARDING_FROZEN,
        GUARDING_ACTING,
};

/* What is to be done, in this order; several at a time. */
enum guarding_act {
        GUARDING_RELEASE = 1 << 0, /* end the fence: the agent decides, or all is down */
        GUARDING_THAW = 1 << 1, /* what an earlier guard may have left frozen; the agent, which
                                 * holds the place, believes that it runs. guarding_thawed() */
        GUARDING_FREEZE = 1 << 2, /* everything that is bound, by the kernel */
        GUARDING_RUN = 1 << 3,    /* the fence; guarding_down() once all is down */
        GUARDING_SPARE = 1 << 4,  /* there is time to read what may hang with its disk */
        GUARDING_EXTEND = 1 << 5, /* ask for more time to stop */
        GUARDING_EXIT = 1 << 6,
};

enum guarding_gate { GUARDING_CLOSED, GUARDING_OPEN, GUARDING_STOPPING };

/* What the guard sees at the moment. */
struct guarding_sight {
        enum guarding_gate gate;
        bool agent_lives;           /* the one that is responsible for the gate */
        bool known;                 /* the place could be read; if not, it is not held */
        struct fencing_place place; /* `leave` does not count */
        bool ending;                /* exit once nothing is left to guard */
        bool restarting;            /* ... or while the place is held: another guard follows */
};

struct guarding {
        enum guarding_state state;
        bool thawed;        /* what an earlier guard may have left frozen */
        nsec_t extend_each; /* interval between requests for more time */
        struct boot_time extend_at;
};

void guarding_init(struct guarding *g, nsec_t extend_each);

/* What to do at @now, and when to call again, at the latest. Call as well whenever something
 * else is seen. @cfg: of the fence. */
unsigned guarding_next(struct guarding *g, const struct guarding_sight *s,
                       const struct fencing_config *cfg, struct boot_time now,
                       struct boot_time *ret_again);

void guarding_thawed(struct guarding *g);
void guarding_down(struct guarding *g);
