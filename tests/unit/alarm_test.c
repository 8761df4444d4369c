/* Alarms: which replica raises which, for what cause, and how it is cleared. */
#include "../whole.h"
#include "core/upkeep.h"
#include "state/internal.h"
#include "test.h"

static uint64_t next_index = 1;

static enum state_outcome apply(struct state *s, enum cmd_type type, struct view body)
{
        struct state_reply reply = {0};
        struct cmd c = {.type = type, .body = body};

        state_begin(s, next_index++, (struct lease_time){0});
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

static enum state_outcome apply_message(struct state *s, enum cmd_type type,
                                        const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        return apply(s, type, (struct view){b.data, buf_len(&b)});
}

static void alarm_of(struct state *s, Pb__AlarmType type, Pb__AlarmRequest__AlarmAction action,
                     uint64_t member)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        q.action = action;
        q.alarm = type;
        q.memberid = member;
        CHECK_EQ(apply_message(s, CMD_ALARM, &q.base), STATE_OK);
}

static void alarm_by_hand(struct state *s, Pb__AlarmRequest__AlarmAction action,
                          uint64_t member)
{
        alarm_of(s, PB__ALARM_TYPE__NOSPACE, action, member);
}

static enum state_outcome put(struct state *s)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes("k", 1);
        return apply_message(s, CMD_PUT, &q.base);
}

/* Applies member 7's report about its disk; returns whether there was one to make. */
static bool says(struct state *s, struct upkeep *u, bool full, int64_t at_s)
{
        static const struct core_config cfg = {.member_id = 7};
        cleanup_(buf_fini) struct buf b = {0};

        if (!upkeep_disk(u, &cfg, s, full, (struct boot_time){at_s * NSEC_PER_SEC}, &b))
                return false;
        CHECK_EQ(apply(s, CMD_ALARM, (struct view){b.data, buf_len(&b)}), STATE_OK);
        return true;
}

static void save_and_load(struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};

        state_save(s, &b);
        state_fini(s);
        CHECK_EQ(state_load(s, (struct view){buf_head(&b), buf_len(&b)}), 0);
}

/* A full disk stops everything that grows, in the whole cluster; no operator has to disarm the
 * alarm. */
TEST(the_alarm_of_a_full_disk_goes_with_it)
{
        struct upkeep u = {0};
        struct state s;

        state_init(&s);
        CHECK(!says(&s, &u, false, 10));
        CHECK(says(&s, &u, true, 11));
        CHECK(upkeep_disks_full(&s));
        CHECK_EQ(put(&s), STATE_E_NOSPACE);
        CHECK(!says(&s, &u, true, 12)); /* once */
        save_and_load(&s);
        CHECK_EQ(put(&s), STATE_E_NOSPACE);
        CHECK(says(&s, &u, false, 13));
        CHECK_EQ(put(&s), STATE_OK);
        CHECK_EQ(s.n_alarms, 0);
        state_fini(&s);
}

/* An alarm that the quota or an operator has raised stays, whatever the disk reports; and if it
 * is disarmed while the disk is full, it is raised again. */
TEST(the_alarm_of_the_quota_stays_until_it_is_disarmed)
{
        struct upkeep u = {0};
        struct state s;

        state_init(&s);
        alarm_by_hand(&s, PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE, 7);
        CHECK(!upkeep_disks_full(&s));
        CHECK(says(&s, &u, true, 10));
        CHECK_EQ(s.n_alarms, 1);
        save_and_load(&s);
        CHECK(says(&s, &u, false, 12));
        CHECK_EQ(put(&s), STATE_E_NOSPACE);
        CHECK(says(&s, &u, true, 14));
        alarm_by_hand(&s, PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE, 7);
        CHECK_EQ(put(&s), STATE_OK);
        CHECK(says(&s, &u, true, 16));
        CHECK_EQ(put(&s), STATE_E_NOSPACE);
        CHECK(says(&s, &u, false, 18));
        CHECK_EQ(put(&s), STATE_OK);
        state_fini(&s);
}

static bool is_gone(uint64_t member, void *arg)
{
        return member != *(uint64_t *) arg;
}

/* The leader takes back what members that were removed cannot: their full disks went with them.
 */
