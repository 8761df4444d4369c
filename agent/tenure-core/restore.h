/* Changes of a data directory while no replica runs on it. Both run the loop until they are
 * done, log what went wrong, and return 0 or a negative errno. */
#pragma once

#include "consensus/replica.h"

struct loop;

/* --restore: a new data directory from a snapshot file. */
must_check_ int restore(struct loop *l, struct disk *d, const struct replica_config *cfg,
                        const char *path, const char *data_dir);

/* --force-new-cluster: the replica in the directory continues without the others, which are
 * lost. */
must_check_ int force_new_cluster(struct loop *l, struct disk *d,
                                  const struct replica_config *cfg, const char *data_dir);
