/* A tie of libtenure's, to whom tenurectl's options name. */
#pragma once

#include "core.h"
#include "ctl.h"
#include "tenure/tenure.h"

/* To the endpoints that were given, or else to the core that the agent uses. Returns 0, and
 * *@ret is the caller's to tenure_free(); or -1, and has said why. */
must_check_ int tie_new(const struct ctl *c, const struct core_options *o, bool endpoints_given,
                        struct tenure **ret);

/* Prints what went wrong last; returns -1. */
must_check_ int tie_fail(const struct tenure *t);

/* What the options say of the core, for one that is not started yet. Returns 0, or -1 and has
 * said why. */
must_check_ int tie_set(struct tenure *t, const struct core_options *o, bool endpoints_given);

/* For libtenure, which finds the agent's bus there; NULL: the system's. Returns 0, or -1 and
 * has said why. */
must_check_ int tie_set_bus(const char *address);

/* A bus that was named on the command line is in the environment from then on: for a command,
 * it is as it was before. */
void tie_restore_environment(void);
