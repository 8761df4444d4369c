/* Lists which bound units cannot be fenced in time as they are configured, each with what to do
 * about it. The list is logged when it changes, is FenceWarnings on D-Bus, and is printed by
 * tenurectl check. */
#pragma once

#include "fence.h"

/* Finds them anew, into @f->warnings, a sentence a line, and logs what was not there before.
 * @ttl: as granted, or asked for. Returns whether there are others. */
bool fence_check(struct fence *f, nsec_t ttl);
