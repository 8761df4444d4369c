/*
 * Keeps the store within its bounds: the alarms of the quota and of a full disk, and automatic
 * compaction.
 *
 * It only decides; the core proposes. Pure.
 */
#pragma once

#include "core/core.h"

#define UPKEEP_STEPS 20

struct upkeep {
        struct boot_time quota_at, disk_at, former_at, compact_at; /* when to check again */
        int64_t goal;                    /* compact up to here, a part at a time: ... */
        int64_t step;                    /* ... the last one, up to this revision, ... */
        struct boot_time step_at;        /* ... was proposed at this time */
        int64_t revisions[UPKEEP_STEPS]; /* a ring: the newest revisions at earlier times */
        size_t next;
        bool refused; /* a request was refused for lack of room, and no alarm stands yet */
};

/* If too much is stored here, or a request would have exceeded the quota: appends the
 * AlarmRequest that stops all replicas from accepting more, until somebody has compacted, or
 * raised the quota, and disarmed the alarm. */
bool upkeep_quota(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                  struct boot_time now, struct buf *alarm);

/* Whether some member's disk is full, according to the log. */
bool upkeep_disks_full(const struct state *s);

/* Whether our disk has become full, or has room again, and the alarms do not show it (yet). */
bool upkeep_disk_due(const struct core_config *cfg, const struct state *s, bool full);

/* Appends the AlarmRequest that raises or clears that alarm. No replica accepts more while one
 * is short of room, because the log must fit on all of them. Unlike the quota's alarm, this one
 * is cleared automatically. */
bool upkeep_disk(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                 bool full, struct boot_time now, struct buf *alarm);

/* Removes what is left of a former member (@gone: whether a member is one): its alarm for lack
 * of room, which it cannot clear itself, and its entry of MemberList, which would stay in each
 * snapshot for ever. If there is something, appends the command that removes it, and returns
 * its type; otherwise 0. A CORRUPT alarm is left to an operator, and names stay until the
 * cluster version is 0.2. Called on the leader. */
enum cmd_type upkeep_former(struct upkeep *u, const struct state *s,
                            bool (*gone)(uint64_t member, void *arg), void *arg,
                            struct boot_time now, struct buf *out);

/* When upkeep_compact() may have something to do. */
struct boot_time upkeep_compact_next(const struct upkeep *u, const struct state *s,
                                     bool leader);
/* If a compaction is due or has to continue: appends the CompactionRequest. Called on every
 * replica, because any of them may lead when it is due. */
bool upkeep_compact(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                    struct boot_time now, struct buf *compaction);
