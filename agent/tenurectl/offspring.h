/*
 * Finds, signals and ends everything that a command has started, including processes in
 * sessions of their own.
 *
 * The process that calls offspring_start() becomes the subreaper of all later descendants
 * (prctl(2)): none gets away, however often it forks. Where a control group can be made, below
 * our own, the descendants are in one, and the kernel kills all of them in one go
 * (cgroup.kill), including those that fork meanwhile and those of other users. Not a scope:
 * that would take the command out of the unit that it belongs to, and needs systemd to answer.
 */
#pragma once

#include <sys/types.h>

#include "base/base.h"

struct offspring {
        int group;       /* the control group's folder; -1: there is none */
        char path[4096]; /* of it */
};

void offspring_start(struct offspring *o);

/* Those of process @of, which had started offspring, is dead, and left them to us: we are the
 * next subreaper. */
void offspring_adopt(struct offspring *o, pid_t of);

/* In the first child, before it executes anything. */
void offspring_enter(const struct offspring *o);

/* To all of them, wherever they are. Returns how many there are. */
size_t offspring_signal(const struct offspring *o, int signo);

/* The group goes; nothing may be in it any more. */
void offspring_end(struct offspring *o);
