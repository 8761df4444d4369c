/* Whatever was accepted can be saved and loaded, and what is kept is counted. */
#include "../whole.h"
#include "test.h"

static enum state_outcome apply(struct state *s, enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = type};

        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(s, s->applied + 1, (struct lease_time){NSEC_PER_SEC});
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

static enum state_outcome grant(struct state *s, int64_t id, size_t name_len)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        cleanup_(freep) uint8_t *name = calloc(1, name_len + 1);

        memset(name, 'n', name_len);
        memcpy(name, &id, min_of(name_len, sizeof(id)));
        q.id = id;
        q.ttl_ms = 10000;
        q.name = pb_bytes(name, name_len);
        return apply(s, CMD_GRANT, &q.base);
}

static void load_again(struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};
        size_t n = state_bytes(s);

        state_save(s, &b);
        CHECK_EQ(buf_error(&b), 0);
        state_fini(s);
        CHECK_EQ(state_load(s, (struct view){b.data, buf_len(&b)}), 0);
        CHECK_EQ(state_bytes(s), n);
}

/* 4,194,305 leases could be granted, and never be loaded again. */
TEST(as_many_leases_as_are_granted_can_be_loaded)
{
        const uint32_t last = STATE_LEASES_MAX - 1;
        struct lease *l;
        struct state s;

        state_init(&s);
        CHECK_EQ(leases_add(&s.leases, 1, 10000, 1, NULL, 0, &last, &l), 0);
        CHECK_EQ(deadlines_set(&s.deadlines, last, (struct lease_time){1}), 0);
        load_again(&s);
        CHECK_EQ(leases_find(&s.leases, 1)->slot, last);
        CHECK_EQ(grant(&s, 2, 0), STATE_OK);
        CHECK_EQ(leases_find(&s.leases, 2)->slot, 0);
        s.leases.n += STATE_LEASES_MAX - 2; /* as if the slots between were taken */
        CHECK_EQ(grant(&s, 3, 0), STATE_E_LEASES_FULL);
        s.leases.n--;
        CHECK_EQ(grant(&s, 3, 0), STATE_OK);
        s.leases.n -= STATE_LEASES_MAX - 3;
        state_fini(&s);
}

/* 300 leases with names of 1.4 MB went 877 MiB past a quota of 64. */
TEST(leases_and_their_names_count)
{
        struct state s;
        size_t empty, with_one;

        state_init(&s);
        empty = state_bytes(&s);
        CHECK_EQ(grant(&s, 1, STATE_LEASE_NAME_MAX + 1), STATE_E_LEASE_NAME);
        CHECK_EQ(grant(&s, 1, STATE_LEASE_NAME_MAX), STATE_OK);
        with_one = state_bytes(&s);
        CHECK(with_one >= empty + STATE_LEASE_NAME_MAX);
        load_again(&s);
        CHECK_EQ(grant(&s, 2, 0), STATE_OK);
        CHECK(state_bytes(&s) > with_one);
        for (int64_t id = 1; id <= 2; id++) {
                Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

                q.id = id;
                CHECK_EQ(apply(&s, CMD_REVOKE, &q.base), STATE_OK);
        }
        CHECK_EQ(state_bytes(&s), empty);
        state_fini(&s);
}

static char *name_of(char *buf, const char *what, unsigned n)
{
        snprintf(buf, 64, "%s%u", what, n);
        return buf;
}

