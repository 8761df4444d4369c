#include "../whole.h"
#include "compares.h"
#include "etcd/token.h"
#include "state/permit.h"
#include "state/state.h"
#include "test.h"

#define NOW ((struct lease_time){100 * NSEC_PER_SEC})

static uint64_t next_index;

static enum state_outcome apply_as(struct state *s, const char *user, uint64_t login,
                                   enum cmd_type type, const void *body, size_t n)
{
        struct state_reply reply = {0};
        struct cmd c = {.type = type, .body = {body, n}};

        if (user) {
                c.by_user = true;
                c.user = (struct cmd_user){.name = {(const uint8_t *) user, strlen(user)},
                                           .login = login};
        }
        state_begin(s, ++next_index, NOW);
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

static enum state_outcome apply(struct state *s, const char *user, enum cmd_type type,
                                const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf body = {0};

        pb_append(&body, m);
        return apply_as(s, user, 0, type, body.data, buf_len(&body));
}

static enum state_outcome put(struct state *s, const char *user, const char *key, int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, strlen(key));
        q.lease = lease;
        return apply(s, user, CMD_PUT, &q.base);
}

static void change(struct state *s, const Pb__AuthChange *c)
{
        CHECK_EQ(apply(s, NULL, CMD_AUTH, &c->base), STATE_OK);
}

static void grant_role(struct state *s, const char *user, const char *role)
{
        Pb__AuthUserGrantRoleRequest g = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        g.user = (char *) (uintptr_t) user;
        g.role = (char *) (uintptr_t) role;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE;
        c.user_grant_role = &g;
        change(s, &c);
}

static void add_user(struct state *s, const char *name, const char *role)
{
        Pb__AuthUserAddRequest add = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        char hash[] = "$y$of no password";

        add.name = (char *) (uintptr_t) name;
        add.hashedpassword = hash;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
        c.user_add = &add;
        change(s, &c);
        grant_role(s, name, role);
}

static void add_role(struct state *s, const char *name)
{
        Pb__AuthRoleAddRequest add = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        add.name = (char *) (uintptr_t) name;
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
        c.role_add = &add;
        change(s, &c);
}

static void permit(struct state *s, const char *role, Pb__Permission__Type type,
                   ProtobufCBinaryData key, ProtobufCBinaryData range_end)
{
        Pb__AuthRoleGrantPermissionRequest grant = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__Permission p = PB__PERMISSION__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        p.permtype = type;
        p.key = key;
        p.range_end = range_end;
        grant.name = (char *) (uintptr_t) role;
        grant.perm = &p;
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION;
        c.role_grant_permission = &grant;
        change(s, &c);
}

static void switch_on(struct state *s)
{
        Pb__AuthEnableChange e = PB__AUTH_ENABLE_CHANGE__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        uint8_t secret[AUTH_SECRET_LEN] = {1, 2, 3};

        add_user(s, "root", "root");
        e.secret = pb_bytes(secret, sizeof(secret));
        c.change_case = PB__AUTH_CHANGE__CHANGE_ENABLE;
        c.enable = &e;
        change(s, &c);
}

/* A state in which `ann` may write below "a", and auth is on. */
static void begin(struct state *s)
{
        state_init(s);
        next_index = 0;
        add_role(s, "writer");
        permit(s, "writer", PB__PERMISSION__TYPE__WRITE, pb_bytes("a", 1), pb_bytes("b", 1));
        add_user(s, "ann", "writer");
        switch_on(s);
}

TEST(a_command_is_permitted_where_it_is_applied)
{
        struct state s;

        begin(&s);
        CHECK_EQ(put(&s, "ann", "a1", 0), STATE_OK);
        CHECK_EQ(put(&s, "ann", "b1", 0), STATE_E_DENIED);
        CHECK_EQ(put(&s, "", "a1", 0), STATE_E_USER_EMPTY);
        CHECK_EQ(put(&s, "eve", "a1", 0), STATE_E_DENIED);
        CHECK_EQ(put(&s, "root", "b1", 0), STATE_OK);
        CHECK_EQ(put(&s, NULL, "b1", 0), STATE_OK); /* the core itself */
        state_fini(&s);
}

