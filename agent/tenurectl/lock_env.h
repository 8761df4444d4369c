/*
 * What a command of tenurectl lock finds in its environment, and tenurectl put in there: of the
 * innermost lock $TENURE_LOCK_KEY, $TENURE_LOCK_REVISION and $TENURE_TOKEN; of that one and all
 * around it $TENURE_LOCKS.
 */
#pragma once

#include "base/base.h"

/* For a command that is about to run. Returns 0 or a negative errno. */
must_check_ int lock_env_set(const char *key, int64_t token);

/* The lease of the innermost lock, 0: there is none; and where @name is one of the locks, its
 * token, and its lease in the place of the innermost one's. Returns 0; -1 and has said why; or
 * -ESTALE: the locks are not of one lease, so that one of them has ended. */
must_check_ int lock_env_read(const char *name, int64_t *ret_lease, int64_t *ret_token);