/* Users, roles and permissions, at random: what they cost is counted up and down alike. */
TEST(users_and_roles_count)
{
        struct state s;
        size_t most = 0;

        state_init(&s);
        for (unsigned i = 0; i < 3000; i++) {
                Pb__AuthUserAddRequest user = PB__AUTH_USER_ADD_REQUEST__INIT;
                Pb__AuthUserDeleteRequest no_user = PB__AUTH_USER_DELETE_REQUEST__INIT;
                Pb__AuthUserChangePasswordRequest pw =
                        PB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
                Pb__AuthUserGrantRoleRequest may = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
                Pb__AuthUserRevokeRoleRequest no_more = PB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;
                Pb__AuthRoleAddRequest role = PB__AUTH_ROLE_ADD_REQUEST__INIT;
                Pb__AuthRoleDeleteRequest no_role = PB__AUTH_ROLE_DELETE_REQUEST__INIT;
                Pb__AuthRoleGrantPermissionRequest perm =
                        PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
                Pb__AuthRoleRevokePermissionRequest no_perm =
                        PB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;
                Pb__Permission p = PB__PERMISSION__INIT;
                Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
                char u[64], r[64], k[64];

                user.name = no_user.name = pw.name = may.user = no_more.name =
                        name_of(u, "user", (unsigned) rnd(0, 5));
                role.name = no_role.role = may.role = no_more.role = perm.name = no_perm.role =
                        name_of(r, "a role ", (unsigned) rnd(0, 5));
                name_of(k, "key", (unsigned) rnd(0, 9));
                user.hashedpassword = pw.hashedpassword = rnd(0, 1) ? k : r;
                p.key = no_perm.key = pb_bytes(k, strlen(k));
                perm.perm = &p;
                c.change_case = (Pb__AuthChange__ChangeCase) rnd(
                        PB__AUTH_CHANGE__CHANGE_USER_ADD,
                        PB__AUTH_CHANGE__CHANGE_ROLE_REVOKE_PERMISSION);
                switch (c.change_case) {
                case PB__AUTH_CHANGE__CHANGE_USER_ADD:
                        c.user_add = &user;
                        break;
                case PB__AUTH_CHANGE__CHANGE_USER_DELETE:
                        c.user_delete = &no_user;
                        break;
                case PB__AUTH_CHANGE__CHANGE_USER_CHANGE_PASSWORD:
                        c.user_change_password = &pw;
                        break;
                case PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE:
                        c.user_grant_role = &may;
                        break;
                case PB__AUTH_CHANGE__CHANGE_USER_REVOKE_ROLE:
                        c.user_revoke_role = &no_more;
                        break;
                case PB__AUTH_CHANGE__CHANGE_ROLE_ADD:
                        c.role_add = &role;
                        break;
                case PB__AUTH_CHANGE__CHANGE_ROLE_DELETE:
                        c.role_delete = &no_role;
                        break;
                case PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION:
                        c.role_grant_permission = &perm;
                        break;
                case PB__AUTH_CHANGE__CHANGE_ROLE_REVOKE_PERMISSION:
                        c.role_revoke_permission = &no_perm;
                        break;
                default:
                        continue;
                }
                (void) apply(&s, CMD_AUTH, &c.base);
                most = max_of(most, s.auth.bytes);
                if (i % 100 == 0)
                        load_again(&s); /* which counts from nothing */
        }
        CHECK(most > 0);
        state_fini(&s);
}

TEST(users_and_roles_have_bounds)
{
        Pb__AuthUserAddRequest user = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        char name[AUTH_NAME_MAX + 2];
        struct state s;

        state_init(&s);
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
        c.user_add = &user;
        user.name = name;
        memset(name, 'x', sizeof(name));
        name[AUTH_NAME_MAX + 1] = '\0';
        CHECK_EQ(apply(&s, CMD_AUTH, &c.base), STATE_E_AUTH_NAME);
        name[AUTH_NAME_MAX] = '\0';
        CHECK_EQ(apply(&s, CMD_AUTH, &c.base), STATE_OK);
        for (unsigned i = 1; i < AUTH_USERS_MAX; i++) {
                snprintf(name, sizeof(name), "%u", i);
                CHECK_EQ(apply(&s, CMD_AUTH, &c.base), STATE_OK);
        }
        snprintf(name, sizeof(name), "one more");
        CHECK_EQ(apply(&s, CMD_AUTH, &c.base), STATE_E_AUTH_FULL);
        load_again(&s);
        state_fini(&s);
}