TEST(a_login_ends_with_its_password)
{
        Pb__AuthUserChangePasswordRequest q = PB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};
        char name[] = "ann", hash[] = "another";
        struct state s;
        uint64_t login;

        begin(&s);
        p.key = pb_bytes("a1", 2);
        pb_append(&body, &p.base);
        login = auth_user_find(&s.auth, "ann")->login;
        CHECK(login != 0);
        CHECK_EQ(apply_as(&s, "ann", login, CMD_PUT, body.data, buf_len(&body)), STATE_OK);
        q.name = name;
        q.hashedpassword = hash;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_CHANGE_PASSWORD;
        c.user_change_password = &q;
        change(&s, &c);
        CHECK_EQ(apply_as(&s, "ann", login, CMD_PUT, body.data, buf_len(&body)), STATE_E_TOKEN);
        CHECK_EQ(apply_as(&s, "ann", 0, CMD_PUT, body.data, buf_len(&body)), STATE_OK);
        state_fini(&s);
}

static void grant(struct state *s, const char *user, int64_t id)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = 1000;
        CHECK_EQ(apply(s, user, CMD_GRANT, &q.base), STATE_OK);
}

/* lessons.md A17, A19: with auth on, and after a snapshot, the core's own commands need no
 * permission. */
TEST(a17_a19_leases_are_renewed_and_expire_with_auth_on)
{
        cleanup_(buf_fini) struct buf snapshot = {0}, body = {0};
        struct cmd_slots slots;
        struct state s, t;

        begin(&s);
        grant(&s, "ann", 5);
        grant(&s, "ann", 6);
        CHECK_EQ(put(&s, "ann", "a5", 5), STATE_OK);
        CHECK_EQ(put(&s, "ann", "a6", 6), STATE_OK);
        state_save(&s, &snapshot);
        state_fini(&s);
        CHECK_EQ(state_load(&t, (struct view){snapshot.data, buf_len(&snapshot)}), 0);
        CHECK(t.auth.enabled);

        cmd_renew_begin(&body, &slots, t.applied);
        cmd_renew_add(&body, &slots, leases_find(&t.leases, 6)->slot, 0);
        state_begin(&t, t.applied, lease_time_add(NOW, 900 * NSEC_PER_MSEC));
        CHECK_EQ(apply_as(&t, NULL, 0, CMD_RENEW, body.data, buf_len(&body)), STATE_OK);
        buf_clear(&body);
        CHECK_EQ(state_expire(&t, lease_time_add(NOW, 1001 * NSEC_PER_MSEC), LEASE_TIME_NEVER,
                              10, &body),
                 1);
        CHECK_EQ(apply_as(&t, NULL, 0, CMD_EXPIRE, body.data, buf_len(&body)), STATE_OK);
        CHECK(!leases_find(&t.leases, 5));
        CHECK(leases_find(&t.leases, 6));
        CHECK(!kv_live(kv_find(&t.kv, "a5", 2)));
        CHECK(kv_live(kv_find(&t.kv, "a6", 2)));
        state_fini(&t);
}

/* lessons.md A43: whoever attaches a key to a lease can end it, and the keys of others. */
TEST(a43_a_lease_belongs_to_its_keys)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        struct state s;

        begin(&s);
        grant(&s, "ann", 7);
        CHECK_EQ(put(&s, "root", "secret", 7), STATE_OK);
        CHECK_EQ(put(&s, "ann", "a1", 7), STATE_E_DENIED);
        p.key = pb_bytes("a1", 2);
        p.lease = 7;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &p;
        txn.failure = ops;
        txn.n_failure = 1;
        CHECK_EQ(apply(&s, "ann", CMD_TXN, &txn.base), STATE_E_DENIED);
        q.id = 7;
        CHECK_EQ(apply(&s, "ann", CMD_REVOKE, &q.base), STATE_E_DENIED);
        CHECK(leases_find(&s.leases, 7));
        CHECK_EQ(apply(&s, "root", CMD_REVOKE, &q.base), STATE_OK);
        state_fini(&s);
}

TEST(a_snapshot_keeps_users_and_permissions)
{
        cleanup_(buf_fini) struct buf a = {0}, b = {0};
        struct state s, t;

        begin(&s);
        permit(&s, "writer", PB__PERMISSION__TYPE__READ, pb_bytes("", 0), pb_bytes("\0", 1));
        state_save(&s, &a);
        CHECK_EQ(state_load(&t, (struct view){a.data, buf_len(&a)}), 0);
        state_save(&t, &b);
        CHECK_EQ(buf_len(&a), buf_len(&b));
        CHECK(memcmp(a.data, b.data, buf_len(&a)) == 0);
        CHECK(strcmp(auth_user_find(&t.auth, "ann")->hash, "$y$of no password") == 0);
        CHECK_EQ(put(&t, "ann", "a1", 0), STATE_OK);
        CHECK_EQ(put(&t, "ann", "b1", 0), STATE_E_DENIED);
        state_fini(&t);
        /* Cut off anywhere, it is refused. */
        for (size_t n = 0; n < buf_len(&a); n++)
                if (state_load(&t, (struct view){a.data, n}) == 0) {
                        /* but where it ends as one did before there was auth */
                        CHECK_EQ(t.auth.n_users, 0);
                        state_fini(&t);
                }
        state_fini(&s);
}

