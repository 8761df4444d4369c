/*
 * Authentication: an administrator who adds a user and a role, switches authentication on and
 * off, grants and revokes, and changes the password; and users who log in, write and read,
 * where the role permits it and where it does not. All other clients have a certificate for
 * root.
 *
 * Nobody without a token writes while authentication is on. No write or read is carried out
 * that began after the permission for it was revoked, and none with a token from before the
 * last change of the password; nobody logs in with an old password; and nobody but the
 * administrator renews or revokes a lease that was granted to the administrator. The
 * administrator may not know whether a change was made: then nothing is checked until it is
 * certain again. What users watch is checked in listeners.c.
 *
 * Passwords are hashed by another function than crypt(3), which is slow on purpose, and random
 * numbers are those of the world.
 */
#include <crypt.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "asker.h"
#include "base/hash.h"
#include "listeners.h"

#define N_USERS 2
#define NAME "alice"
#define ROLE "writers"
#define OUTSIDE "other/key"
#define LEASE_TTL 20             /* s */
#define LATE (10 * NSEC_PER_SEC) /* a change is made by then, or never */

enum change {
        ROOT_ADD,
        ROOT_GRANT,
        ROLE_ADD,
        PERMIT,
        USER_ADD,
        GRANT,
        ENABLE,
        N_STEPS, /* the first of these are made in this order */
        FORBID = N_STEPS,
        REVOKE,
        PASSWORD,
        USER_DELETE,
        ROLE_DELETE,
        DISABLE,
        STATUS,
        USER_GET,
        USER_LIST,
        ROLE_GET,
        ROLE_LIST,
        GET_LEASE,
        SAY, /* what those hear who may */
        N_CHANGES
};

static struct admin_of_users {
        struct asker asker;
        enum change step, change;
        int64_t lease; /* that it asked for */
} admin;

/* Since when it is certain; 0: it is not. */
static struct {
        nsec_t on, forbidden, revoked, deleted;
        nsec_t changed;    /* the password ... */
        unsigned password; /* ... to this one */
        unsigned next;     /* the last one that was asked for */
        nsec_t unsure_until;
        int64_t lease; /* of the administrator; 0: none */
} known;

enum deed { LOGIN, LOGIN_OLD, LOGIN_WRONG, PUT, PUT_OUTSIDE, READ, RENEW, END, BARE };

static struct user {
        struct asker asker;
        enum deed deed;
        char token[512];
        unsigned password, asked_password; /* with which it logged in */
        unsigned shown;                    /* the number of the connection that has the token */
} users[N_USERS];

/* ---- in place of what is slow, or random ---- */

static struct rnd randomness;

/* [gcc 12] With -flto it does not see who calls them. */
#define called_ __attribute__((used))

called_ ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags);
called_ char *__wrap_crypt_gensalt_rn(const char *prefix, unsigned long count,
                                      const char *bytes, int n_bytes, char *out, int size);
called_ char *__wrap_crypt_rn(const char *phrase, const char *setting, void *data, int size);

ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags)
{
        uint8_t *to = p;

        (void) flags;
        for (size_t i = 0; i < n; i++)
                to[i] = (uint8_t) rnd_u64(&randomness);
        return (ssize_t) n;
}

char *__wrap_crypt_gensalt_rn(const char *prefix, unsigned long count, const char *bytes,
                              int n_bytes, char *out, int size)
{
        (void) prefix;
        (void) count;
        (void) bytes;
        (void) n_bytes;
        snprintf(out, (size_t) size, "$sim$%08x$", (unsigned) rnd_u64(&randomness));
        return out;
}

char *__wrap_crypt_rn(const char *phrase, const char *setting, void *data, int size)
{
        uint64_t h = hash_add(HASH_START, phrase, strlen(phrase));

        (void) size;
        h = hash_end(hash_add(h, setting, 14));
        snprintf(data, CRYPT_OUTPUT_SIZE, "%.14s%08x", setting, (unsigned) h);
        return data;
}

/* ---- the administrator ---- */

static void forget_all(void)
{
        unsigned next = known.next;

        memset(&known, 0, sizeof(known));
        known.next = next;
        known.unsure_until = W->now + LATE;
}

/* What may not be so any more from now on. */
static void before_change(enum change c)
{
        switch (c) {
        case PERMIT:
                known.forbidden = 0;
                break;
        case GRANT:
                known.revoked = 0;
                break;
        case USER_ADD:
                known.deleted = known.changed = 0;
                break;
        case PASSWORD:
                known.changed = 0;
                break;
        case DISABLE:
                known.on = 0;
                break;
        default:
                break;
        }
}

