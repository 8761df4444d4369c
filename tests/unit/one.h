/* A core and its replica, driven by hand: what it sends to others is lost, and the test fails
 * if it ends by `fatal`. */
#pragma once

#include "../sim/world.h"
#include "core/core.h"

/* One of the members 1 to @n_members, as number 1, with its log on @disk; started. Of @cfg who
 * it is and its seed are set here. */
void one_new(struct core **ret_core, struct replica **ret_replica, struct disk *disk,
             unsigned n_members, const struct core_config *cfg, struct boot_time now);

/* Whom it belongs to, as above. */
extern const struct core_owner one_owner;
