/* Changes of a data directory while no replica runs on it. Both run the loop until they are
 * done, log what went wrong, and return 0 or a negative errno. */
#pragma once

#include "consensus/replica.h"

struct loop;

/* Before the data directory @dir is opened: opens the snapshot @path (NULL: none), which may be
 * root's; then, if we are root and the directory is another user's, becomes that user. Whoever
 * owns it decides which files its names lead to, and has to own what is made there. */
must_check_ int restore_begin(const char *path, const char *dir, int *ret_fd);

/* --restore: a new data directory from the snapshot @fd, which is closed; @path is its name. If
 * @bump is not 0, its revision is raised by that, and its history compacted. */
must_check_ int restore(struct loop *l, struct disk *d, const struct replica_config *settings,
                        int fd, const char *path, uint64_t bump, const char *data_dir);

/* --force-new-cluster: the replica in the directory continues without the others, which are
 * lost, as the only member of the new cluster @cluster_id, a random number. A survivor that
 * does the same is another cluster. */
must_check_ int force_new_cluster(struct loop *l, struct disk *d,
                                  const struct replica_config *cfg, uint64_t cluster_id,
                                  const char *data_dir);
