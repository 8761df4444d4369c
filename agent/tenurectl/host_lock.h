/*
 * One command on this host at a time. The core distinguishes lock holders by their leases, and
 * a host has one, so the core would let two commands of one host have the same lock.
 *
 * The lock is an address in the abstract namespace (unix(7)), bound while the lock is held: the
 * kernel frees it with the last process that has the descriptor, and wakes those that wait.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* Waits until @name is ours, for the place on @lease. Returns a descriptor; a command that
 * inherits it keeps the lock. -EINTR: @break_fd is readable; -ETIMEDOUT: @deadline has passed;
 * or another negative errno. */
must_check_ int host_lock(int64_t lease, const char *name, int break_fd,
                          struct boot_time deadline);