static void after_change(enum change c)
{
        switch (c) {
        case ENABLE:
                known.on = W->now;
                break;
        case FORBID:
        case ROLE_DELETE: /* which takes it from all users */
                known.forbidden = W->now;
                break;
        case REVOKE:
                known.revoked = W->now;
                break;
        case USER_DELETE:
                known.deleted = W->now;
                break;
        case USER_ADD:
        case PASSWORD:
                known.changed = W->now;
                known.password = known.next;
                break;
        case GET_LEASE: /* while there is no authentication, a lease is nobody's */
                if (known.on > 0 && known.on < admin.asker.asked_at)
                        known.lease = admin.lease;
                break;
        default:
                break;
        }
}

static const char *password_text(unsigned n)
{
        static char s[16];

        snprintf(s, sizeof(s), "secret%u", n);
        return s;
}

static void ask_auth(const char *method, const ProtobufCMessage *m)
{
        char path[64];

        snprintf(path, sizeof(path), "/etcdserverpb.Auth/%s", method);
        asker_ask(&admin.asker, path, m);
}

static void ask_of_user(enum change c)
{
        Pb__AuthUserAddRequest add = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__UserAddOptions options = PB__USER_ADD_OPTIONS__INIT;
        Pb__AuthUserGrantRoleRequest grant = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthUserRevokeRoleRequest revoke = PB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;
        Pb__AuthUserChangePasswordRequest password =
                PB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
        Pb__AuthUserDeleteRequest del = PB__AUTH_USER_DELETE_REQUEST__INIT;
        Pb__AuthUserGetRequest get = PB__AUTH_USER_GET_REQUEST__INIT;
        static char root[] = "root", name[] = NAME, role[] = ROLE;

        if (c == USER_ADD || c == PASSWORD)
                known.next++;
        options.no_password = true;
        add.name = c == ROOT_ADD ? root : name;
        add.options = c == ROOT_ADD ? &options : NULL;
        add.password = password.password = (char *) (uintptr_t) password_text(known.next);
        grant.user = c == ROOT_GRANT ? root : name;
        grant.role = c == ROOT_GRANT ? root : role;
        revoke.name = password.name = del.name = get.name = name;
        revoke.role = role;
        switch (c) {
        case ROOT_ADD:
        case USER_ADD:
                return ask_auth("UserAdd", &add.base);
        case ROOT_GRANT:
        case GRANT:
                return ask_auth("UserGrantRole", &grant.base);
        case REVOKE:
                return ask_auth("UserRevokeRole", &revoke.base);
        case PASSWORD:
                return ask_auth("UserChangePassword", &password.base);
        case USER_DELETE:
                return ask_auth("UserDelete", &del.base);
        default:
                return ask_auth("UserGet", &get.base);
        }
}

static void ask_of_role(enum change c)
{
        Pb__AuthRoleAddRequest add = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthRoleGrantPermissionRequest permit =
                PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__AuthRoleRevokePermissionRequest forbid =
                PB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;
        Pb__AuthRoleDeleteRequest del = PB__AUTH_ROLE_DELETE_REQUEST__INIT;
        Pb__AuthRoleGetRequest get = PB__AUTH_ROLE_GET_REQUEST__INIT;
        Pb__Permission perm = PB__PERMISSION__INIT;
        static char role[] = ROLE;

        perm.permtype = PB__PERMISSION__TYPE__READWRITE;
        perm.key = forbid.key = pb_bytes(USERS_KEYS, strlen(USERS_KEYS));
        perm.range_end = forbid.range_end = pb_bytes(USERS_END, strlen(USERS_END));
        add.name = permit.name = del.role = forbid.role = get.role = role;
        permit.perm = &perm;
        switch (c) {
        case ROLE_ADD:
                return ask_auth("RoleAdd", &add.base);
        case PERMIT:
                return ask_auth("RoleGrantPermission", &permit.base);
        case FORBID:
                return ask_auth("RoleRevokePermission", &forbid.base);
        case ROLE_DELETE:
                return ask_auth("RoleDelete", &del.base);
        default:
                return ask_auth("RoleGet", &get.base);
        }
}

static void say(void)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        char when[24];

        put.key = pb_bytes(USERS_SAID, strlen(USERS_SAID));
        put.value = pb_bytes(when, (size_t) snprintf(when, sizeof(when), "%" PRId64, W->now));
        asker_ask(&admin.asker, "/etcdserverpb.KV/Put", &put.base);
}

