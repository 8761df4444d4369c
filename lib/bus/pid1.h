/*
 * The service manager as the agent needs it: units started, stopped, killed and looked at, and
 * what kind of shutdown is under way (org.freedesktop.systemd1(5)). Asked straight, so that it
 * works while the bus daemon is gone; connected when it is needed, again after a daemon-reexec.
 * Nothing here waits: answers come from the loop.
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

void pid1_start(struct pid1 *p, const char *unit);
void pid1_stop(struct pid1 *p, const char *unit);

/* SIGKILL to all processes of all units that say BindsTo= @unit. */
void pid1_kill_bound(struct pid1 *p, const char *unit);

/* At once, without stopping anything in order. */
void pid1_reboot(struct pid1 *p);

/* Whether @unit, and with it what is bound to it and ordered after it, is down: 1, 0, or a
 * negative errno when nobody answers. */
typedef void (*pid1_answer_fn)(void *userdata, int r);
void pid1_is_down(struct pid1 *p, const char *unit, pid1_answer_fn fn, void *userdata);

/* What the machine is about to do, answered within @limit. */
enum pid1_shutdown { PID1_NO_SHUTDOWN, PID1_SHUTDOWN, PID1_REBOOT };
void pid1_ask_shutdown(struct pid1 *p, nsec_t limit,
                       void (*fn)(void *userdata, enum pid1_shutdown what), void *userdata);