/* All keys of up to three letters out of three, the smallest of which is the zero byte: if
 * permissions of keys of up to two letters leave a gap, one of these keys is in it. */
#define LETTERS 3
#define N_KEYS (1 + 3 + 9 + 27)

static size_t nth_key(unsigned i, uint8_t out[static 3])
{
        static const uint8_t letters[LETTERS] = {0, 'a', 'b'};
        unsigned n = 0, of = 1;

        while (i >= of) {
                i -= of;
                of *= LETTERS;
                n++;
        }
        for (unsigned j = 0; j < n; j++, i /= LETTERS)
                out[j] = letters[i % LETTERS];
        return n;
}

/* Some keys on a lease: it is permitted when each of them is. */
static enum state_outcome lease_of_some(struct state *s, const struct cmd_user *who,
                                        bool *ret_each)
{
        struct lease *l;

        *ret_each = true;
        CHECK_EQ(leases_add(&s->leases, 1, 1000, 1, NULL, 0, NULL, &l), 0);
        for (unsigned k = 1; k < N_KEYS; k++) {
                static const ProtobufCBinaryData none;
                Pb__PutRequest q = PB__PUT_REQUEST__INIT;
                uint8_t key[3];

                if (rnd(0, 2) > 0)
                        continue;
                q.key = pb_bytes(key, nth_key(k, key));
                q.lease = 1;
                CHECK_EQ(apply(s, NULL, CMD_PUT, &q.base), STATE_OK);
                *ret_each = *ret_each &&
                            permit_range(s, who, &q.key, &none, PERMIT_READ) == STATE_OK;
        }
        return permit_lease(s, who, 1, PERMIT_READ, NULL);
}

TEST(several_permissions_together_cover_a_range)
{
        unsigned permitted = 0, of_lease = 0;

        for (int round = 0; round < 3000; round++) {
                struct state s;
                const char *roles[] = {"r0", "r1"};
                uint8_t from[6][3], to[6][3];
                size_t n = rnd(0, 5);
                struct cmd_user who = {.name = {(const uint8_t *) "bob", 3}};
                Pb__AuthUserGrantRoleRequest g = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
                Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
                char bob[] = "bob", r1[] = "r1";
                struct kv_span spans[6], wanted;
                ProtobufCBinaryData keys[6], ends[6];
                bool covered = true, holds_any = false, each;

                state_init(&s);
                next_index = 0;
                add_role(&s, "r0");
                add_role(&s, "r1");
                add_user(&s, "bob", "r0");
                g.user = bob;
                g.role = r1;
                c.change_case = PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE;
                c.user_grant_role = &g;
                change(&s, &c);
                for (size_t i = 0; i <= n; i++) { /* the last range is the requested one */
                        keys[i] =
                                pb_bytes(from[i], nth_key((unsigned) rnd(i == n, 12), from[i]));
                        ends[i] = rnd(0, 2) == 0
                                          ? pb_bytes("", 0)
                                          : pb_bytes(to[i],
                                                     nth_key((unsigned) rnd(1, 12), to[i]));
                        spans[i] = kv_span(&keys[i], &ends[i]);
                        if (i < n)
                                permit(&s, roles[rnd(0, 1)],
                                       rnd(0, 1) ? PB__PERMISSION__TYPE__READ
                                                 : PB__PERMISSION__TYPE__READWRITE,
                                       keys[i], ends[i]);
                }
                switch_on(&s);
                wanted = spans[n];
                for (unsigned k = 0; k < N_KEYS; k++) {
                        uint8_t key[3];
                        size_t len = nth_key(k, key);
                        bool here = false;

                        if (!kv_span_has(&wanted, key, len))
                                continue;
                        holds_any = true;
                        for (size_t i = 0; i < n; i++)
                                here = here || kv_span_has(&spans[i], key, len);
                        covered = covered && here;
                }
                if (holds_any)
                        CHECK_EQ(permit_range(&s, &who, &keys[n], &ends[n], PERMIT_READ),
                                 covered ? STATE_OK : STATE_E_DENIED);
                permitted += holds_any && covered;
                CHECK_EQ(lease_of_some(&s, &who, &each), each ? STATE_OK : STATE_E_DENIED);
                of_lease += each;
                state_fini(&s);
        }
        CHECK(permitted > 100);
        CHECK(of_lease > 20);
}

