/*
 * Signs that this host stood still without its clocks noticing: a virtual machine that was
 * paused, migrated, or reverted to a snapshot. All of its clocks may have stood still too, so
 * that no reading of them shows it. What sometimes shows it:
 *
 *   - the date is set: a hypervisor's agent does so after a pause, and so does an NTP client
 *     that finds it wrong (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET);
 *   - the machine has another generation id: the kernel reports that in an event (Linux 6.10).
 *
 * Each may also happen without a pause, so it is a reason to ask the core, not an answer. Costs
 * nothing while nothing happens.
 */
#pragma once

#include "loop/loop.h"

struct standstill {
        void (*fn)(struct standstill *s, const char *sign);
        struct loop_io date, machine; /* their descriptors are owned; -1: none */
};

/* Calls @fn at each sign. A sign that cannot be listened to is left out. */
void standstill_start(struct standstill *s, struct loop *l,
                      void (*fn)(struct standstill *s, const char *sign));
void standstill_stop(struct standstill *s); /* may not have been started */

/* Whether a kernel event, as received, reports another generation id. */
bool standstill_is_sign(const char *event, size_t len);
