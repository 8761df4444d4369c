/*
 * What keeps the store in bounds: the alarms of the quota and of a full disk, and automatic
 * compaction.
 *
 * Decides only; the core proposes. Pure.
 */
#pragma once

#include "core/core.h"

#define UPKEEP_STEPS 20

struct upkeep {
        struct boot_time quota_at, disk_at, former_at, compact_at, step_at; /* when to look
                                                                               again */
        int64_t goal;                    /* up to where to compact, by steps */
        int64_t revisions[UPKEEP_STEPS]; /* a ring: the newest revision at times past */
        size_t step;
        bool refused; /* something for want of room, since the alarm was raised */
};

/* Is a client's command of this type held to the quota? */
bool upkeep_counts(enum cmd_type type);

/* May so many bytes be added here? Where not, the next upkeep_quota() raises the alarm. */
bool upkeep_room(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                 size_t bytes);

/* Too much is stored here, or was to be: appends the AlarmRequest that stops all replicas from
 * taking more, until somebody has compacted, or raised the quota, and disarmed it. */
bool upkeep_quota(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                  struct boot_time now, struct buf *alarm);

/* Some member's disk is full, as far as the log says. */
bool upkeep_disks_full(const struct state *s);

/* Our disk is full, or no more, and the alarm does not say so (yet). */
bool upkeep_disk_due(const struct core_config *cfg, const struct state *s, bool full);

/* Appends the AlarmRequest that says so: no replica takes more while one is short of room,
 * since what is in the log must fit on all of them. Unlike the quota's it is taken back by
 * itself. */
bool upkeep_disk(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                 bool full, struct boot_time now, struct buf *alarm);

/* A replica that is no longer a member, as @gone says, has an alarm for want of room, which
 * nobody else takes back: appends the AlarmRequest that does, whatever had raised it. What
 * CORRUPT says is for a person. On the leader. */
bool upkeep_former(struct upkeep *u, const struct state *s,
                   bool (*gone)(uint64_t member, void *arg), void *arg, struct boot_time now,
                   struct buf *disarm);

/* It is time to compact, or to go on with it: appends the CompactionRequest. On every replica,
 * since any may lead when it counts. */
bool upkeep_compact(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                    struct boot_time now, struct buf *compaction);
