#include "state/auth.h"

#include "state/allowed.h"
#include "state/charge.h"
#include "state/snapshot.h"

#define TYPE_UNKNOWN 255 /* stands for a type of permission that no byte can hold */

void auth_init(struct auth *a)
{
        *a = (struct auth){.revision = 1, .permits = 1};
}

static void permission_fini(struct auth_permission *p)
{
        free(p->key.data);
        free(p->range_end.data);
}

static void role_fini(struct auth_role *r)
{
        for (size_t i = 0; i < r->n_permissions; i++)
                permission_fini(&r->permissions[i]);
        free(r->permissions);
        free(r->name);
}

static void user_fini(struct auth *a, struct auth_user *u)
{
        for (size_t i = 0; i < u->n_roles; i++)
                free(u->roles[i]);
        free(u->roles);
        allowed_unref(a, u->allowed);
        free(u->name);
        free(u->hash);
}

bool auth_free_some(struct auth *a, struct budget *left)
{
        for (; a->n_users > 0; a->n_users--) {
                struct auth_user *u = &a->users[a->n_users - 1];

                if (budget_is_spent(left))
                        return false;
                budget_charge(left, u->n_roles + 2);
                user_fini(a, u);
        }
        for (; a->n_roles > 0; a->n_roles--) {
                struct auth_role *r = &a->roles[a->n_roles - 1];

                if (budget_is_spent(left))
                        return false;
                budget_charge(left, r->n_permissions + 1);
                role_fini(r);
        }
        free(a->users);
        free(a->roles);
        *a = (struct auth){0};
        return true;
}

/* ---- sorted arrays ---- */

/* The position of @key in the array, or the position at which it would be inserted. */
static size_t position(const void *array, size_t n, size_t size, const void *key,
                       int (*cmp)(const void *key, const void *item), bool *ret_found)
{
        size_t from = 0, to = n;

        *ret_found = false;
        while (from < to) {
                size_t mid = from + (to - from) / 2;
                int c = cmp(key, (const char *) array + mid * size);

                *ret_found = *ret_found || c == 0;
                if (c > 0)
                        from = mid + 1;
                else
                        to = mid;
        }
        return from;
}

static int user_cmp(const void *key, const void *item)
{
        return strcmp(key, ((const struct auth_user *) item)->name);
}

static int role_cmp(const void *key, const void *item)
{
        return strcmp(key, ((const struct auth_role *) item)->name);
}

static int name_cmp(const void *key, const void *item)
{
        return strcmp(key, *(char *const *) item);
}

static int permission_cmp(const void *key, const void *item)
{
        const struct auth_permission *x = key, *y = item;
        int c = bytes_cmp(x->key.data, x->key.len, y->key.data, y->key.len);

        return c != 0 ? c
                      : bytes_cmp(x->range_end.data, x->range_end.len, y->range_end.data,
                                  y->range_end.len);
}

static struct auth_user *user_at(const struct auth *a, const char *name, size_t *ret_at)
{
        bool found;
        size_t at = position(a->users, a->n_users, sizeof(*a->users), name, user_cmp, &found);

        if (ret_at)
                *ret_at = at;
        return found ? &a->users[at] : NULL;
}

static struct auth_role *role_at(const struct auth *a, const char *name, size_t *ret_at)
{
        bool found;
        size_t at = position(a->roles, a->n_roles, sizeof(*a->roles), name, role_cmp, &found);

        if (ret_at)
                *ret_at = at;
        return found ? &a->roles[at] : NULL;
}

const struct auth_user *auth_user_find(const struct auth *a, const char *name)
{
        return user_at(a, name, NULL);
}

const struct auth_role *auth_role_find(const struct auth *a, const char *name)
{
        return role_at(a, name, NULL);
}

bool auth_user_has(const struct auth_user *u, const char *role)
{
        bool found;

        position(u->roles, u->n_roles, sizeof(*u->roles), role, name_cmp, &found);
        return found;
}

/* ---- memory cost ---- */

CHARGES(struct auth_user, CHARGE_USER);
CHARGES(struct auth_role, CHARGE_ROLE);
CHARGES(struct auth_permission, CHARGE_PERMISSION);

static size_t user_cost(const struct auth_user *u)
{
        size_t n = CHARGE_USER + strlen(u->name) + strlen(u->hash);

        for (size_t i = 0; i < u->n_roles; i++)
                n += CHARGE_USER_ROLE + strlen(u->roles[i]);
        return n;
}

