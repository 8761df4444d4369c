/* Alarms. NOSPACE refuses what makes the state grow until it is disarmed, or the full disk has
 * room. CORRUPT refuses writes until it is disarmed. */
#include "base/probe.h"
#include "state/internal.h"

bool state_alarmed(const struct state *s, Pb__AlarmType type)
{
        for (size_t i = 0; i < s->n_alarms; i++)
                if (s->alarms[i].type == type)
                        return true;
        return false;
}

uint64_t state_sibling(const struct state *s)
{
        for (size_t i = 0; i < s->n_alarms; i++)
                if (s->alarms[i].why & ALARM_SIBLING)
                        return s->alarms[i].member;
        return 0;
}

uint8_t state_alarm_why(const struct state *s, uint64_t member, Pb__AlarmType type)
{
        for (size_t i = 0; i < s->n_alarms; i++)
                if (s->alarms[i].member == member && s->alarms[i].type == type)
                        return s->alarms[i].why;
        return 0;
}

int state_add_alarm(struct state *s, uint64_t member, Pb__AlarmType type, uint8_t why)
{
        size_t i = 0;

        while (i < s->n_alarms && (s->alarms[i].member < member ||
                                   (s->alarms[i].member == member && s->alarms[i].type < type)))
                i++;
        if (i < s->n_alarms && s->alarms[i].member == member && s->alarms[i].type == type) {
                s->alarms[i].why |= why;
                return 0;
        }
        if (array_insert(&s->alarms, &s->n_alarms, &s->alarms_cap, sizeof(*s->alarms), i) < 0)
                return -ENOMEM;
        s->alarms[i] = (struct alarm){.member = member, .type = type, .why = why};
        return 0;
}

/* Whether @q names @a. A member of 0 means all members, a type of NONE means all types. */
static bool named(const Pb__AlarmRequest *q, const struct alarm *a)
{
        return (q->memberid == 0 || q->memberid == a->member) &&
               (q->alarm == PB__ALARM_TYPE__NONE || q->alarm == a->type);
}

static int answer(struct state *s, const struct alarm *alarms, size_t n,
                  struct state_reply *reply)
{
        Pb__AlarmResponse p = PB__ALARM_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};

        if (!reply->out)
                return 0;
        p.alarms = arena_alloc(&a, (n + 1) * sizeof(*p.alarms));
        if (!p.alarms)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                Pb__AlarmMember *m = arena_alloc(&a, sizeof(*m));

                if (!m)
                        return -ENOMEM;
                pb__alarm_member__init(m);
                m->memberid = alarms[i].member;
                m->alarm = alarms[i].type;
                p.alarms[p.n_alarms++] = m;
        }
        reply->header.revision = s->revision;
        p.header = &reply->header;
        pb_append(reply->out, &p.base);
        return 0;
}

int state_alarm(struct state *s, const Pb__AlarmRequest *q, struct state_reply *reply)
{
        cleanup_(freep) struct alarm *alarms = calloc(s->n_alarms + 1, sizeof(*alarms));
        uint8_t why = q->full_disk                                      ? ALARM_FULL_DISK
                      : q->sibling && s->cluster_version >= CLUSTER_0_2 ? ALARM_SIBLING
                                                                        : ALARM_STANDS;
        size_t n = 0, kept = 0;
        int r;

        if (!alarms)
                return -ENOMEM;
        if (q->action == PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE) {
                if (q->alarm != PB__ALARM_TYPE__NOSPACE && q->alarm != PB__ALARM_TYPE__CORRUPT)
                        return answer(s, alarms, 0, reply);
                /* A member raises one alarm of each type, but an operator may raise any number.
                 * The first alarm of a type is enough to stop writes, and the first one about
                 * another core to stop everything. */
                if (s->n_alarms >= STATE_ALARMS_MAX &&
                    (why == ALARM_SIBLING ? state_sibling(s) != 0 : state_alarmed(s, q->alarm)))
                        return answer(s, alarms, 0, reply);
                r = state_add_alarm(s, q->memberid, q->alarm, why);
                if (r < 0)
                        return r;
                alarms[n++] = (struct alarm){.member = q->memberid, .type = q->alarm};
                return answer(s, alarms, n, reply);
        }
        for (size_t i = 0; i < s->n_alarms; i++) {
                bool hit = named(q, &s->alarms[i]);

                if (hit)
                        alarms[n++] = s->alarms[i];
                if (hit && q->action == PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE)
                        s->alarms[i].why &= (uint8_t) (q->full_disk ? ~ALARM_FULL_DISK : 0);
                PROBE_IF(hit && q->full_disk && s->alarms[i].why,
                         "a disk has room again, and the alarm of the quota stays");
                if (s->alarms[i].why)
                        s->alarms[kept++] = s->alarms[i];
        }
        s->n_alarms = kept;
        return answer(s, alarms, n, reply);
}
