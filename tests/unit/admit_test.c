/* Whether commands are accepted: one order of checks, where they come in and where they are
 * applied. */
#include "../whole.h"
#include "test.h"

static struct state s;

static int ask(enum admit_at at, enum cmd_type type, const void *m, const char *user,
               uint64_t quota)
{
        struct state_admission a = {.at = at, .max_txn_ops = 128};
        struct cmd c = {.type = type, .by_user = true, .quota = quota};
        struct budget left = BUDGET_ALL;

        c.user.name = (struct view){(const uint8_t *) user, strlen(user)};
        return state_admit(&s, &c, m, &left, &a);
}

static void apply(enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = type};

        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(&s, s.applied + 1, (struct lease_time){1});
        CHECK_EQ(state_apply(&s, &c, &reply), 0);
        CHECK_EQ(reply.outcome, STATE_OK);
}

static void raise_alarm(Pb__AlarmType type)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;

        q.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
        q.alarm = type;
        q.memberid = 1;
        apply(CMD_ALARM, &q.base);
}

/* A put that fails each check, with what mends it, in the order of the checks. */
TEST(the_first_check_that_fails_is_the_outcome)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        state_init(&s);
        s.auth.enabled = true;
        raise_alarm(PB__ALARM_TYPE__CORRUPT);
        raise_alarm(PB__ALARM_TYPE__NOSPACE);
        q.lease = 7;
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 1), STATE_E_CORRUPT);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_PUT, &q, "", 1), STATE_E_KEY_MISSING);
        s.n_alarms = 1;
        CHECK_EQ(s.alarms[0].type, PB__ALARM_TYPE__NOSPACE);
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 1), STATE_E_KEY_MISSING);
        q.key = pb_bytes("k", 1);
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 1), STATE_E_USER_EMPTY);
        s.auth.enabled = false;
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 0), STATE_E_NOSPACE);
        s.n_alarms = 0;
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 1), STATE_E_NOSPACE);
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 0), STATE_E_LEASE_NOT_FOUND);
        q.lease = 0;
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_PUT, &q, "", 0), STATE_OK);
        state_fini(&s);
}

/* A login, an alarm's end, a lease or a revision may be in the log, and known to the client,
 * before this replica has applied it. */
TEST(what_entries_on_their_way_may_change_is_not_refused_at_the_door)
{
        Pb__CompactionRequest compact = PB__COMPACTION_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;

        state_init(&s);
        put.key = pb_bytes("k", 1);
        put.lease = revoke.id = 7;
        put.ignore_value = true;
        compact.revision = 100;
        raise_alarm(PB__ALARM_TYPE__CORRUPT);
        raise_alarm(PB__ALARM_TYPE__NOSPACE);
        s.auth.enabled = true;
        CHECK_EQ(ask(ADMIT_DOOR, CMD_PUT, &put, "nobody", 0), STATE_OK);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_REVOKE, &revoke, "nobody", 0), STATE_OK);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_COMPACT, &compact, "nobody", 0), STATE_OK);
        /* Who may not write does not raise the alarm of the quota either. */
        CHECK_EQ(ask(ADMIT_DOOR, CMD_PUT, &put, "nobody", 1), STATE_OK);
        s.auth.enabled = false;
        CHECK_EQ(ask(ADMIT_DOOR, CMD_PUT, &put, "nobody", 1), STATE_E_NOSPACE);
        state_fini(&s);
}

/* Changes of users went into the log before, to be refused there. */
TEST(whatever_grows_is_measured_at_the_door)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__AuthRoleAddRequest role = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        state_init(&s);
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
        c.role_add = &role;
        CHECK_EQ(ask(ADMIT_DOOR, CMD_AUTH, &c, "", 100), STATE_E_NOSPACE);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_AUTH, &c, "", 1000), STATE_OK);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_GRANT, &grant, "", 100), STATE_E_NOSPACE);
        grant.ttl = INT64_MAX; /* which is not multiplied */
        CHECK(state_grant_ttl_ms(&grant) > 0);
        CHECK_EQ(ask(ADMIT_DOOR, CMD_GRANT, &grant, "", 1000), STATE_E_TTL_TOO_LARGE);
        state_fini(&s);
}

/* What a replica says of itself is not checked, as before there was this order. */
TEST(a_member_names_itself_whatever_user_the_entry_has)
{
        Pb__Member q = PB__MEMBER__INIT;

        state_init(&s);
        s.auth.enabled = true;
        q.name = (char *) (uintptr_t) "a";
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_MEMBER, &q, "", 0), STATE_OK);
        CHECK_EQ(ask(ADMIT_APPLIED, CMD_MEMBER, &q, "nobody", 0), STATE_OK);
        s.auth.enabled = false;
        state_fini(&s);
}
