/* Control groups of version 2, through the kernel alone: frozen, killed, and read. Paths are as
 * the service manager has them ("/system.slice/a.service"). A group includes its descendants.
 * Nothing here waits. Privileges: writes as root, needs no capability. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* Whether there is such a hierarchy here. */
bool cgroup_is_there(void);

/* Each returns 0 or a negative errno; -ENOENT: there is no such group. cgroup_freeze() marks
 * the group until it is thawed; 1: others had frozen it before. */
must_check_ int cgroup_freeze(const char *path);
must_check_ int cgroup_thaw(const char *path);
must_check_ int cgroup_kill(const char *path);

/* Whether cgroup_freeze() has frozen the group, in whichever process; true also where the
 * kernel has no marks (before Linux 5.7). */
bool cgroup_is_marked(const char *path);

/* Whether the kernel kills a group at once, whoever its processes belong to. Otherwise
 * cgroup_kill() kills them one by one: without CAP_KILL, only those of this user (-EPERM), and
 * perhaps not all (call it again). */
bool cgroup_can_kill(void);

/* Whether a process is in it: 1, 0 (nor is a group), or a negative errno. */
must_check_ int cgroup_is_populated(const char *path);

/* Calls @fn with each group right in @path, if there are any. */
void cgroup_children(const char *path, void (*fn)(void *userdata, const char *child),
                     void *userdata);

/* Our own; "" if it cannot be found out. */
const char *cgroup_own(char *out, size_t size);

/* A process's: 0, -ESRCH if there is no such process any more, or a negative errno. */
must_check_ int cgroup_of_process(pid_t pid, char *out, size_t size);

/* Whether @path is @group or in it. */
bool cgroup_is_within(const char *path, const char *group);

/* Where the service manager puts a unit that is not up: @slice as in Slice=, for a slice itself
 * NULL. Returns 0 or -ENAMETOOLONG. */
must_check_ int cgroup_of_unit(const char *slice, const char *unit, char *out, size_t size);