static size_t role_cost(const struct auth_role *r)
{
        size_t n = CHARGE_ROLE + strlen(r->name);

        for (size_t i = 0; i < r->n_permissions; i++)
                n += CHARGE_PERMISSION + r->permissions[i].key.len +
                     r->permissions[i].range_end.len;
        return n;
}

/* ---- changes to users ---- */

static int set_hash(struct auth *a, struct auth_user *u, const char *hash, uint64_t login)
{
        char *copy = strdup(hash);

        if (!copy)
                return -ENOMEM;
        a->bytes += strlen(hash) - strlen(u->hash);
        free(u->hash);
        u->hash = copy;
        u->login = login;
        return 0;
}

static int user_add(struct auth *a, const char *name, const char *hash, bool no_password,
                    uint64_t login)
{
        cleanup_(freep) char *copy = strdup(name), *hash_copy = strdup(hash);
        size_t at;

        user_at(a, name, &at);
        if (!copy || !hash_copy ||
            array_insert(&a->users, &a->n_users, &a->users_cap, sizeof(*a->users), at) < 0)
                return -ENOMEM;
        a->users[at].name = take_ptr(copy);
        a->users[at].hash = take_ptr(hash_copy);
        a->users[at].no_password = no_password;
        a->users[at].login = login;
        a->bytes += user_cost(&a->users[at]);
        return 0;
}

static int user_grant(struct auth *a, struct auth_user *u, const char *role)
{
        cleanup_(freep) char *copy = strdup(role);
        bool found;
        size_t at = position(u->roles, u->n_roles, sizeof(*u->roles), role, name_cmp, &found);

        if (!copy ||
            array_insert(&u->roles, &u->n_roles, &u->roles_cap, sizeof(*u->roles), at) < 0)
                return -ENOMEM;
        u->roles[at] = take_ptr(copy);
        u->allowed = allowed_unref(a, u->allowed);
        a->bytes += CHARGE_USER_ROLE + strlen(role);
        return 0;
}

static bool user_revoke(struct auth *a, struct auth_user *u, const char *role)
{
        bool found;
        size_t at = position(u->roles, u->n_roles, sizeof(*u->roles), role, name_cmp, &found);

        if (!found)
                return false;
        a->bytes -= CHARGE_USER_ROLE + strlen(role);
        u->allowed = allowed_unref(a, u->allowed);
        free(u->roles[at]);
        array_remove(u->roles, &u->n_roles, sizeof(*u->roles), at);
        return true;
}

/* ---- changes to roles ---- */

static int role_add(struct auth *a, const char *name)
{
        cleanup_(freep) char *copy = strdup(name);
        size_t at;

        role_at(a, name, &at);
        if (!copy ||
            array_insert(&a->roles, &a->n_roles, &a->roles_cap, sizeof(*a->roles), at) < 0)
                return -ENOMEM;
        a->roles[at].name = take_ptr(copy);
        a->bytes += role_cost(&a->roles[at]);
        return 0;
}

static int copy_bytes(ProtobufCBinaryData *to, const void *p, size_t n)
{
        to->data = malloc(n + 1);
        if (!to->data)
                return -ENOMEM;
        if (n > 0)
                memcpy(to->data, p, n);
        to->len = n;
        return 0;
}

static int role_permit(struct auth *a, struct auth_role *r, Pb__Permission__Type type,
                       struct view key, struct view range_end)
{
        struct auth_permission p = {.type = type};
        bool found;
        size_t at;

        if (copy_bytes(&p.key, key.p, key.len) < 0 ||
            copy_bytes(&p.range_end, range_end.p, range_end.len) < 0) {
                permission_fini(&p);
                return -ENOMEM;
        }
        at = position(r->permissions, r->n_permissions, sizeof(p), &p, permission_cmp, &found);
        a->permits++;
        if (found) {
                permission_fini(&p);
                r->permissions[at].type = type;
                return 0;
        }
        if (array_insert(&r->permissions, &r->n_permissions, &r->permissions_cap, sizeof(p),
                         at) < 0) {
                permission_fini(&p);
                return -ENOMEM;
        }
        r->permissions[at] = p;
        a->bytes += CHARGE_PERMISSION + key.len + range_end.len;
        return 0;
}

