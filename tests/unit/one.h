/* A core and its replica, driven by hand: frames to others are lost, and the test fails if it
 * ends by `fatal`. */
#pragma once

#include "../sim/world.h"
#include "core/core.h"

/* Starts one of the members 1 to @n_members, as number 1, with its log on @disk. Its identity
 * and its seed in @cfg are set here. */
void one_new(struct core **ret_core, struct replica **ret_replica, struct disk *disk,
             unsigned n_members, const struct core_config *cfg, struct boot_time now);

/* Runs what is due at @now. The disk needs no time. */
void one_turn(struct core *c, struct replica *r, struct disk *disk, struct boot_time now);

/* While it is set, what is committed does not reach the core: the entries that a snapshot of
 * another member replaces. What the core had proposed is in doubt once its `skipped` is
 * called. */
extern bool one_skips;

/* The owner, as above. */
extern const struct core_owner one_owner;
