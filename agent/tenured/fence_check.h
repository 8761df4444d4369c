/* Lists which bound units cannot be fenced in time as they are configured, each with what to do
 * about it. The list is logged when it changes, is FenceWarnings on D-Bus, and is printed by
 * tenurectl check. */
#pragma once

#include "fence.h"

/* Checks again, writes the warnings into @f->warnings, one sentence a line, and logs the new
 * ones. @ttl: as granted, or the one to ask for. Returns whether the warnings have changed. */
bool fence_check(struct fence *f, nsec_t ttl);