static bool role_forbid(struct auth *a, struct auth_role *r, ProtobufCBinaryData key,
                        ProtobufCBinaryData range_end)
{
        const struct auth_permission p = {.key = key, .range_end = range_end};
        bool found;
        size_t at = position(r->permissions, r->n_permissions, sizeof(p), &p, permission_cmp,
                             &found);

        if (!found)
                return false;
        a->permits++;
        a->bytes -= CHARGE_PERMISSION + key.len + range_end.len;
        permission_fini(&r->permissions[at]);
        array_remove(r->permissions, &r->n_permissions, sizeof(p), at);
        return true;
}

/* ---- commands from the log ---- */

static bool is_root(const char *name)
{
        return strcmp(name, AUTH_ROOT) == 0;
}

static int enable(struct auth *a, const Pb__AuthEnableChange *q, enum state_outcome *ret)
{
        static const uint8_t none[AUTH_SECRET_LEN];
        const struct auth_user *root = auth_user_find(a, AUTH_ROOT);

        if (a->enabled)
                return 0;
        if (!root)
                *ret = STATE_E_ROOT_USER;
        else if (!auth_user_has(root, AUTH_ROOT))
                *ret = STATE_E_ROOT_ROLE;
        else if (q->secret.len != AUTH_SECRET_LEN)
                *ret = STATE_E_MALFORMED;
        if (*ret != STATE_OK)
                return 0;
        if (memcmp(a->secret, none, AUTH_SECRET_LEN) == 0)
                memcpy(a->secret, q->secret.data, AUTH_SECRET_LEN);
        a->enabled = true;
        return 0;
}

static int add_user(struct auth *a, const Pb__AuthUserAddRequest *q, enum state_outcome *ret)
{
        if (!*q->name)
                *ret = STATE_E_USER_EMPTY;
        else if (strlen(q->name) > AUTH_NAME_MAX)
                *ret = STATE_E_AUTH_NAME;
        else if (auth_user_find(a, q->name))
                *ret = STATE_E_USER_EXISTS;
        else if (a->n_users >= AUTH_USERS_MAX)
                *ret = STATE_E_AUTH_FULL;
        if (*ret != STATE_OK)
                return 0;
        a->revision++;
        return user_add(a, q->name, q->hashedpassword, q->options && q->options->no_password,
                        a->revision);
}

static int delete_user(struct auth *a, const Pb__AuthUserDeleteRequest *q,
                       enum state_outcome *ret)
{
        struct auth_user *u;
        size_t at;

        if (a->enabled && is_root(q->name)) {
                *ret = STATE_E_AUTH_MGMT;
                return 0;
        }
        u = user_at(a, q->name, &at);
        if (!u) {
                *ret = STATE_E_USER_NOT_FOUND;
                return 0;
        }
        a->bytes -= user_cost(u);
        user_fini(a, u);
        array_remove(a->users, &a->n_users, sizeof(*a->users), at);
        a->revision++;
        return 0;
}

static int change_password(struct auth *a, const Pb__AuthUserChangePasswordRequest *q,
                           enum state_outcome *ret)
{
        struct auth_user *u = user_at(a, q->name, NULL);

        if (!u) {
                *ret = STATE_E_USER_NOT_FOUND;
                return 0;
        }
        a->revision++;
        return set_hash(a, u, u->no_password ? "" : q->hashedpassword, a->revision);
}

static int grant_role(struct auth *a, const Pb__AuthUserGrantRoleRequest *q,
                      enum state_outcome *ret)
{
        struct auth_user *u = user_at(a, q->user, NULL);

        if (!u)
                *ret = STATE_E_USER_NOT_FOUND;
        else if (!is_root(q->role) && !auth_role_find(a, q->role))
                *ret = STATE_E_ROLE_NOT_FOUND;
        if (*ret != STATE_OK || auth_user_has(u, q->role))
                return 0;
        if (u->n_roles >= AUTH_ROLES_OF_USER_MAX) {
                *ret = STATE_E_AUTH_FULL;
                return 0;
        }
        a->revision++;
        return user_grant(a, u, q->role);
}

static int revoke_role(struct auth *a, const Pb__AuthUserRevokeRoleRequest *q,
                       enum state_outcome *ret)
{
        struct auth_user *u;

        if (a->enabled && is_root(q->name) && is_root(q->role)) {
                *ret = STATE_E_AUTH_MGMT;
                return 0;
        }
        u = user_at(a, q->name, NULL);
        if (!u)
                *ret = STATE_E_USER_NOT_FOUND;
        else if (!user_revoke(a, u, q->role))
                *ret = STATE_E_ROLE_NOT_GRANTED;
        else
                a->revision++;
        return 0;
}