/* An alarm stops all writes, and each write looks at them: any number may be asked for. */
TEST(alarms_have_a_bound)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;
        struct state s;

        state_init(&s);
        q.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
        q.alarm = PB__ALARM_TYPE__CORRUPT;
        for (q.memberid = 1; q.memberid < 1000; q.memberid++)
                CHECK_EQ(apply(&s, CMD_ALARM, &q.base), STATE_OK);
        CHECK(s.n_alarms <= STATE_ALARMS_MAX);
        q.alarm = PB__ALARM_TYPE__NOSPACE;
        CHECK_EQ(apply(&s, CMD_ALARM, &q.base), STATE_OK);
        CHECK(state_alarmed(&s, PB__ALARM_TYPE__NOSPACE));
        s.cluster_version = CLUSTER_0_2;
        q.alarm = PB__ALARM_TYPE__CORRUPT;
        q.sibling = true;
        for (q.memberid = 2001; q.memberid < 2100; q.memberid++)
                CHECK_EQ(apply(&s, CMD_ALARM, &q.base), STATE_OK);
        CHECK_EQ(state_sibling(&s), 2001);
        CHECK(s.n_alarms <= STATE_ALARMS_MAX + 2);
        state_fini(&s);
}

/* ---- the quota ---- */

static enum state_outcome put_within(struct state *s, const char *key, size_t value_len,
                                     uint64_t origin, uint64_t quota)
{
        cleanup_(buf_fini) struct buf entry = {0}, body = {0};
        cleanup_(freep) uint8_t *value = calloc(1, value_len + 1);
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        const struct cmd_user who = {.login = 7};
        struct state_reply reply = {0};
        struct view at;
        struct cmd c;

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, value_len);
        pb_append(&body, &q.base);
        cmd_append(&entry, CMD_PUT, origin, 5, &who, quota, body.data, buf_len(&body));
        at = (struct view){entry.data, buf_len(&entry)};
        CHECK_EQ(cmd_next(&at, CLUSTER_NEWEST, &c), 0);
        CHECK_EQ(c.quota, quota);
        CHECK_EQ(c.origin, origin);
        CHECK_EQ(c.user.login, 7);
        CHECK_EQ(cmd_next(&at, CLUSTER_NEWEST, &c), -ENODATA);
        state_begin(s, s->applied + 1, (struct lease_time){NSEC_PER_SEC});
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

/* Puts @n keys, on the lease where it is not 0. */
static void put_some(struct state *s, unsigned n, int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        char key[16];

        q.value = pb_bytes("value", 5);
        q.lease = lease;
        for (unsigned i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "%c%05u", lease ? 'l' : 'k', i);
                q.key = pb_bytes(key, strlen(key));
                CHECK_EQ(apply(s, CMD_PUT, &q.base), STATE_OK);
        }
}

/* Applies in slices of @slice, each of which must make progress; returns how many it took. */
static unsigned apply_in(struct state *s, size_t slice, enum cmd_type type,
                         const struct buf *body, struct buf *out)
{
        struct state_reply reply = {.out = out};
        struct cmd c = {.type = type, .body = {buf_head(body), buf_len(body)}};
        unsigned n = 1;
        int r;

        pb__response_header__init(&reply.header);
        state_begin(s, s->applied + 1, (struct lease_time){NSEC_PER_SEC});
        for (;; n++) {
                struct budget left = {slice};
                size_t live = s->kv.n_keys, leases = s->leases.n,
                       history = s->kv.history_to - s->kv.history_from;
                int64_t revision = s->revision;

                r = state_apply_some(s, &c, &reply, &left);
                if (r <= 0)
                        break;
                CHECK(budget_is_spent(&left));
                /* For all of one deletion when all of it is done. */
                CHECK(s->revision == revision || type == CMD_EXPIRE);
                CHECK(n == 1 || s->kv.n_keys < live || s->leases.n < leases ||
                      s->kv.history_to - s->kv.history_from < history);
                CHECK(live - s->kv.n_keys <= slice);
        }
        CHECK_EQ(r, 0);
        CHECK_EQ(reply.outcome, STATE_OK);
        return n;
}

