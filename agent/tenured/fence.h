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

struct fence {
        struct fencing machine;
        struct bound *bound; /* NULL: there is nothing to fence */
        struct pid1 *pid1;
        struct gate gate;
        const struct session *session; /* as fence_run() had it last */
        bool leave;
        bool stuck;                 /* the gate does not open; logged once */
        bool guarded;               /* a guard listens, as last seen */
        struct boot_time gate_seen; /* the renewal that it was looked at with */
        bool mounts_killed;         /* since the place was lost */
        char **frozen;              /* control groups, as they were when it was done */
        size_t n_frozen;
        struct loop_timer timer;
        void (*changed)(struct fence *f); /* see fence_init() */
        char *warnings;                   /* by fence_check(); NULL: none yet */
        struct histogram took;            /* each fence; counters_long */
        uint64_t n_late;                  /* of them, how many were not over by the deadline */
};

/* @target: the unit, borrowed; if it is "" or there is no systemd, nothing is fenced. @pid1 is
 * borrowed. Whatever an earlier life left up counts as up. @changed is called when the set of
 * bound units has changed; NULL: for the guard, which uses the set that the agent knew, asks
 * the service manager when it has to, and is not responsible for the gate. Returns 0 or a
 * negative errno: then nothing is fenced. */
must_check_ int fence_init(struct fence *f, struct loop *l, struct pid1 *pid1,
                           const char *target, const struct fencing_config *cfg,
                           void (*changed)(struct fence *f));
void fence_fini(struct fence *f);
void fence_set(struct fence *f, const struct fencing_config *cfg);

/* Makes the target follow the session; in every iteration of the loop, and first of all when
 * the session is lost. @leave: bring it down, though the place is still held. */
void fence_run(struct fence *f, const struct session *s, bool leave, struct boot_time now);

/* For when the process that answers for the gate may hang: what is known is frozen at the
 * kernel, and nothing else. Not what mounts are in, see fence.c. */
void fence_freeze(struct fence *f);

/* Somebody else decides from now on: thaws what this fence, or an earlier life of it, has
 * frozen. */
void fence_release(struct fence *f);
void fence_thaw(struct fence *f);

/* Where the place is held the target may be up, or there is none. */
bool fence_is_settled(const struct fence *f);

/* Nothing that is bound to the target runs any more. */
bool fence_is_down(const struct fence *f);

/* What is not down yet, for people; "" when all is, or nobody knows. */
const char *fence_still_up(const struct fence *f);
