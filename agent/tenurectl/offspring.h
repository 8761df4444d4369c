/*
 * Finds, signals and ends everything that a command has started, including processes in
 * sessions of their own.
 *
 * The process that calls offspring_start() becomes the subreaper of all later descendants
 * (prctl(2)), so that none escapes, however often it forks. If a control group can be made
 * below our own, the descendants are put into it, and the kernel kills all of them at once
 * (cgroup.kill), including those that fork meanwhile and those of other users. We do not use a
 * scope: it would take the command out of the unit that it belongs to, and needs an answer from
 * systemd.
 */
#pragma once

#include <sys/types.h>

#include "base/base.h"

struct offspring {
        int kill;        /* the control group's cgroup.kill; -1: there is no group */
        char path[4096]; /* of the control group */
        pid_t first; /* a child that is signalled even if /proc cannot be read, for lack of a
                        descriptor or of memory; 0: none */
};

/* Returns 0, or a negative errno: without /proc no process can be found. */
must_check_ int offspring_start(struct offspring *o);

/* Takes over the offspring of the process @of, which has died: we are the next subreaper. */
void offspring_adopt(struct offspring *o, pid_t of);

/* Call it in the first child, before it executes anything. */
void offspring_enter(const struct offspring *o);

/* Sends a signal to all offspring, wherever they are; of processes that fork endlessly outside
 * a control group, to most. Returns how many there are. */
size_t offspring_signal(const struct offspring *o, int signo);

/* Kills the processes in the control group, in a time that does not depend on their number.
 * Returns whether there is a control group. */
bool offspring_kill_group(const struct offspring *o);

void offspring_close(struct offspring *o);

/* Closes @o, and removes the control group, which must be empty. */
void offspring_end(struct offspring *o);

/* Parses a line of /proc/PID/stat (proc(5)): the parent, and when the process began, in clock
 * ticks. The name in it may contain anything. */
must_check_ bool offspring_parse(const char *stat, pid_t *ret_parent,
                                 unsigned long long *ret_began);
