/*
 * tenure-held.target: up exactly while this host holds its place. What must not run on two
 * hosts is bound to it (BindsTo= and After=), and is stopped before the cluster may give the
 * place to somebody else: from the holder's deadline less a lead on, whatever has not stopped
 * halfway to the deadline is killed, and what is still there at the deadline costs the machine
 * its life, if the settings say so.
 *
 * Whoever starts something that is bound to the target starts the target, too (Requires= in
 * systemd.unit(5)). So there is a gate, a file that is there exactly while the target may be
 * up, and the target asserts it.
 */
#pragma once

#include "bus/pid1.h"
#include "loop/loop.h"
#include "session/session.h"

/* As AssertPathExists= of units/tenure-held.target has it. */
#define FENCE_GATE "/run/tenure/held"

struct fence {
        struct pid1 *pid1; /* NULL: there is nothing to fence */
        const char *target;
        nsec_t lead;
        bool reboot;

        enum { FENCE_DOWN, FENCE_UP, FENCE_STOPPING } state;
        bool known;   /* that it is up, and not only believed */
        bool seen_up; /* since it is to stop */
        bool stuck;   /* the gate does not open; told once */
        bool told;    /* to stop, systemd is */
        bool asked, killed, rebooted;
        struct boot_time began, ask_at, kill_at, deadline;
        struct loop_timer timer;
};

/* @pid1 and @target are borrowed. What an earlier life left up counts as up. */
void fence_init(struct fence *f, struct loop *l, struct pid1 *pid1, const char *target,
                nsec_t lead, bool reboot);
void fence_fini(struct fence *f);
void fence_set(struct fence *f, nsec_t lead, bool reboot);

/* Makes the target follow the session; in every iteration of the loop. @leave: bring it down,
 * though the place is still held. */
void fence_follow(struct fence *f, const struct session *s, bool leave, struct boot_time now);

/* Where the place is held the target may be up, or there is none. */
bool fence_is_settled(const struct fence *f);

/* Nothing that is bound to the target runs any more. */
bool fence_is_down(const struct fence *f);
