/* tenure-core --restore: a new data directory from a snapshot file. */
#pragma once

#include "consensus/replica.h"

struct loop;

/* Runs the loop until it is done; logs what went wrong. Returns 0 or a negative errno. */
must_check_ int restore(struct loop *l, struct disk *d, const struct replica_config *cfg,
                        const char *path, const char *data_dir);
