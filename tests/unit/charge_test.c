/* What the quota counts: part of the meaning of the log, so the numbers here stay as they are.
 * A replica of any version, on any machine, has to count the same (charge.h). */
#include "../whole.h"
#include "state/state.h"
#include "test.h"

static struct state s;

static enum state_outcome apply(enum cmd_type type, const ProtobufCMessage *m, uint64_t quota)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = type, .origin = 1, .quota = quota};

        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(&s, s.applied + 1, (struct lease_time){NSEC_PER_SEC});
        CHECK_EQ(state_apply(&s, &c, &reply), 0);
        return reply.outcome;
}

/* By how much the state grows. */
static size_t adds(enum cmd_type type, const ProtobufCMessage *m)
{
        size_t before = state_bytes(&s);

        CHECK_EQ(apply(type, m, 0), STATE_OK);
        return state_bytes(&s) - before;
}

static Pb__PutRequest put_of(const char *key, const char *value)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, strlen(value));
        return q;
}

TEST(keys_versions_and_leases_are_charged_as_in_0_1_0)
{
        Pb__PutRequest put = put_of("key", "value");
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__CacheTerm cache = PB__CACHE_TERM__INIT;

        state_init(&s);
        CHECK_EQ(adds(CMD_PUT, &put.base), 104 + 3 + 72 + 5);
        CHECK_EQ(adds(CMD_PUT, &put.base), 72 + 5);
        grant.id = 7;
        grant.ttl_ms = 10000;
        grant.name = pb_bytes("name", 4);
        CHECK_EQ(adds(CMD_GRANT, &grant.base), 168 + 4);
        cache.key = pb_bytes("from", 4);
        cache.range_end = pb_bytes("to", 2);
        cache.issuer = 1;
        cache.term_ms = 1000;
        CHECK_EQ(adds(CMD_CACHE, &cache.base), 344 + 4 + 2);
        state_fini(&s);
}

static size_t change_adds(Pb__AuthChange__ChangeCase what, void *change)
{
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        c.change_case = what;
        c.role_add = change; /* all are pointers in one union */
        return adds(CMD_AUTH, &c.base);
}

TEST(users_and_roles_are_charged_as_in_0_1_0)
{
        Pb__AuthUserAddRequest user = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthRoleAddRequest role = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthUserGrantRoleRequest has = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthRoleGrantPermissionRequest may = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__Permission range = PB__PERMISSION__INIT;
        char ann[] = "ann", hash[] = "$y$hash", writer[] = "writer";

        state_init(&s);
        user.name = has.user = ann;
        user.hashedpassword = hash;
        role.name = has.role = may.name = writer;
        may.perm = &range;
        range.key = pb_bytes("from", 4);
        range.range_end = pb_bytes("to", 2);
        CHECK_EQ(change_adds(PB__AUTH_CHANGE__CHANGE_USER_ADD, &user), 88 + 3 + 7);
        CHECK_EQ(change_adds(PB__AUTH_CHANGE__CHANGE_ROLE_ADD, &role), 48 + 6);
        CHECK_EQ(change_adds(PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE, &has), 24 + 6);
        CHECK_EQ(change_adds(PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION, &may), 72 + 4 + 2);
        state_fini(&s);
}

TEST(the_owner_of_a_lease_is_charged_as_in_0_1_0)
{
        struct lease *l;
        size_t before;

        state_init(&s);
        CHECK_EQ(leases_add(&s.leases, 1, 10000, 1, NULL, 0, NULL, &l), 0);
        before = state_bytes(&s);
        CHECK_EQ(leases_set_owner(&s.leases, l, (struct view){(const uint8_t *) "ann", 3}), 0);
        CHECK_EQ(state_bytes(&s) - before, 16 + 3);
        state_fini(&s);
}

/* 2,000 puts of 184 bytes each, by a quota of 256 KiB. */
TEST(each_replica_refuses_the_same_puts)
{
        unsigned accepted = 0;

        state_init(&s);
        for (unsigned i = 0; i < 2000; i++) {
                char key[16];
                Pb__PutRequest q;

                snprintf(key, sizeof(key), "k%06u", i);
                q = put_of(key, "v");
                accepted += apply(CMD_PUT, &q.base, 256 << 10) == STATE_OK;
        }
        CHECK_EQ(accepted, 1424);
        state_fini(&s);
}

static size_t room_for(enum cmd_type type, const void *m)
{
        struct state_admission a = {.at = ADMIT_DOOR};
        struct cmd c = {.type = type};
        struct budget left = BUDGET_ALL;

        state_init(&s);
        CHECK_EQ(state_admit(&s, &c, m, &left, &a), 0);
        state_fini(&s);
        return a.room;
}

TEST(grants_and_changes_of_users_need_room_as_in_0_1_0)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__AuthRoleAddRequest role = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        grant.name = pb_bytes("name", 4);
        CHECK_EQ(room_for(CMD_GRANT, &grant), 192 + 4);
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
        c.role_add = &role;
        CHECK_EQ(room_for(CMD_AUTH, &c), 256 + 2);
}
