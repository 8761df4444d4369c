#include "service/upkeep.h"

#define QUOTA_AGAIN NSEC_PER_SEC
#define COMPACT_AGAIN (60 * NSEC_PER_SEC)

bool upkeep_quota(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                  struct boot_time now, struct buf *alarm)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        if (cfg->quota == 0 || s->kv.bytes <= cfg->quota || boot_before(now, u->quota_at))
                return false;
        u->quota_at = boot_add(now, QUOTA_AGAIN);
        for (size_t i = 0; i < s->n_alarms; i++)
                if (s->alarms[i].member == cfg->member_id &&
                    s->alarms[i].type == PB__ALARM_TYPE__NOSPACE)
                        return false;
        q.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
        q.alarm = PB__ALARM_TYPE__NOSPACE;
        q.memberid = cfg->member_id;
        pb_append(alarm, &q.base);
        return true;
}

bool upkeep_compact(struct upkeep *u, const struct core_config *cfg, const struct state *s,
                    struct boot_time now, struct buf *compaction)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        bool by_age = cfg->compact_age > 0;

        if ((!by_age && cfg->compact_keep == 0) || boot_before(now, u->compact_at))
                return false;
        u->compact_at = boot_add(now, by_age ? cfg->compact_age / UPKEEP_STEPS : COMPACT_AGAIN);
        if (by_age) {
                int64_t *oldest = &u->revisions[u->step++ % UPKEEP_STEPS];

                q.revision = *oldest;
                *oldest = s->revision;
        } else {
                q.revision = s->revision - cfg->compact_keep;
        }
        if (q.revision <= s->kv.compacted)
                return false;
        pb_append(compaction, &q.base);
        return true;
}
