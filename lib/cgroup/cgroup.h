/* Control groups of version 2, through the kernel alone: frozen, killed, and read. Paths are as
 * the service manager has them ("/system.slice/a.service"). A group includes its descendants.
 * Nothing here waits. Privileges: writes as root, needs no capability. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* Whether this host has such a hierarchy. */
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

/* Whether the group has a process: returns 1, 0 (also if there is no such group), or a negative
 * errno. */
must_check_ int cgroup_is_populated(const char *path);

/* Calls @fn with each child group of @path. */
void cgroup_children(const char *path, void (*fn)(void *userdata, const char *child),
                     void *userdata);

/* Finds the group of this process; "" if that fails. Returns @out. */
const char *cgroup_own(char *out, size_t size);

/* Finds the group of a process. Returns 0, -ESRCH if the process has ended, or another negative
 * errno. */
must_check_ int cgroup_of_process(pid_t pid, char *out, size_t size);

/* Whether @path is @group or in it. */
bool cgroup_is_within(const char *path, const char *group);

/* Finds the group in which the service manager will start a unit: @slice is its Slice=, NULL
 * for a slice itself. Returns 0 or -ENAMETOOLONG. */
must_check_ int cgroup_of_unit(const char *slice, const char *unit, char *out, size_t size);
