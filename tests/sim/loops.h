/*
 * In place of loop/loop.c and loop/clock.c: the loop of one process, in the virtual time of its
 * host. It has timers; the simulator runs what else a loop would call.
 */
#pragma once

#include "base/tree.h"
#include "loop/loop.h"

#include "clocks.h"

RB_HEAD(loop_timers, loop_timer);

struct loop {
        const struct host_clock *clock; /* of its host */
        struct loop_timers timers;
        uint64_t orders;
        /* Of a guard. */
        struct loop_hook *hook;
        struct loop_io *end_of_agent;
        struct loop_signal *sigusr1;
        bool stopped;
};

void loop_init(struct loop *l, const struct host_clock *c);
/* From now on, boot_now() reads this clock. */
void loop_enter(const struct host_clock *c);
/* Runs the first timer that is due; false if none is. */
bool loop_run_timer(struct loop *l);
/* When the next one is due, true time. */
nsec_t loop_next(const struct loop *l);
