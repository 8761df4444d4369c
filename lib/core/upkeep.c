#include "core/upkeep.h"

#include "base/probe.h"

#define QUOTA_AGAIN NSEC_PER_SEC
#define DISK_AGAIN NSEC_PER_SEC
#define FORMER_AGAIN NSEC_PER_SEC
#define COMPACT_AGAIN (60 * NSEC_PER_SEC)
#define STEP_PAUSE (10 * NSEC_PER_MSEC)
#define STEP_AGAIN NSEC_PER_SEC /* if it is not applied by then */

static void append_alarm(struct buf *out, bool raised, uint64_t member, bool full_disk)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        q.action = raised ? PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE
                          : PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
        q.alarm = PB__ALARM_TYPE__NOSPACE;
        q.memberid = member;
        q.full_disk = full_disk;
        pb_append(out, &q.base);
}

bool upkeep_quota(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                  struct boot_time now, struct buf *alarm)
{
        if (cfg->quota == 0 || (!u->refused && state_bytes(s) <= cfg->quota))
                return false;
        if (state_alarm_why(s, cfg->member_id, PB__ALARM_TYPE__NOSPACE) & ALARM_STANDS) {
                u->refused = false;
                return false;
        }
        if (boot_before(now, u->quota_at))
                return false;
        u->quota_at = boot_add(now, QUOTA_AGAIN);
        PROBE("a replica raises the alarm of its quota");
        append_alarm(alarm, true, cfg->member_id, false);
        return true;
}

bool upkeep_disks_full(const struct state *s)
{
        for (size_t i = 0; i < s->n_alarms; i++)
                if (s->alarms[i].why & ALARM_FULL_DISK)
                        return true;
        return false;
}

bool upkeep_disk_due(const struct core_config *cfg, const struct state *s, bool full)
{
        uint8_t why = state_alarm_why(s, cfg->member_id, PB__ALARM_TYPE__NOSPACE);

        return full != ((why & ALARM_FULL_DISK) != 0);
}

bool upkeep_disk(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                 bool full, struct boot_time now, struct buf *alarm)
{
        if (!upkeep_disk_due(cfg, s, full) || boot_before(now, u->disk_at))
                return false;
        PROBE_IF(full, "a full disk raises an alarm");
        PROBE_IF(!full, "a disk has room again, and its alarm ends");
        u->disk_at = boot_add(now, DISK_AGAIN);
        append_alarm(alarm, full, cfg->member_id, true);
        return true;
}

enum cmd_type upkeep_former(struct upkeep *u, const struct state *s,
                            bool (*gone)(uint64_t member, void *arg), void *arg,
                            struct boot_time now, struct buf *out)
{
        Pb__Member m = PB__MEMBER__INIT;

        if (boot_before(now, u->former_at))
                return 0;
        for (size_t i = 0; i < s->n_alarms; i++) {
                const struct alarm *a = &s->alarms[i];

                /* Member 0 does not exist, and would mean all members. */
                if (a->type != PB__ALARM_TYPE__NOSPACE || a->member == 0 ||
                    !gone(a->member, arg))
                        continue;
                PROBE("the alarm of a former member is ended");
                u->former_at = boot_add(now, FORMER_AGAIN);
                append_alarm(out, false, a->member, false);
                return CMD_ALARM;
        }
        for (size_t i = 0; i < s->n_members && s->cluster_version >= CLUSTER_0_2; i++) {
                if (!gone(s->members[i].id, arg))
                        continue;
                PROBE("the name of a former member is dropped");
                u->former_at = boot_add(now, FORMER_AGAIN);
                m.id = s->members[i].id;
                pb_append(out, &m.base);
                return CMD_MEMBER;
        }
        return 0;
}

static void choose_goal(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                        struct boot_time now)
{
        if (cfg->compact_age > 0) {
                int64_t *oldest = &u->revisions[u->next++ % UPKEEP_STEPS];

                u->compact_at = boot_add(now, cfg->compact_age / UPKEEP_STEPS);
                u->goal = *oldest;
                *oldest = s->revision;
        } else if (cfg->compact_keep > 0) {
                PROBE_IF(u->compact_at.ns > 0,
                         "the number of revisions is looked at once a minute");
                u->compact_at = boot_add(now, COMPACT_AGAIN);
                u->goal = s->revision - cfg->compact_keep;
        } else {
                u->compact_at = BOOT_TIME_NEVER;
        }
}

static struct boot_time step_next(const struct upkeep *u, const struct state *s)
{
        return boot_add(u->step_at, u->step > s->kv.compacted ? STEP_AGAIN : STEP_PAUSE);
}

struct boot_time upkeep_compact_next(const struct upkeep *u, const struct state *s, bool leader)
{
        return leader && u->goal > s->kv.compacted ? boot_min(u->compact_at, step_next(u, s))
                                                   : u->compact_at;
}

bool upkeep_compact(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                    struct boot_time now, struct buf *compaction)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;

        if (!boot_before(now, u->compact_at))
                choose_goal(u, cfg, s, now);
        if (u->goal <= s->kv.compacted || boot_before(now, step_next(u, s)))
                return false;
        PROBE_IF(cfg->compact_age > 0, "history is compacted by its age");
        PROBE_IF(cfg->compact_age == 0, "history is compacted by its number of revisions");
        u->step_at = now;
        q.revision = u->step = kv_compact_step(&s->kv, u->goal);
        pb_append(compaction, &q.base);
        return true;
}