static int add_role(struct auth *a, const Pb__AuthRoleAddRequest *q, enum state_outcome *ret)
{
        if (!*q->name)
                *ret = STATE_E_ROLE_EMPTY;
        else if (strlen(q->name) > AUTH_NAME_MAX)
                *ret = STATE_E_AUTH_NAME;
        else if (auth_role_find(a, q->name))
                *ret = STATE_E_ROLE_EXISTS;
        else if (a->n_roles >= AUTH_ROLES_MAX)
                *ret = STATE_E_AUTH_FULL;
        if (*ret != STATE_OK)
                return 0;
        a->revision++;
        return role_add(a, q->name);
}

static int delete_role(struct auth *a, const Pb__AuthRoleDeleteRequest *q,
                       enum state_outcome *ret)
{
        struct auth_role *r;
        size_t at;

        if (a->enabled && is_root(q->role)) {
                *ret = STATE_E_AUTH_MGMT;
                return 0;
        }
        r = role_at(a, q->role, &at);
        if (!r) {
                *ret = STATE_E_ROLE_NOT_FOUND;
                return 0;
        }
        a->bytes -= role_cost(r);
        role_fini(r);
        array_remove(a->roles, &a->n_roles, sizeof(*a->roles), at);
        for (size_t i = 0; i < a->n_users; i++)
                user_revoke(a, &a->users[i], q->role);
        a->revision++;
        return 0;
}

enum state_outcome auth_check_permission(const Pb__Permission *p)
{
        if (!p)
                return STATE_E_PERMISSION_EMPTY;
        return p->permtype < PB__PERMISSION__TYPE__READ ||
                               p->permtype > PB__PERMISSION__TYPE__READWRITE
                       ? STATE_E_PERMISSION_TYPE
                       : STATE_OK;
}

/* Earlier versions let unknown types into the log and apply them. So such an entry is not
 * refused: a replica that replayed it would get another auth revision than one that loaded it
 * with a snapshot (I4). Unknown types permit nothing. Those that fit into a snapshot's byte are
 * stored unchanged, as earlier versions did. */
static Pb__Permission__Type applied_type(const Pb__Permission *p)
{
        return (Pb__Permission__Type) (p->permtype >= 0 && p->permtype < TYPE_UNKNOWN
                                               ? p->permtype
                                               : TYPE_UNKNOWN);
}

static int grant_permission(struct auth *a, const Pb__AuthRoleGrantPermissionRequest *q,
                            enum state_outcome *ret)
{
        const Pb__Permission *p = q->perm;
        struct auth_role *r = role_at(a, q->name, NULL);

        if (!p)
                *ret = STATE_E_PERMISSION_EMPTY;
        else if (!r)
                *ret = STATE_E_ROLE_NOT_FOUND;
        else if (r->n_permissions >= AUTH_PERMISSIONS_MAX)
                *ret = STATE_E_AUTH_FULL;
        if (*ret != STATE_OK)
                return 0;
        a->revision++;
        return role_permit(a, r, applied_type(p), (struct view){p->key.data, p->key.len},
                           (struct view){p->range_end.data, p->range_end.len});
}

static int revoke_permission(struct auth *a, const Pb__AuthRoleRevokePermissionRequest *q,
                             enum state_outcome *ret)
{
        struct auth_role *r = role_at(a, q->role, NULL);

        if (!r)
                *ret = STATE_E_ROLE_NOT_FOUND;
        else if (!role_forbid(a, r, q->key, q->range_end))
                *ret = STATE_E_PERMISSION_NOT_GRANTED;
        else
                a->revision++;
        return 0;
}

