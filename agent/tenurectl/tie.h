/* Makes a tie of libtenure to the core that tenurectl's options name. */
#pragma once

#include "core.h"
#include "ctl.h"
#include "tenure/tenure.h"

/* Makes a tie to the endpoints that were given, or else to the core that the agent uses.
 * Returns 0, and the caller owns *@ret; or -1 after printing why. */
must_check_ int tie_new(const struct ctl *c, struct tenure **ret);

/* Prints the last error of the tie; returns -1. */
int tie_fail(const struct tenure *t);

/* Applies the options about the core to a tie that is not started yet. Returns 0, or -1 after
 * printing why. */
must_check_ int tie_set(struct tenure *t, const struct core_options *o);

/* Puts the bus's address into the environment, where libtenure finds it; NULL: the system bus.
 * Returns 0, or -1 after printing why. */
must_check_ int tie_set_bus(const char *address);

/* Undoes tie_set_bus(), so that a command gets the environment as it was before. */
void tie_restore_environment(void);