/* A deletion of 100,000 keys held the loop for 26 ms, for 115 with their values. */
TEST(many_keys_are_removed_in_slices)
{
        static const size_t slices[] = {1, 3, 100, 1000000};

        for (size_t i = 0; i < ARRAY_SIZE(slices); i++) {
                Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
                Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
                cleanup_(pb_freep) Pb__DeleteRangeResponse *p = NULL;
                cleanup_(buf_fini) struct buf body = {0}, out = {0}, again = {0}, expire = {0};
                unsigned n;
                struct state s;

                state_init(&s);
                CHECK_EQ(grant(&s, 9, 0), STATE_OK);
                put_some(&s, 500, 0);
                put_some(&s, 500, 9);
                del.key = pb_bytes("k", 1);
                del.range_end = pb_bytes("l", 1);
                del.prev_kv = true;
                pb_append(&body, &del.base);
                n = apply_in(&s, slices[i], CMD_DELETE_RANGE, &body, &out);
                CHECK(n >= 500 / slices[i] && n <= 3 + 2 * 504 / slices[i]);
                CHECK_EQ(pb_unpack(&pb__delete_range_response__descriptor,
                                   (struct view){buf_head(&out), buf_len(&out)}, &p),
                         0);
                CHECK_EQ(p->deleted, 500);
                CHECK_EQ(p->n_prev_kvs, 500);
                CHECK_EQ(p->header->revision, 1002);
                CHECK_EQ(bytes_cmp(p->prev_kvs[499]->key.data, 6, "k00499", 6), 0);
                CHECK_EQ(s.kv.n_keys, 500);
                revoke.id = 9;
                buf_clear(&body);
                pb_append(&body, &revoke.base);
                n = apply_in(&s, slices[i], CMD_REVOKE, &body, &again);
                CHECK(n >= 500 / slices[i] && n <= 2 + 2 * 504 / slices[i] + 1);
                CHECK_EQ(s.kv.n_keys, 0);
                CHECK_EQ(s.revision, 1003);
                CHECK_EQ(s.leases.n, 0);
                for (unsigned k = 0; k < 100; k++)
                        CHECK_EQ(grant(&s, 10 + k, 0), STATE_OK);
                put_some(&s, 50, 10);
                put_some(&s, 40, 60); /* which were on the other one */
                CHECK_EQ(state_expire(&s, (struct lease_time){20 * NSEC_PER_SEC},
                                      (struct lease_time){21 * NSEC_PER_SEC}, 1000, &expire),
                         100);
                n = apply_in(&s, slices[i], CMD_EXPIRE, &expire, NULL);
                CHECK(n >= 50 / slices[i]);
                CHECK_EQ(s.leases.n, 0);
                CHECK_EQ(s.kv.n_keys, 0);
                CHECK_EQ(s.revision, 1003 + 90 + 2);
                state_fini(&s);
        }
}

/* There may be four million. */
TEST(the_leases_of_a_forced_core_are_renewed_in_slices)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_DESCEND};
        struct state s;
        unsigned n = 1;

        state_init(&s);
        for (unsigned k = 0; k < 100; k++)
                CHECK_EQ(grant(&s, 10 + k, 0), STATE_OK);
        cmd_descend(&body, 8, 7);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(&s, s.applied + 1, (struct lease_time){NSEC_PER_SEC});
        for (struct budget left = {3}; state_apply_some(&s, &c, &reply, &left) > 0; n++) {
                CHECK(s.removal.on);
                CHECK_EQ(state_ancestor(&s, 8), 0);
                left = (struct budget){3};
        }
        CHECK(n >= 100 / 3);
        CHECK(!s.removal.on);
        CHECK_EQ(state_ancestor(&s, 8), 7);
        for (unsigned k = 0; k < 100; k++)
                CHECK_EQ(leases_find(&s.leases, 10 + k)->renewed, s.applied);
        state_fini(&s);
}

