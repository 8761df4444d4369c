/* tenured --guard: stops tenure-held.target in time when the agent cannot, because it hangs,
 * has ended or does not come back; the service manager may hang as well. It runs beside the
 * agent and sleeps until the deadline that the agent has written last. It renews nothing. */
#pragma once

#include "base/base.h"

/* Runs until SIGTERM and then until nothing is left to guard, or until SIGUSR1 and then until
 * another guard may take over, which is at once while the place is held. Returns 0 or a
 * negative errno. If the settings cannot be read, which may be the very reason why the agent
 * does not come back, the former or the default settings apply. */
must_check_ int guard_run(void);

/* guard_run() in two steps, for a caller that runs @l in between, until the guard stops it. */
struct guard;
struct loop;
must_check_ int guard_new(struct guard **ret, struct loop *l);
struct guard *guard_free(struct guard *g);
DEFINE_CLEANUP(struct guard *, guard_free)
