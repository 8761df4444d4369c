/* Alarms: which replica raises which, for what cause, and how it is cleared. */
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

static void alarm_by_hand(struct state *s, Pb__AlarmRequest__AlarmAction action,
                          uint64_t member)
{
        cleanup_(buf_fini) struct buf b = {0};
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        q.action = action;
        q.alarm = PB__ALARM_TYPE__NOSPACE;
        q.memberid = member;
        pb_append(&b, &q.base);
        CHECK_EQ(apply(s, CMD_ALARM, (struct view){b.data, buf_len(&b)}), STATE_OK);
}

static enum state_outcome put(struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes("k", 1);
        pb_append(&b, &q.base);
        return apply(s, CMD_PUT, (struct view){b.data, buf_len(&b)});
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
        CHECK(upkeep_former(&u, &s, is_gone, &left, (struct boot_time){0}, &b));
        CHECK_EQ(apply(&s, CMD_ALARM, (struct view){b.data, buf_len(&b)}), STATE_OK);
        CHECK(!upkeep_disks_full(&s));
        CHECK_EQ(state_alarm_why(&s, 7, PB__ALARM_TYPE__NOSPACE), 0);
        CHECK_EQ(state_alarm_why(&s, 7, PB__ALARM_TYPE__CORRUPT), ALARM_STANDS);
        CHECK_EQ(state_alarm_why(&s, 8, PB__ALARM_TYPE__NOSPACE), ALARM_STANDS);
        CHECK_EQ(state_alarm_why(&s, 0, PB__ALARM_TYPE__NOSPACE), ALARM_STANDS);
        CHECK(!upkeep_former(&u, &s, is_gone, &left, (struct boot_time){60 * NSEC_PER_SEC},
                             &b));
        state_fini(&s);
}
