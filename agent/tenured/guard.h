/*
 * tenured --guard: what stops tenure-held.target in time when the agent cannot. Started
 * whenever an agent has ended that held a place (ExecStopPost= of its unit): until another one
 * has taken over, or the deadline comes, or nothing is up any more. It renews nothing.
 */
#pragma once

#include "base/base.h"

/* Returns 0 when it was not needed any more, or the target is down; or a negative errno.
 * Settings that cannot be read, perhaps the very reason why the agent does not come back, are
 * the default ones. */
must_check_ int guard_run(void);