/* A range over what 10,000 permissions give together was looked for as their square, 5.3 s of
 * one turn; and one key of them took 0.9 ms. Once they are put together, neither looks at many.
 */
TEST(many_permissions_are_not_looked_at_each)
{
        enum { ROLES = 3, EACH = 300 };
        struct cmd_user who = {.name = {(const uint8_t *) "bob", 3}};
        ProtobufCBinaryData key, end;
        char role[] = "r0", bob[] = "bob", from[8], to[8];
        uint64_t was;
        struct state s;

        state_init(&s);
        next_index = 0;
        add_role(&s, role);
        add_user(&s, bob, role);
        for (unsigned i = 0; i < ROLES; i++) {
                Pb__AuthUserGrantRoleRequest g = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
                Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

                role[1] = (char) ('0' + i);
                if (i > 0)
                        add_role(&s, role);
                g.user = bob;
                g.role = role;
                c.change_case = PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE;
                c.user_grant_role = &g;
                change(&s, &c);
                for (unsigned j = 0; j < EACH; j++) {
                        unsigned at = j * ROLES + i;

                        snprintf(from, sizeof(from), "k%04u", at);
                        snprintf(to, sizeof(to), "k%04u", at + 1);
                        permit(&s, role, PB__PERMISSION__TYPE__READ, pb_bytes(from, 5),
                               pb_bytes(to, 5));
                }
        }
        switch_on(&s);
        key = pb_bytes("k0000", 5);
        end = pb_bytes("k0900", 5);
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_READ), STATE_OK);
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_WRITE), STATE_E_DENIED);
        was = compares();
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_READ), STATE_OK);
        end = pb_bytes("k0901", 5);
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_READ), STATE_E_DENIED);
        end = pb_bytes("", 0);
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_READ), STATE_OK);
        CHECK(compares() - was < 200);
        /* After a change of the permissions, the check uses the new ones. */
        permit(&s, role, PB__PERMISSION__TYPE__READ, pb_bytes("k0900", 5),
               pb_bytes("k0901", 5));
        end = pb_bytes("k0901", 5);
        CHECK_EQ(permit_range(&s, &who, &key, &end, PERMIT_READ), STATE_OK);
        state_fini(&s);
}

/* The wire lets through any number; a snapshot keeps a byte of it. 258 permitted nothing, and
 * became READWRITE where a snapshot was loaded. Such a type is refused where it comes in. If an
 * earlier version has let it into the log, it is applied, as by every version, and means the
 * same after a snapshot: nothing. */
TEST(a_permission_of_an_unknown_type_is_refused)
{
        const int types[] = {-1, 3, 254, 256, 258, INT32_MAX};
        Pb__AuthRoleGrantPermissionRequest grant = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        cleanup_(buf_fini) struct buf snapshot = {0};
        Pb__Permission p = PB__PERMISSION__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        char role[] = "some", ann[] = "ann";
        struct state s, loaded;
        uint64_t was;

        state_init(&s);
        next_index = 0;
        add_role(&s, role);
        add_user(&s, ann, role);
        grant.name = role;
        grant.perm = &p;
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION;
        c.role_grant_permission = &grant;
        was = s.auth.revision;
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                char key[8];

                p.key = pb_bytes(key, (size_t) snprintf(key, sizeof(key), "k%04zu", i));
                p.permtype = (Pb__Permission__Type) types[i];
                CHECK_EQ(auth_check_permission(&p), STATE_E_PERMISSION_TYPE);
                CHECK_EQ(apply(&s, NULL, CMD_AUTH, &c.base), STATE_OK);
        }
        CHECK_EQ(s.auth.revision, was + ARRAY_SIZE(types));
        CHECK_EQ(auth_role_find(&s.auth, role)->n_permissions, ARRAY_SIZE(types));
        CHECK_EQ(auth_role_find(&s.auth, role)->permissions[1].type, 3);
        switch_on(&s);
        state_save(&s, &snapshot);
        CHECK_EQ(state_load(&loaded, (struct view){snapshot.data, buf_len(&snapshot)}), 0);
        CHECK_EQ(state_hash(&s), state_hash(&loaded));
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                char key[8];

                snprintf(key, sizeof(key), "k%04zu", i);
                CHECK_EQ(put(&s, ann, key, 0), STATE_E_DENIED);
                CHECK_EQ(put(&loaded, ann, key, 0), STATE_E_DENIED);
        }
        state_fini(&loaded);
        state_fini(&s);
}

