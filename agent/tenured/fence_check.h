/*
 * What of all that is bound to the place cannot be fenced in time as it is set up, each with
 * what to do about it: told in the log when it is found, as FenceWarnings on D-Bus, and by
 * tenurectl check.
 */
#pragma once

#include "fence.h"

/* Finds them anew, into @f->warnings, a sentence a line, and logs what was not there before.
 * @ttl: as granted, or asked for. Returns whether there are others. */
bool fence_check(struct fence *f, nsec_t ttl);
