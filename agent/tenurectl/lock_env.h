/*
 * The environment that tenurectl lock gives its command: $TENURE_LOCK_KEY,
 * $TENURE_LOCK_REVISION and $TENURE_TOKEN describe the innermost lock, $TENURE_LOCKS that one
 * and all around it.
 */
#pragma once

#include "base/base.h"

/* Sets these variables for a command that is about to run. Returns 0 or a negative errno. */
must_check_ int lock_env_set(const char *key, int64_t token);

/* Reads the lease of the innermost lock, 0 if there is none. If @name is one of the locks, it
 * reads that lock's token and lease instead. Returns 0; -1 after reporting an error; or -ESTALE
 * if the locks have different leases, which means that one of them has ended. */
must_check_ int lock_env_read(const char *name, int64_t *ret_lease, int64_t *ret_token);
