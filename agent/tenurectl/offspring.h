/*
 * Everything that a command has started, down to what has a session of its own: found, sent
 * signals, ended.
 *
 * Whoever calls offspring_start() becomes the subreaper of what comes after it (prctl(2)): no
 * descendant gets away, however often it forks. Where a control group can be made, below our
 * own, the descendants are in one, and the kernel kills all of them in one go (cgroup.kill),
 * those that fork meanwhile and those of other users too. Not a scope: that takes the command
 * out of the unit that it belongs to, and needs systemd to answer.
 */
#pragma once

#include <sys/types.h>

#include "base/base.h"

struct offspring {
        int group;       /* the control group's folder; -1: there is none */
        char path[4096]; /* of it */
};

void offspring_start(struct offspring *o);

/* Those of process @of, who had started offspring, is dead, and left them to us: we are the
 * next subreaper. */
void offspring_adopt(struct offspring *o, pid_t of);

/* In the first child, before it executes anything. */
void offspring_enter(const struct offspring *o);

/* To all of them, wherever they are. Returns how many there are. */
size_t offspring_signal(const struct offspring *o, int signo);

/* The group goes; nothing may be in it any more. */
void offspring_end(struct offspring *o);