static void get_lease(void)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;

        grant.id = admin.lease = (int64_t) (rnd_u64(&W->rnd) >> 1);
        grant.ttl = LEASE_TTL;
        asker_ask(&admin.asker, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
}

static void admin_act(struct asker *a)
{
        Pb__AuthEnableRequest enable = PB__AUTH_ENABLE_REQUEST__INIT;
        Pb__AuthDisableRequest disable = PB__AUTH_DISABLE_REQUEST__INIT;
        Pb__AuthStatusRequest status = PB__AUTH_STATUS_REQUEST__INIT;
        Pb__AuthUserListRequest user_list = PB__AUTH_USER_LIST_REQUEST__INIT;
        Pb__AuthRoleListRequest role_list = PB__AUTH_ROLE_LIST_REQUEST__INIT;
        enum change c = admin.step < N_STEPS
                                ? admin.step
                                : (enum change) rnd_between(&W->rnd, ROLE_ADD, N_CHANGES - 1);

        (void) a;
        /* Mostly the user exists, and may write. */
        if (admin.step == N_STEPS && (c == USER_DELETE || c == ROLE_DELETE || c == DISABLE) &&
            chance(W, 60))
                c = ENABLE;
        if (admin.step == N_STEPS && chance(W, 30))
                c = SAY;
        admin.change = c;
        before_change(c);
        switch (c) {
        case ENABLE:
                return ask_auth("AuthEnable", &enable.base);
        case DISABLE:
                return ask_auth("AuthDisable", &disable.base);
        case STATUS:
                return ask_auth("AuthStatus", &status.base);
        case USER_LIST:
                return ask_auth("UserList", &user_list.base);
        case ROLE_LIST:
                return ask_auth("RoleList", &role_list.base);
        case GET_LEASE:
                return get_lease();
        case SAY:
                return say();
        case ROLE_ADD:
        case PERMIT:
        case FORBID:
        case ROLE_DELETE:
        case ROLE_GET:
                return ask_of_role(c);
        default:
                return ask_of_user(c);
        }
}

static void admin_answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        bool refused = code == RPC_FAILED_PRECONDITION || code == RPC_NOT_FOUND ||
                       code == RPC_INVALID_ARGUMENT;

        (void) m;
        a->act_at = W->now + some_time(W, 0, admin.step < N_STEPS ? 50 * MSEC : 400 * MSEC);
        if (lost || (code != RPC_OK && !refused)) {
                if (admin.change < STATUS)
                        forget_all();
                return;
        }
        if (code == RPC_OK && W->now >= known.unsure_until)
                after_change(admin.change);
        if (admin.step < N_STEPS)
                admin.step++;
}

static const struct asker_ops admin_ops = {.act = admin_act, .answered = admin_answered};

/* ---- users ---- */

static struct user *user_of(struct asker *a)
{
        return container_of(a, struct user, asker);
}

static void log_in(struct user *u)
{
        Pb__AuthenticateRequest q = PB__AUTHENTICATE_REQUEST__INIT;
        static char name[] = NAME, wrong[] = "guess";

        u->asked_password = u->deed == LOGIN_OLD ? known.next - (known.next > 1) : known.next;
        q.name = name;
        q.password = u->deed == LOGIN_WRONG
                             ? wrong
                             : (char *) (uintptr_t) password_text(u->asked_password);
        asker_ask(&u->asker, "/etcdserverpb.Auth/Authenticate", &q.base);
}

static void user_act(struct asker *a)
{
        static const enum deed deeds[] = {LOGIN, LOGIN, LOGIN_OLD, LOGIN_WRONG, PUT,
                                          PUT,   PUT,   PUT,       PUT_OUTSIDE, READ,
                                          READ,  RENEW, END};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__LeaseKeepAliveRequest keep = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        struct user *u = user_of(a);

        u->deed = deeds[rnd_between(&W->rnd, 0, ARRAY_SIZE(deeds) - 1)];
        if ((u->deed == RENEW || u->deed == END) && known.lease == 0)
                u->deed = READ;
        if (u->deed >= PUT && !*u->token)
                u->deed = chance(W, 70) ? LOGIN : BARE;
        if (*u->token && u->shown != a->link.number &&
            rpc_conn_set_token(a->link.client, u->token) == 0)
                u->shown = a->link.number;
        if (u->deed < PUT)
                return log_in(u);
        keep.id = revoke.id = known.lease;
        if (u->deed == RENEW)
                return asker_ask(a, "/etcdserverpb.Lease/LeaseKeepAlive", &keep.base);
        if (u->deed == END)
                return asker_ask(a, "/etcdserverpb.Lease/LeaseRevoke", &revoke.base);
        put.key = get.key = u->deed == PUT_OUTSIDE
                                    ? pb_bytes(OUTSIDE, strlen(OUTSIDE))
                                    : pb_bytes(USERS_KEYS "key", strlen(USERS_KEYS "key"));
        asker_ask(a, u->deed == READ ? "/etcdserverpb.KV/Range" : "/etcdserverpb.KV/Put",
                  u->deed == READ ? &get.base : &put.base);
}

