/*
 * In place of loop/loop.c and loop/clock.c: the loop of one process, in the virtual time of its
 * host. It has timers; the simulator runs what else a loop would call.
 */
#pragma once

#include "base/tree.h"
#include "loop/loop.h"

RB_HEAD(loop_timers, loop_timer);

struct loop {
        int32_t ppm; /* how fast the clock of its host is */
        struct loop_timers timers;
        uint64_t orders;
        /* Of a guard. */
        struct loop_hook *hook;
        struct loop_io *end_of_agent;
        struct loop_signal *sigusr1;
        bool stopped;
};

void loop_init(struct loop *l, int32_t ppm);
/* From now on, boot_now() is the time of a host with such a clock. */
void loop_enter(int32_t ppm);
/* Runs the first timer that is due; false if none is. */
bool loop_run_timer(struct loop *l);
/* When the next one is due, true time. */
nsec_t loop_next(const struct loop *l);