int auth_change(struct auth *a, const Pb__AuthChange *c, enum state_outcome *ret)
{
        *ret = STATE_OK;
        switch (c->change_case) {
        case PB__AUTH_CHANGE__CHANGE_ENABLE:
                return enable(a, c->enable, ret);
        case PB__AUTH_CHANGE__CHANGE_DISABLE:
                a->revision += a->enabled;
                a->enabled = false;
                return 0;
        case PB__AUTH_CHANGE__CHANGE_USER_ADD:
                return add_user(a, c->user_add, ret);
        case PB__AUTH_CHANGE__CHANGE_USER_DELETE:
                return delete_user(a, c->user_delete, ret);
        case PB__AUTH_CHANGE__CHANGE_USER_CHANGE_PASSWORD:
                return change_password(a, c->user_change_password, ret);
        case PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE:
                return grant_role(a, c->user_grant_role, ret);
        case PB__AUTH_CHANGE__CHANGE_USER_REVOKE_ROLE:
                return revoke_role(a, c->user_revoke_role, ret);
        case PB__AUTH_CHANGE__CHANGE_ROLE_ADD:
                return add_role(a, c->role_add, ret);
        case PB__AUTH_CHANGE__CHANGE_ROLE_DELETE:
                return delete_role(a, c->role_delete, ret);
        case PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION:
                return grant_permission(a, c->role_grant_permission, ret);
        case PB__AUTH_CHANGE__CHANGE_ROLE_REVOKE_PERMISSION:
                return revoke_permission(a, c->role_revoke_permission, ret);
        default:
                *ret = STATE_E_MALFORMED;
                return 0;
        }
}

/* ---- snapshot ---- */

static void save_user(const struct auth_user *u, struct buf *out)
{
        snapshot_save_user(&(struct saved_user){.name = view_str(u->name),
                                                .hash = view_str(u->hash),
                                                .no_password = u->no_password,
                                                .login = u->login,
                                                .n_roles = u->n_roles},
                           out);
        for (size_t i = 0; i < u->n_roles; i++) {
                struct view role = view_str(u->roles[i]);

                snapshot_save_user_role(&role, out);
        }
}

static void save_role(const struct auth_role *r, struct buf *out)
{
        snapshot_save_role(&(struct saved_role){view_str(r->name), r->n_permissions}, out);
        for (size_t i = 0; i < r->n_permissions; i++) {
                const struct auth_permission *p = &r->permissions[i];

                snapshot_save_permission(
                        &(struct saved_permission){(uint8_t) p->type,
                                                   {p->key.data, p->key.len},
                                                   {p->range_end.data, p->range_end.len}},
                        out);
        }
}

bool auth_save_some(const struct auth *a, size_t *at, size_t until, struct buf *out)
{
        for (; *at < a->n_users + a->n_roles; ++*at) {
                if (buf_len(out) >= until)
                        return false;
                if (*at == a->n_users)
                        buf_add_u64(out, a->n_roles);
                if (*at < a->n_users)
                        save_user(&a->users[*at], out);
                else
                        save_role(&a->roles[*at - a->n_users], out);
        }
        if (a->n_roles == 0)
                buf_add_u64(out, 0);
        return true;
}

/* The name of a user or role, which the table of fields bounds. */
static const char *name_of(struct view v, char out[AUTH_NAME_MAX + 1])
{
        memcpy(out, v.p, v.len);
        out[v.len] = '\0';
        return out;
}

int auth_load_user(struct auth *a, struct snapshot_in *in)
{
        char name[AUTH_NAME_MAX + 1], role[AUTH_NAME_MAX + 1];
        cleanup_(freep) char *hash = NULL;
        struct saved_user is;
        int r = snapshot_load_user(in, &is);

        if (r < 0)
                return r;
        if (auth_user_find(a, name_of(is.name, name)))
                return snapshot_wrong(in, "its name is used twice");
        hash = strndup((const char *) is.hash.p, is.hash.len);
        if (!hash)
                return -ENOMEM;
        r = user_add(a, name, hash, is.no_password, is.login);
        for (uint64_t i = 0; r == 0 && i < is.n_roles; i++) {
                struct auth_user *u = user_at(a, name, NULL);
                struct view v;

                r = snapshot_load_user_role(in, &v);
                if (r == 0 && auth_user_has(u, name_of(v, role)))
                        r = snapshot_wrong(in, "a role is named twice");
                if (r == 0)
                        r = user_grant(a, u, role);
        }
        return r;
}

int auth_load_role(struct auth *a, struct snapshot_in *in)
{
        char name[AUTH_NAME_MAX + 1];
        struct saved_role is;
        int r = snapshot_load_role(in, &is);

        if (r < 0)
                return r;
        if (auth_role_find(a, name_of(is.name, name)))
                return snapshot_wrong(in, "its name is used twice");
        r = role_add(a, name);
        for (uint64_t i = 0; r == 0 && i < is.n_permissions; i++) {
                struct saved_permission p;

                r = snapshot_load_permission(in, &p);
                if (r == 0)
                        r = role_permit(a, role_at(a, name, NULL),
                                        (Pb__Permission__Type) p.type, p.key, p.range_end);
        }
        return r;
}
