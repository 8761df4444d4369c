/*
 * A client that fills the store up to its quota, waits for the alarm, deletes what it wrote,
 * compacts the history and ends the alarm, again and again. In its worlds the core compacts by
 * itself, too, by age or to a number of revisions.
 *
 * After each entry: while the alarm stood, nothing was written, and deletions were carried out.
 */
#include <inttypes.h>
#include <stdio.h>

#include "asker.h"
#include "wire/cmd.h"

#define BALLAST 4000
#define PREFIX "ballast/"

enum phase { FILL, LOOK, DELETE, COMPACT, DISARM };

static struct filler {
        struct asker asker;
        enum phase phase, asked;
        unsigned n, refusals;
        int64_t revision; /* the last one that it has seen */
        bool clean;       /* there is no ballast */
} filler;

static struct {
        bool alarmed;
        int64_t revision;
} before; /* the present entry */

/* ---- what was applied ---- */

void fillers_apply(const struct state *s)
{
        before.alarmed = state_alarmed(s, PB__ALARM_TYPE__NOSPACE);
        before.revision = s->revision;
}

static bool has_alarm(struct view commands)
{
        struct cmd c;

        while (cmd_next(&commands, CLUSTER_NEWEST, &c) == 0)
                if (c.type == CMD_ALARM)
                        return true;
        return false;
}

void fillers_applied(struct world *w, const struct state *s, struct view commands)
{
        const struct kv *kv = &s->kv;

        if (!before.alarmed || !state_alarmed(s, PB__ALARM_TYPE__NOSPACE) ||
            has_alarm(commands))
                return;
        for (size_t i = kv_history_seek(kv, before.revision + 1); i < kv->history_to; i++)
                if (kv_history_at(kv, i)->version > 0)
                        fail(w,
                             "quota: a key was put at revision %" PRId64
                             " while the alarm stood",
                             kv_history_at(kv, i)->mod_revision);
                else
                        w->counts.deleted_full++;
}

/* ---- requests ---- */

static void put(struct asker *a)
{
        static uint8_t ballast[BALLAST];
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        char key[32];

        snprintf(key, sizeof(key), PREFIX "%u", filler.n++ % 100);
        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(ballast, sizeof(ballast));
        filler.clean = false;
        asker_ask(a, "/etcdserverpb.KV/Put", &q.base);
}

static void act(struct asker *a)
{
        Pb__AlarmRequest alarm = PB__ALARM_REQUEST__INIT;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__CompactionRequest compact = PB__COMPACTION_REQUEST__INIT;

        if (W->calm && filler.phase == FILL)
                filler.phase = LOOK;
        filler.asked = filler.phase;
        switch (filler.phase) {
        case FILL:
                return put(a);
        case LOOK:
                return asker_ask(a, "/etcdserverpb.Maintenance/Alarm", &alarm.base);
        case DELETE:
                del.key = pb_bytes(PREFIX, strlen(PREFIX));
                del.range_end = pb_bytes("ballast0", strlen("ballast0"));
                return asker_ask(a, "/etcdserverpb.KV/DeleteRange", &del.base);
        case COMPACT:
                compact.revision = filler.revision;
                asker_ask(a, "/etcdserverpb.KV/Compact", &compact.base);
                a->waits.bound = 3 * PROMPT_MAJORITY; /* it may take several steps */
                return;
        case DISARM:
                alarm.action = PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
                alarm.alarm = PB__ALARM_TYPE__NOSPACE;
                return asker_ask(a, "/etcdserverpb.Maintenance/Alarm", &alarm.base);
        }
}

/* ---- answers ---- */

static void on_alarms(struct view m)
{
        Pb__AlarmResponse *p = pb__alarm_response__unpack(NULL, m.len, m.p);
        bool stands = p->n_alarms > 0;

        W->counts.quota_alarms += stands && filler.asked == LOOK;
        filler.refusals = 0;
        if (filler.asked == DISARM)
                filler.phase = LOOK;
        else if (stands || (W->calm && !filler.clean))
                filler.phase = DELETE;
        else
                filler.phase = FILL;
        pb_free(p);
}

static void on_done(struct view m)
{
        Pb__DeleteRangeResponse *p;

        switch (filler.asked) {
        case FILL:
                return;
        case LOOK:
        case DISARM:
                return on_alarms(m);
        case DELETE:
                p = pb__delete_range_response__unpack(NULL, m.len, m.p);
                filler.revision = p->header->revision;
                filler.clean = true;
                filler.phase = COMPACT;
                pb_free(p);
                return;
        case COMPACT:
                filler.phase = DISARM;
                return;
        }
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        a->act_at = W->now + some_time(W, 0, 60 * MSEC);
        if (code == RPC_OK && !lost)
                on_done(m);
        else if (filler.asked == FILL && code == RPC_RESOURCE_EXHAUSTED)
                filler.phase = ++filler.refusals > 3 ? LOOK : FILL;
        else if (filler.asked == COMPACT && code == RPC_OUT_OF_RANGE)
                filler.phase = DISARM; /* somebody else has compacted it */
        if (W->calm && filler.clean && filler.phase == FILL)
                a->act_at = W->now + NSEC_PER_SEC;
}

static const struct asker_ops ops = {.act = act, .answered = answered};

void fillers_begin(struct world *w)
{
        filler = (struct filler){.clean = true};
        before.alarmed = false;
        if (w->quota > 0)
                asker_begin(&filler.asker, 0, &ops);
}