/* A role that may write @n keys with gaps between them. */
static void permit_apart(struct state *s, const char *role, unsigned n)
{
        char key[8];

        add_role(s, role);
        for (unsigned i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "k%04u", i);
                permit(s, role, PB__PERMISSION__TYPE__WRITE, pb_bytes(key, 5), pb_bytes("", 0));
        }
}

static enum state_outcome may_write(const struct state *s, const char *user)
{
        struct cmd_user who = {.name = {(const uint8_t *) user, strlen(user)}};
        ProtobufCBinaryData key = pb_bytes("k0007", 5), end = pb_bytes("", 0);

        return permit_range(s, &who, &key, &end, PERMIT_WRITE);
}

/* Their ranges are combined once, in one place, and anew only when a permission changes. */
TEST(users_with_the_same_roles_share_what_these_permit)
{
        Pb__AuthUserChangePasswordRequest p = PB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
        Pb__AuthRoleRevokePermissionRequest f = PB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;
        Pb__AuthUserRevokeRoleRequest v = PB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        char ann[] = "ann", hash[] = "$y$another", role[] = "writer";
        struct state s;
        uint64_t was;

        state_init(&s);
        next_index = 0;
        permit_apart(&s, role, 300);
        add_user(&s, ann, role);
        add_user(&s, "bob", role);
        add_user(&s, "cat", role);
        switch_on(&s);
        CHECK_EQ(may_write(&s, ann), STATE_OK);
        was = compares();
        CHECK_EQ(may_write(&s, "bob"), STATE_OK);
        CHECK(compares() - was < 200);
        p.name = ann;
        p.hashedpassword = hash;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_CHANGE_PASSWORD;
        c.user_change_password = &p;
        change(&s, &c);
        was = compares();
        CHECK_EQ(may_write(&s, ann), STATE_OK);
        CHECK_EQ(may_write(&s, "bob"), STATE_OK);
        CHECK(compares() - was < 200);
        /* One loses the role, and the others keep it. */
        v.name = ann;
        v.role = role;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_REVOKE_ROLE;
        c.user_revoke_role = &v;
        change(&s, &c);
        CHECK_EQ(may_write(&s, ann), STATE_E_DENIED);
        CHECK_EQ(may_write(&s, "bob"), STATE_OK);
        CHECK_EQ(may_write(&s, "cat"), STATE_OK);
        permit(&s, role, PB__PERMISSION__TYPE__READ, pb_bytes("k0007", 5), pb_bytes("", 0));
        CHECK_EQ(may_write(&s, "bob"), STATE_E_DENIED);
        CHECK_EQ(may_write(&s, "cat"), STATE_E_DENIED);
        /* One gets the role again, and then the role loses a permission. */
        permit(&s, role, PB__PERMISSION__TYPE__WRITE, pb_bytes("k0007", 5), pb_bytes("", 0));
        CHECK_EQ(may_write(&s, ann), STATE_E_DENIED);
        CHECK_EQ(may_write(&s, "bob"), STATE_OK);
        grant_role(&s, ann, role);
        CHECK_EQ(may_write(&s, ann), STATE_OK);
        f.role = role;
        f.key = pb_bytes("k0007", 5);
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_REVOKE_PERMISSION;
        c.role_revoke_permission = &f;
        change(&s, &c);
        was = compares();
        CHECK_EQ(may_write(&s, ann), STATE_E_DENIED);
        CHECK(compares() - was > 200); /* what was combined before borrows from what is gone */
        CHECK_EQ(may_write(&s, "bob"), STATE_E_DENIED);
        state_fini(&s);
}