TEST(the_alarm_of_one_who_was_removed_goes_with_it)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint64_t left = 8;
        struct upkeep u = {0};
        struct state s;

        state_init(&s);
        CHECK(says(&s, &u, true, 11)); /* 7 */
        alarm_by_hand(&s, PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE, 7);
        alarm_by_hand(&s, PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE, 0);
        alarm_by_hand(&s, PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE, 8);
        CHECK_EQ(state_add_alarm(&s, 7, PB__ALARM_TYPE__CORRUPT, ALARM_STANDS), 0);
        CHECK_EQ(upkeep_former(&u, &s, is_gone, &left, (struct boot_time){0}, &b), CMD_ALARM);
        CHECK_EQ(apply(&s, CMD_ALARM, (struct view){b.data, buf_len(&b)}), STATE_OK);
        CHECK(!upkeep_disks_full(&s));
        CHECK_EQ(state_alarm_why(&s, 7, PB__ALARM_TYPE__NOSPACE), 0);
        CHECK_EQ(state_alarm_why(&s, 7, PB__ALARM_TYPE__CORRUPT), ALARM_STANDS);
        CHECK_EQ(state_alarm_why(&s, 8, PB__ALARM_TYPE__NOSPACE), ALARM_STANDS);
        CHECK_EQ(state_alarm_why(&s, 0, PB__ALARM_TYPE__NOSPACE), ALARM_STANDS);
        CHECK_EQ(upkeep_former(&u, &s, is_gone, &left, (struct boot_time){60 * NSEC_PER_SEC},
                               &b),
                 0);
        state_fini(&s);
}

static enum state_outcome grant(struct state *s, int64_t id)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = 1000;
        return apply_message(s, CMD_GRANT, &q.base);
}

static enum state_outcome txn(struct state *s, bool deletes)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;

        del.key = get.key = pb_bytes("k", 1);
        op.request_case = deletes ? PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE
                                  : PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        if (deletes)
                op.request_delete_range = &del;
        else
                op.request_range = &get;
        q.failure = ops;
        q.n_failure = 1;
        return apply_message(s, CMD_TXN, &q.base);
}

/* At cluster version 1 it is an alarm about corruption like any other, with the same bytes. */
TEST(i10_the_alarm_about_another_core_survives_a_snapshot)
{
        for (uint32_t version = CLUSTER_0_1; version <= CLUSTER_0_2; version++) {
                Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;
                struct state s;

                state_init(&s);
                s.cluster_version = version;
                q.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
                q.alarm = PB__ALARM_TYPE__CORRUPT;
                q.memberid = 77;
                q.sibling = true;
                CHECK_EQ(apply_message(&s, CMD_ALARM, &q.base), STATE_OK);
                save_and_load(&s);
                CHECK_EQ(state_sibling(&s), version == CLUSTER_0_1 ? 0 : 77);
                CHECK_EQ(state_alarm_why(&s, 77, PB__ALARM_TYPE__CORRUPT),
                         version == CLUSTER_0_1 ? ALARM_STANDS : ALARM_SIBLING);
                CHECK_EQ(put(&s), STATE_E_CORRUPT);
                q.memberid = 0;
                q.sibling = false;
                q.action = PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
                CHECK_EQ(apply_message(&s, CMD_ALARM, &q.base), STATE_OK);
                CHECK_EQ(state_sibling(&s), 0);
                CHECK_EQ(put(&s), STATE_OK);
                state_fini(&s);
        }
}

/* Whoever asks, and wherever it was accepted: it was on its way when the alarm came. */
TEST(nothing_is_written_while_there_is_an_alarm_about_corruption)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__CompactionRequest compact = PB__COMPACTION_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        int64_t revision;
        struct state s;

        state_init(&s);
        CHECK_EQ(put(&s), STATE_OK);
        CHECK_EQ(grant(&s, 1), STATE_OK);
        compact.revision = revision = s.revision;
        del.key = pb_bytes("k", 1);
        revoke.id = 1;
        alarm_of(&s, PB__ALARM_TYPE__CORRUPT, PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE, 3);
        save_and_load(&s);
        CHECK_EQ(put(&s), STATE_E_CORRUPT);
        CHECK_EQ(grant(&s, 2), STATE_E_CORRUPT);
        CHECK_EQ(txn(&s, true), STATE_E_CORRUPT);
        CHECK_EQ(txn(&s, false), STATE_OK);
        CHECK_EQ(apply_message(&s, CMD_DELETE_RANGE, &del.base), STATE_E_CORRUPT);
        CHECK_EQ(apply_message(&s, CMD_COMPACT, &compact.base), STATE_E_CORRUPT);
        CHECK_EQ(apply_message(&s, CMD_REVOKE, &revoke.base), STATE_E_CORRUPT);
        CHECK_EQ(s.revision, revision);
        CHECK_EQ(s.leases.n, 1);
        alarm_of(&s, PB__ALARM_TYPE__CORRUPT, PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE, 3);
        CHECK_EQ(apply_message(&s, CMD_REVOKE, &revoke.base), STATE_OK);
        CHECK_EQ(put(&s), STATE_OK);
        state_fini(&s);
}
