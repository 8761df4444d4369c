/*
 * One command on this host at a time. The core distinguishes lock holders by their leases, and
 * a host has one, so the core would let two commands of one host have the same lock.
 *
 * The lock is a turn (loop/host_turn.h), by a descriptor that the agent gives to those who may
 * use its place: the kernel frees it with the last process that has the descriptor.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "ctl.h"

/* Asks the agent for a descriptor. Returns it; -ENOSYS if the agent is of release 0.1.0, which
 * has none; or -1 after printing why. */
must_check_ int host_lock_open(struct ctl *c, const char *name);

/* Waits until @name is ours, for the place on @lease; a command that inherits @fd keeps it. @fd
 * may be -ENOSYS. Returns 0; -EINTR: @break_fd is readable; -ETIMEDOUT: @deadline has passed;
 * or another negative errno. */
must_check_ int host_lock(int fd, int64_t lease, const char *name, int break_fd,
                          struct boot_time deadline);
