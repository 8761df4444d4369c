/*
 * Control groups of version 2, at the kernel, without asking anybody: stood still, killed,
 * looked at. Paths are as the service manager has them ("/system.slice/a.service"). What a
 * group holds, its children hold. Nothing here waits. Rights: writing as root, no capability.
 */
#pragma once

#include "base/base.h"

/* Whether there is such a hierarchy here. */
bool cgroup_is_there(void);

/* Each returns 0 or a negative errno; -ENOENT: there is no such group. */
int cgroup_freeze(const char *path, bool frozen);
int cgroup_kill(const char *path);

/* Whether a process is in it: 1, 0 (nor is a group), or a negative errno. */
int cgroup_is_populated(const char *path);

/* Calls @fn with each group right in @path, if there are any. */
void cgroup_children(const char *path, void (*fn)(void *userdata, const char *child),
                     void *userdata);

/* Our own; "" if that cannot be told. */
const char *cgroup_own(char *out, size_t size);

/* Whether @path is @group or in it. */
bool cgroup_is_within(const char *path, const char *group);

/* Where the service manager puts a unit that is not up: @slice as in Slice=, for a slice itself
 * NULL. Returns 0 or -ENAMETOOLONG. */
int cgroup_of_unit(const char *slice, const char *unit, char *out, size_t size);
