/*
 * What the agent needs of the service manager besides bound.h: a reboot, and what kind of
 * shutdown is under way (org.freedesktop.systemd1(5)). Asked directly, so that it works while
 * the bus daemon is gone; see manager.h. Nothing here waits: answers come from the loop.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct loop;
struct pid1;

/* -ENOENT where systemd does not run. */
must_check_ int pid1_new(struct pid1 **ret, struct loop *l);
struct pid1 *pid1_free(struct pid1 *p);
DEFINE_CLEANUP(struct pid1 *, pid1_free)

/* At once, without stopping anything in order. */
void pid1_reboot(struct pid1 *p);

/* What the machine is about to do, answered within @limit. */
enum pid1_shutdown { PID1_NO_SHUTDOWN, PID1_SHUTDOWN, PID1_REBOOT };
void pid1_ask_shutdown(struct pid1 *p, nsec_t limit,
                       void (*fn)(void *userdata, enum pid1_shutdown what), void *userdata);