/* 100 users with different roles, of 10,000 ranges each, took 91 MiB that nothing bounded. */
TEST(what_roles_permit_is_counted_and_forgotten)
{
        enum { ROLES = 20, USERS = 110, MAX = 2 << 20 };
        char name[16], key[8];
        struct state s;

        state_init(&s);
        next_index = 0;
        for (char r = 0; r < ROLES; r++) {
                snprintf(name, sizeof(name), "role-%d", r);
                add_role(&s, name);
                for (unsigned i = 0; i < AUTH_PERMISSIONS_MAX; i++) {
                        snprintf(key, sizeof(key), "%c%04u", 'a' + r, i);
                        permit(&s, name, PB__PERMISSION__TYPE__WRITE, pb_bytes(key, 5),
                               pb_bytes("", 0));
                }
        }
        for (unsigned u = 0; u < USERS; u++) {
                snprintf(name, sizeof(name), "own-%u", u);
                add_role(&s, name);
                add_user(&s, name, name);
                for (unsigned r = 0; r < ROLES; r++) {
                        snprintf(key, sizeof(key), "role-%u", r);
                        grant_role(&s, name, key);
                }
        }
        switch_on(&s);
        for (unsigned u = 0; u < 2 * USERS; u++) {
                snprintf(name, sizeof(name), "own-%u", u % USERS);
                CHECK_EQ(may_write(&s, name), STATE_OK);
                CHECK(s.auth.n_ranges <= MAX);
                if (u < 100)
                        CHECK_EQ(s.auth.n_ranges, (u + 1) * ROLES * AUTH_PERMISSIONS_MAX);
        }
        CHECK_EQ(may_write(&s, "own-0"), STATE_OK);
        state_fini(&s);
}

/* Each put that attaches to a lease is permitted if the lease's other keys are. */
TEST(a_txn_checks_the_keys_of_its_lease_once)
{
        enum { KEYS = 300, PUTS = 60 };
        Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__RequestOp op[PUTS], *ops[PUTS];
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__PutRequest puts[PUTS];
        char keys[PUTS][8], key[8];
        struct state s;
        uint64_t was;

        state_init(&s);
        next_index = 0;
        permit_apart(&s, "writer", KEYS);
        add_user(&s, "ann", "writer");
        switch_on(&s);
        g.id = 7;
        g.ttl = 600;
        CHECK_EQ(apply(&s, "ann", CMD_GRANT, &g.base), STATE_OK);
        for (unsigned i = 0; i < KEYS; i++) {
                snprintf(key, sizeof(key), "k%04u", i);
                CHECK_EQ(put(&s, NULL, key, 7), STATE_OK);
        }
        for (unsigned i = 0; i < PUTS; i++) {
                snprintf(keys[i], sizeof(keys[i]), "k%04u", i);
                pb__put_request__init(&puts[i]);
                puts[i].key = pb_bytes(keys[i], 5);
                puts[i].lease = 7;
                pb__request_op__init(&op[i]);
                op[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                op[i].request_put = &puts[i];
                ops[i] = &op[i];
        }
        q.success = ops;
        q.n_success = PUTS;
        CHECK_EQ(put(&s, "ann", "k0000", 7), STATE_OK);
        was = compares();
        CHECK_EQ(apply(&s, "ann", CMD_TXN, &q.base), STATE_OK);
        CHECK(compares() - was < 40000);
        /* A key that the user may not write denies all of it. */
        CHECK_EQ(put(&s, NULL, "z", 7), STATE_OK);
        CHECK_EQ(apply(&s, "ann", CMD_TXN, &q.base), STATE_E_DENIED);
        state_fini(&s);
}

static size_t steps_of(struct state *s, const char *user, enum cmd_type type,
                       const ProtobufCMessage *m, enum state_outcome expected)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd c = {.type = type, .by_user = true};
        struct budget left = {1000000};

        c.user.name = (struct view){(const uint8_t *) user, strlen(user)};
        pb_append(&body, m);
        c.body = (struct view){buf_head(&body), buf_len(&body)};
        state_begin(s, ++next_index, NOW);
        CHECK_EQ(state_apply_some(s, &c, &reply, &left), 0);
        CHECK_EQ(reply.outcome, expected);
        return 1000000 - left.left;
}

