/*
 * tenure-held.target: active exactly while this host holds its place. Units that must not run
 * on two hosts are bound to it, preferably by Slice=tenure-held.slice, which is bound itself;
 * or by BindsTo= and After=. All of them are down before the cluster may give the place to
 * another host. session/fencing.h decides what to do when, and this does it: at the kernel
 * where it must not wait, through the service manager where it may.
 *
 * Starting something that is bound to the target starts the target, too (Requires= in
 * systemd.unit(5)). So there is a gate, which the target asserts (gate.h).
 */
#pragma once

#include "base/histogram.h"
#include "bus/bound.h"
#include "bus/pid1.h"
#include "gate.h"
#include "loop/loop.h"
#include "session/fencing.h"
#include "session/session.h"

#define FENCE_SLICE "tenure-held.slice"

/* A set of texts. */
struct fence_texts {
        char **all; /* owned */
        size_t n;
};

struct fence {
        struct fencing machine;
        struct bound *bound; /* NULL: there is nothing to fence */
        struct pid1 *pid1;
        struct gate gate;
        const struct session *session; /* of the last fence_run() */
        bool leave;
        bool stuck;                 /* the gate cannot be opened; logged once */
        bool held_back;             /* logged, since the target was last up */
        bool guarded;               /* a guard listened when last checked */
        struct boot_time gate_seen; /* the renewal at which the gate was checked last */
        bool mounts_killed;         /* since the place was lost */
        struct fence_texts frozen;  /* control groups, by their paths when they were frozen */
        struct fence_texts told;    /* about groups, in the log; since all was last down */
        struct loop_timer timer;
        void (*changed)(struct fence *f); /* see fence_init() */
        char *warnings;                   /* from fence_check(); NULL: none yet */
        struct histogram took;            /* the duration of each fence; counters_long */
        uint64_t n_late;                  /* how many of them ended after the deadline */
};

/* @target: the unit, borrowed; if it is "" or there is no systemd, nothing is fenced. @pid1 is
 * borrowed. Everything that an earlier run left up counts as up. @changed is called when the
 * set of bound units has changed. NULL for the guard, which starts from the set that the agent
 * knew, asks the service manager when it has to, and is not responsible for the gate. Returns 0
 * or a negative errno: then nothing is fenced. */
must_check_ int fence_init(struct fence *f, struct loop *l, struct pid1 *pid1,
                           const char *target, const struct fencing_config *cfg,
                           void (*changed)(struct fence *f));
void fence_fini(struct fence *f);
void fence_set(struct fence *f, const struct fencing_config *cfg);

/* Makes the target follow the session. Called in every turn of the loop, and first of all when
 * the session is lost. @leave: bring the target down, although the place is still held. */
void fence_run(struct fence *f, const struct session *s, bool leave, struct boot_time now);

/* For the guard while the agent, which is responsible for the gate, may hang: freezes all known
 * control groups, except those of mounts (see fence.c), and does nothing else. */
void fence_freeze(struct fence *f);

/* Another process decides from now on: thaws what this fence or an earlier run has frozen. */
void fence_release(struct fence *f);
void fence_thaw(struct fence *f);

/* If the place is held: whether the target may be up, or there is no target. */
bool fence_is_settled(const struct fence *f);

/* Whether the target stays down, although the place is held, because the core acknowledges
 * renewals too slowly. */
bool fence_is_held_back(const struct fence *f);

/* Whether nothing that is bound to the target runs any more. */
bool fence_is_down(const struct fence *f);

/* Names what is not down yet, for operators; "" if all is down, or the state is unknown. */
const char *fence_still_up(const struct fence *f);