static void on_login(struct user *u, struct view m)
{
        Pb__AuthenticateResponse *p = pb__authenticate_response__unpack(NULL, m.len, m.p);
        nsec_t asked_at = u->asker.asked_at;

        if (u->deed == LOGIN_WRONG)
                fail(W, "users: %s logged in with a wrong password", NAME);
        if (known.changed > 0 && known.changed < asked_at && u->asked_password < known.password)
                fail(W, "users: %s logged in with a password from before %.3f s", NAME,
                     (double) known.changed / 1e9);
        if (known.deleted > 0 && known.deleted < asked_at)
                fail(W, "users: %s logged in, and was deleted at %.3f s", NAME,
                     (double) known.deleted / 1e9);
        snprintf(u->token, sizeof(u->token), "%s", p->token);
        u->password = u->asked_password;
        u->shown = 0;
        W->counts.logins++;
        pb_free(p);
}

/* 0: never. */
static nsec_t earlier_of(nsec_t a, nsec_t b)
{
        return a > 0 && b > 0 ? min_of(a, b) : max_of(a, b);
}

nsec_t users_forbidden_since(void)
{
        nsec_t since = earlier_of(known.forbidden, earlier_of(known.revoked, known.deleted));

        return since > 0 && known.on > 0 ? max_of(since, known.on) : 0;
}

const char *users_token(void)
{
        return users[0].token;
}

/* Since when it was certainly forbidden; 0: it may have been permitted. */
static nsec_t forbidden_since(const struct user *u)
{
        nsec_t since = users_forbidden_since();

        if (u->deed >= RENEW || u->deed == PUT_OUTSIDE)
                return known.on;
        if (u->password < known.password && known.on > 0)
                since = earlier_of(since, max_of(known.changed, known.on));
        return since;
}

/* Whether a lease was renewed that has not ended. */
static bool has_renewed(struct view m)
{
        Pb__LeaseKeepAliveResponse *p = pb__lease_keep_alive_response__unpack(NULL, m.len, m.p);
        bool did = p && p->ttl > 0;

        pb_free(p);
        return did;
}

static const char *const deed_names[] = {[PUT] = "write",
                                         [PUT_OUTSIDE] = "write",
                                         [READ] = "read",
                                         [RENEW] = "renewal of another user's lease",
                                         [END] = "revocation of another user's lease",
                                         [BARE] = "write without a token"};

static void user_answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct user *u = user_of(a);
        nsec_t since = forbidden_since(u);

        a->act_at = W->now + some_time(W, 0, 150 * MSEC);
        if (code == RPC_UNAUTHENTICATED || (code != RPC_OK && chance(W, 10)))
                u->token[0] = '\0';
        if (!*u->token && u->shown == a->link.number)
                a->link.broken = true; /* another connection shows no token */
        if (lost || code != RPC_OK) {
                W->counts.denied += code == RPC_PERMISSION_DENIED;
                return;
        }
        if (u->deed < PUT)
                return on_login(u, m);
        if (since > 0 && since < a->asked_at && (u->deed != RENEW || has_renewed(m)))
                fail(W, "users: a %s was carried out that was forbidden since %.3f s",
                     deed_names[u->deed], (double) since / 1e9);
        W->counts.permitted++;
}

static const struct asker_ops user_ops = {.act = user_act, .answered = user_answered};

/* ---- ---- */

void users_begin(struct world *w)
{
        rnd_init(&randomness, w->seed);
        memset(&known, 0, sizeof(known));
        listeners_begin(w);
        if (!w->restricted)
                return;
        admin = (struct admin_of_users){.step = ROOT_ADD};
        asker_begin(&admin.asker, 0, &admin_ops);
        for (unsigned i = 0; i < N_USERS; i++) {
                users[i] = (struct user){0};
                asker_begin(&users[i].asker, i, &user_ops);
                users[i].asker.link.nameless = true;
        }
}