/* Many such commands are not applied in one turn. */
TEST(what_a_check_of_a_lease_costs_counts)
{
        enum { KEYS = 300 };
        Pb__LeaseRevokeRequest v = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        char key[8];
        struct state s;

        state_init(&s);
        next_index = 0;
        permit_apart(&s, "writer", KEYS);
        add_user(&s, "ann", "writer");
        switch_on(&s);
        g.id = v.id = p.lease = 7;
        g.ttl = 600;
        CHECK_EQ(apply(&s, "ann", CMD_GRANT, &g.base), STATE_OK);
        for (unsigned i = 0; i < KEYS; i++) {
                snprintf(key, sizeof(key), "k%04u", i);
                CHECK_EQ(put(&s, NULL, key, 7), STATE_OK);
        }
        p.key = pb_bytes("k0000", 5);
        CHECK(steps_of(&s, "ann", CMD_PUT, &p.base, STATE_OK) >= KEYS);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &p;
        q.success = ops;
        q.n_success = 1;
        CHECK(steps_of(&s, "ann", CMD_TXN, &q.base, STATE_OK) >= KEYS);
        p.lease = 0;
        CHECK(steps_of(&s, "ann", CMD_PUT, &p.base, STATE_OK) < 30);
        CHECK_EQ(put(&s, NULL, "z", 7), STATE_OK);
        CHECK(steps_of(&s, "ann", CMD_REVOKE, &v.base, STATE_E_DENIED) >= KEYS - 1);
        state_fini(&s);
}

TEST(a_token_is_for_one_user_until_its_end)
{
        cleanup_(buf_fini) struct buf token = {0}, name = {0};
        struct lease_time end = lease_time_add(NOW, 10 * NSEC_PER_SEC);
        const struct auth_user *ann;
        struct state s;
        uint64_t login;
        char *text;

        begin(&s);
        ann = auth_user_find(&s.auth, "ann");
        token_make(&s.auth, ann, end, &token);
        buf_add_u8(&token, 0);
        text = (char *) buf_head(&token);
        CHECK_EQ(token_read(&s.auth, text, NOW, &name, &login), 0);
        CHECK_EQ(login, ann->login);
        CHECK(buf_len(&name) == 3 && memcmp(buf_head(&name), "ann", 3) == 0);
        CHECK_EQ(token_read(&s.auth, text, end, &name, &login), -EKEYREJECTED);
        for (char *p = text; *p; p++) {
                char before = *p;

                *p = before == '0' ? '1' : '0';
                CHECK_EQ(token_read(&s.auth, text, NOW, &name, &login), -EKEYREJECTED);
                *p = '\0';
                CHECK_EQ(token_read(&s.auth, text, NOW, &name, &login), -EKEYREJECTED);
                *p = before;
        }
        s.auth.secret[0]++;
        CHECK_EQ(token_read(&s.auth, text, NOW, &name, &login), -EKEYREJECTED);
        state_fini(&s);
}

static enum state_outcome grant_as(struct state *s, const char *user, int64_t id)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = 10000;
        return apply(s, user, CMD_GRANT, &q.base);
}

static enum state_outcome revoke_as(struct state *s, const char *user, int64_t id,
                                    enum lease_tie tie)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        q.id = id;
        q.tied = (int32_t) tie;
        return apply(s, user, CMD_REVOKE, &q.base);
}

static enum state_outcome owner(const struct state *s, const char *user, int64_t id,
                                enum lease_tie tie)
{
        const struct cmd_user who = {.name = {(const uint8_t *) user, strlen(user)},
                                     .login = 1};

        return permit_owner(s, &who, leases_find(&s->leases, id), tie);
}

/* Leases 1 and 2 are ann's, 1 a host's place; 3 was granted before auth was on. */
static void begin_with_leases(struct state *s)
{
        state_init(s);
        next_index = 0;
        CHECK_EQ(grant_as(s, "", 3), STATE_OK);
        add_role(s, "agents");
        permit(s, "agents", PB__PERMISSION__TYPE__READWRITE, pb_bytes("", 0),
               pb_bytes("\0", 1));
        add_user(s, "ann", "agents");
        add_user(s, "bob", "agents");
        switch_on(s);
        CHECK_EQ(grant_as(s, "ann", 1), STATE_OK);
        CHECK_EQ(grant_as(s, "ann", 2), STATE_OK);
        CHECK_EQ(put(s, "ann", "/tenure/default/nodes/a", 1), STATE_OK);
        CHECK_EQ(put(s, "ann", "/tenurf", 2), STATE_OK);
        CHECK_EQ(put(s, "ann", "/tenure/default/nodes/b", 3), STATE_OK);
}

