/*
 * Users, their roles, and what the roles permit: a part of the replicated state (state.h).
 *
 * A role permits ranges of keys to be read or written; a user has roles; the role root permits
 * everything. Pure, and the same on every replica: permissions are checked when a command is
 * applied, against the users and the leases' keys of that moment, so that nothing can change
 * between check and use. The core's own commands - expiry, renewals - are not checked (A17,
 * A19).
 *
 * Passwords are stored as crypt(5) made them; etcd/auth_methods.c checks them, and handles
 * tokens.
 */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "base/buf.h"
#include "state/charge.h"
#include "state/outcome.h"
#include "wire/pb.h"

#define AUTH_ROOT "root" /* the name of the user and of the role */
#define AUTH_SECRET_LEN 32

/* Limits, which are checked where a change is applied. */
#define AUTH_NAME_MAX 255
#define AUTH_USERS_MAX 10000
#define AUTH_ROLES_MAX 10000
#define AUTH_ROLES_OF_USER_MAX 1000
#define AUTH_PERMISSIONS_MAX 1000 /* of one role */

struct auth_permission {
        WIDER;
        Pb__Permission__Type type;
        ProtobufCBinaryData key, range_end; /* owned */
};

struct auth_role {
        WIDER;
        char *name;                          /* owned */
        struct auth_permission *permissions; /* owned, ascending by key and range_end */
        size_t n_permissions, permissions_cap;
};

struct auth_user {
        WIDER;
        char *name; /* owned */
        char *hash; /* owned; "": no password matches */
        bool no_password;
        uint64_t login; /* the number that the user's tokens must carry; it changes with the
                           password */
        char **roles;   /* owned, ascending */
        size_t n_roles, roles_cap;
        struct allowed *allowed; /* what the roles permit; shared with users that have the
                                  * same roles; NULL: not computed since the roles changed */
};

struct auth {
        WIDER;
        bool enabled;
        uint64_t revision;               /* counts the changes, starting at 1 */
        uint8_t secret[AUTH_SECRET_LEN]; /* signs tokens; zeroes until auth is first enabled */
        struct auth_user *users;         /* owned, ascending by name */
        size_t n_users, users_cap;
        struct auth_role *roles; /* owned, ascending by name */
        size_t n_roles, roles_cap;
        uint64_t permits;  /* counts the changes to permissions, starting at 1; not part of the
                              state */
        size_t bytes;      /* as the quota counts them (charge.h) */
        size_t n_ranges;   /* that were computed for users (allowed.h); not part of the state */
        unsigned n_missed; /* how many encodings in a row were interrupted by a change; not part
                              of the state */
};

void auth_init(struct auth *a);

/* Frees all in slices. Returns false if @left was not enough; then only the same call may
 * follow. */
must_check_ bool auth_free_some(struct auth *a, struct budget *left);

/* NULL if there is none. Borrowed until the next change. */
const struct auth_user *auth_user_find(const struct auth *a, const char *name);
const struct auth_role *auth_role_find(const struct auth *a, const char *name);
bool auth_user_has(const struct auth_user *u, const char *role);

/* Whether a role can be given @p, which may be NULL. A type is an open enum on the wire, and a
 * snapshot has a byte for it. Called when a request arrives; auth_change() accepts any type. */
enum state_outcome auth_check_permission(const Pb__Permission *p);

/* Makes a change; a client's mistake is reported as an outcome. Returns 0 or -ENOMEM. */
must_check_ int auth_change(struct auth *a, const Pb__AuthChange *change,
                            enum state_outcome *ret);

/* Appends users and roles to a snapshot, from number *@at on, until @out has @until bytes.
 * Returns false if there are more; the next call continues, as long as `revision` has not
 * changed. */
bool auth_save_some(const struct auth *a, size_t *at, size_t until, struct buf *out);

/* Loads the next one. Returns 0, -EBADMSG or -ENOMEM. */
struct snapshot_in;
must_check_ int auth_load_user(struct auth *a, struct snapshot_in *in);
must_check_ int auth_load_role(struct auth *a, struct snapshot_in *in);