/* One revision may be 100,000 changes: to compact it held the loop for 22 ms. Nor do many
 * compactions in one entry add up. */
TEST(what_is_compacted_counts)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_COMPACT};
        struct budget left;
        size_t steps = 0;
        cleanup_(buf_fini) struct buf was = {0};
        struct state_saver sv = {0};
        struct state s;
        int r;

        state_init(&s);
        put_some(&s, 500, 0);
        del.key = pb_bytes("k", 1);
        del.range_end = pb_bytes("l", 1);
        CHECK_EQ(apply(&s, CMD_DELETE_RANGE, &del.base), STATE_OK);
        put_some(&s, 1, 0);
        /* A revision at a time... */
        for (q.revision = 3; q.revision < 503; q.revision++) {
                buf_clear(&body);
                pb_append(&body, &q.base);
                c.body = (struct view){buf_head(&body), buf_len(&body)};
                left.left = 1000;
                CHECK_EQ(state_apply_some(&s, &c, &reply, &left), 0);
                CHECK_EQ(reply.outcome, STATE_OK);
                CHECK(left.left < 1000);
                steps += 1000 - left.left;
        }
        CHECK(steps >= 5 * 500);
        CHECK_EQ(s.kv.n_all, 500); /* their deletion can still be watched */
        /* ...and the last one, of 500 changes, in slices; what is being saved is as it was. */
        state_save(&s, &was);
        buf_clear(&body);
        pb_append(&body, &q.base);
        c.body = (struct view){buf_head(&body), buf_len(&body)};
        state_save_start(&sv, &s);
        CHECK_EQ(state_save_more(&sv, 1), 1);
        left.left = 20;
        CHECK_EQ(state_apply_some(&s, &c, &reply, &left), 1);
        CHECK(s.removal.on);
        while ((r = state_save_more(&sv, 100)) == 1)
                ;
        CHECK_EQ(r, 0);
        CHECK_EQ(buf_len(&sv.out), buf_len(&was));
        CHECK(memcmp(buf_head(&sv.out), buf_head(&was), buf_len(&was)) == 0);
        state_saver_fini(&sv);
        CHECK(apply_in(&s, 7, CMD_COMPACT, &body, NULL) >= 480 / 7);
        CHECK_EQ(s.kv.n_all, 1);
        CHECK_EQ(s.kv.compacted, 503);
        state_fini(&s);
}

/* The one that would go past it is refused where it is applied, and those that raced with it,
 * however much each of them is; by the quota that its own replica has. */
TEST(nothing_goes_past_the_quota)
{
        const uint64_t quota = 100000;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__AlarmRequest disarm = PB__ALARM_REQUEST__INIT;
        unsigned accepted = 0;
        struct state s;

        state_init(&s);
        while (put_within(&s, "k", 9000, 42, quota) == STATE_OK) {
                CHECK(state_bytes(&s) <= quota);
                accepted++;
        }
        CHECK(accepted >= 9);
        CHECK_EQ(s.n_alarms, 1);
        CHECK_EQ(s.alarms[0].member, 42);
        CHECK_EQ(put_within(&s, "l", 1, 43, 10 * quota), STATE_E_NOSPACE); /* the alarm stays */
        CHECK_EQ(s.n_alarms, 1);
        del.key = pb_bytes("k", 1);
        CHECK_EQ(apply(&s, CMD_DELETE_RANGE, &del.base), STATE_OK);
        disarm.action = PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
        CHECK_EQ(apply(&s, CMD_ALARM, &disarm.base), STATE_OK);
        CHECK_EQ(put_within(&s, "k", 9000, 43, 10 * quota), STATE_OK);
        CHECK_EQ(put_within(&s, "k", 9000, 43, 0), STATE_OK); /* one without a quota */
        CHECK_EQ(put_within(&s, "k", 1, 42, quota), STATE_E_NOSPACE);
        load_again(&s);
        state_fini(&s);
}