TEST(a_place_is_renewed_and_revoked_by_who_granted_it)
{
        struct state s;

        begin_with_leases(&s);
        CHECK_EQ(owner(&s, "ann", 1, LEASE_TIE_AGENTS), STATE_OK); /* whatever the login */
        CHECK_EQ(owner(&s, "root", 1, LEASE_TIE_AGENTS), STATE_OK);
        CHECK_EQ(owner(&s, "bob", 1, LEASE_TIE_AGENTS), STATE_E_DENIED);
        CHECK_EQ(owner(&s, "", 1, LEASE_TIE_AGENTS), STATE_E_DENIED);
        CHECK_EQ(owner(&s, "bob", 1, LEASE_TIE_NONE), STATE_OK);
        CHECK_EQ(owner(&s, "bob", 2, LEASE_TIE_AGENTS), STATE_OK);
        CHECK_EQ(owner(&s, "bob", 2, LEASE_TIE_ALL), STATE_E_DENIED);
        CHECK_EQ(owner(&s, "bob", 3, LEASE_TIE_ALL), STATE_OK);

        CHECK_EQ(revoke_as(&s, "bob", 1, LEASE_TIE_AGENTS), STATE_E_DENIED);
        CHECK_EQ(revoke_as(&s, "bob", 2, LEASE_TIE_AGENTS), STATE_OK);
        CHECK_EQ(revoke_as(&s, "root", 1, LEASE_TIE_ALL), STATE_OK);
        CHECK_EQ(revoke_as(&s, "bob", 3, LEASE_TIE_ALL), STATE_OK);
        state_fini(&s);
}

/* A user who may attach to a lease, or end it, by its id may do the same by its name. */
TEST(a_name_permits_what_the_id_does)
{
        Pb__LeaseRevokeRequest end = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct state s;

        begin(&s);
        grant.id = 1;
        grant.ttl_ms = 10000;
        grant.name = end.name = q.lease_name = pb_bytes("n", 1);
        CHECK_EQ(apply(&s, "root", CMD_GRANT, &grant.base), STATE_OK);
        q.key = pb_bytes("a1", 2);
        q.lease = PB_LEASE_BY_NAME;
        CHECK_EQ(apply(&s, "ann", CMD_PUT, &q.base), STATE_OK); /* no key is on it */
        CHECK_EQ(put(&s, "root", "b1", 1), STATE_OK);
        for (int named = 0; named < 2; named++) {
                q.lease = named ? PB_LEASE_BY_NAME : 1;
                q.lease_name.len = end.name.len = (size_t) named;
                end.id = named ? 0 : 1;
                end.tied = LEASE_TIE_NONE;
                CHECK_EQ(apply(&s, "ann", CMD_PUT, &q.base), STATE_E_DENIED);
                CHECK_EQ(apply(&s, "ann", CMD_REVOKE, &end.base), STATE_E_DENIED);
                CHECK_EQ(apply(&s, "eve", CMD_REVOKE, &end.base), STATE_E_DENIED);
        }
        end.name = pb_bytes("m", 1);
        CHECK_EQ(apply(&s, "ann", CMD_REVOKE, &end.base), STATE_E_LEASE_NAME_NOT_FOUND);
        end.name = pb_bytes("n", 1);
        CHECK_EQ(apply(&s, "root", CMD_REVOKE, &end.base), STATE_OK);
        CHECK(!leases_find(&s.leases, 1));
        state_fini(&s);
}

/* A snapshot from before leases had owners is still accepted. */
TEST(a_snapshot_knows_who_granted_a_lease)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct state s, back;
        size_t n;

        begin_with_leases(&s);
        state_save(&s, &b);
        CHECK_EQ(state_load(&back, (struct view){b.data, buf_len(&b)}), 0);
        CHECK(state_hash(&back) == state_hash(&s));
        CHECK_EQ(state_bytes(&back), state_bytes(&s));
        CHECK_STR(leases_find(&back.leases, 1)->owner, "ann");
        CHECK_EQ(owner(&back, "bob", 1, LEASE_TIE_AGENTS), STATE_E_DENIED);
        state_fini(&back);

        n = buf_len(&b) - (8 + 2 * (4 + 1 + 3)); /* without the owners */
        CHECK_EQ(state_load(&back, (struct view){b.data, n}), 0);
        CHECK(!leases_find(&back.leases, 1)->owner);
        CHECK_EQ(owner(&back, "bob", 1, LEASE_TIE_AGENTS), STATE_OK);
        state_fini(&back);
        CHECK_EQ(state_load(&back, (struct view){b.data, buf_len(&b) - 1}), -EBADMSG);
        state_fini(&back);
        state_fini(&s);
}
