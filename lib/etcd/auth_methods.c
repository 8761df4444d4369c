/*
 * Auth: users, roles, and logging in. state/permit.h decides what a user may do; changes go
 * through the log like any write.
 *
 * Passwords are hashed and checked by crypt(3) in a thread: it is slow on purpose, and the loop
 * must not wait. Passwords are in memory only until then.
 */
#include "base/probe.h"
#include "etcd/internal.h"

#include <crypt.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/secret.h"
#include "etcd/token.h"

#define PREFIX "$y$"          /* yescrypt, crypt(5), which login(1) uses on Debian */
#define JOBS_MAX 1024         /* waiting passwords, in all; then whoever has most gives way */
#define JOBS_OF_CONNECTION 16 /* of one connection; beyond that: too many requests */

static const struct status status_off = {RPC_FAILED_PRECONDITION,
                                         "etcdserver: authentication is not enabled"};
static const struct status status_wrong = {
        RPC_INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password"};
static const struct status status_long = {RPC_INVALID_ARGUMENT,
                                          "etcdserver: a password has at most 511 bytes"};

/* ---- the caller ---- */

struct status identify(struct api *a, const struct rpc_call *call, struct identity *who)
{
        const struct auth *auth = &core_state(a->core)->auth;
        cleanup_(buf_fini) struct buf name = {0};
        const char *common_name;
        size_t len;
        int r;

        identity_fini(who);
        if (!auth->enabled)
                return status_ok;
        if (call->token) {
                r = token_read(auth, call->token, core_lease_time(a->core), &name,
                               &who->user.login);
                if (r < 0) {
                        PROBE("a token is not valid");
                        return r == -ENOMEM ? status_nomem : status_of(STATE_E_TOKEN);
                }
        } else if ((common_name = a->conns.common_name(call->conn, a->conns_arg))) {
                buf_add(&name, common_name, strlen(common_name));
        }
        if (buf_error(&name) < 0)
                return status_nomem;
        len = buf_len(&name);
        who->name = buf_take(&name, &len);
        who->user.name = (struct view){who->name, len};
        if (len == 0) /* nobody has logged in */
                return status_ok;
        who->party = shares_user(core_shares(a->core), who->name, len);
        return who->party ? status_ok : status_nomem;
}

struct requester requester_of(const struct rpc_call *call, const struct identity *who)
{
        return (struct requester){rpc_call_party(call), who->party};
}

struct status identify_late(struct api *a, const struct rpc_call *call, struct identity *who)
{
        if (who->name || !call || !call->token || !core_state(a->core)->auth.enabled)
                return status_ok;
        PROBE("a token has come before its replica needed one");
        return identify(a, call, who);
}

void identity_fini(struct identity *who)
{
        free(who->name);
        party_unref(who->party);
        *who = (struct identity){0};
}

/* ---- passwords ---- */

struct password_job {
        TAILQ_ENTRY(password_job) next; /* while it waits for the worker */
        struct api *api;
        struct worker_job job;
        struct request *q; /* NULL: the client went away */
        struct api_turn *turn;
        void (*then)(struct request *q, const struct password_job *j);
        char *password;
        char setting[CRYPT_OUTPUT_SIZE]; /* a hash to compare with; "": make a new one */
        char hash[CRYPT_OUTPUT_SIZE];    /* "": it could not be made */
        uint64_t login;                  /* of the user whose password is compared */
};

static void run_job(struct worker_job *w)
{
        struct password_job *j = container_of(w, struct password_job, job);
        struct crypt_data *data = calloc(1, sizeof(*data));
        char salt[CRYPT_GENSALT_OUTPUT_SIZE];
        const char *setting = j->setting, *hash;

        if (!*setting)
                setting = crypt_gensalt_rn(PREFIX, 0, NULL, 0, salt, sizeof(salt));
        hash = data && setting ? crypt_rn(j->password, setting, data, sizeof(*data)) : NULL;
        snprintf(j->hash, sizeof(j->hash), "%s", hash && *hash != '*' ? hash : "");
        if (data)
                explicit_bzero(data, sizeof(*data));
        free(data);
}

static void job_free(struct password_job *j)
{
        secret_free(j->password);
        free(j);
}

static void take_next(struct api *a);

static void job_end(struct password_job *j, bool done)
{
        struct request *q = j->q;
        struct api *a = j->api;

        a->password = NULL;
        if (q) {
                q->data = NULL;
                q->drop = NULL;
                q->gone = NULL;
                q->waiting = false;
                if (done)
                        j->then(q, j);
                else
                        request_fail(q, status_stopped);
        }
        job_free(j);
        take_next(a);
}

static void job_done(struct worker_job *w)
{
        job_end(container_of(w, struct password_job, job), true);
}

static void job_drop(struct worker_job *w)
{
        job_end(container_of(w, struct password_job, job), false);
}

/* Orders jobs: the address that was served least recently goes first, and likewise among its
 * connections, however many each sends. */
static bool is_before(const struct password_job *x, const struct password_job *y)
{
        if (x->turn->of->served != y->turn->of->served)
                return x->turn->of->served < y->turn->of->served;
        return x->turn->served < y->turn->served;
}

/* Puts a newcomer after those that wait already; otherwise a client could pretend to be new
 * again and again. */
static void get_in_line(struct api *a, struct api_turn *t)
{
        for (; t; t = t->of)
                if (t->n_waiting++ == 0)
                        t->served = ++a->turns;
}

static void enqueue(struct password_job *j)
{
        TAILQ_INSERT_TAIL(&j->api->password_jobs, j, next);
        j->api->n_password_jobs++;
        get_in_line(j->api, j->turn);
}

static void dequeue(struct password_job *j)
{
        TAILQ_REMOVE(&j->api->password_jobs, j, next);
        j->api->n_password_jobs--;
        for (struct api_turn *t = j->turn; t; t = t->of)
                t->n_waiting--;
}

static void take_next(struct api *a)
{
        struct password_job *j, *first = NULL;

        if (a->password)
                return;
        TAILQ_FOREACH (j, &a->password_jobs, next)
                if (!first || is_before(j, first))
                        first = j;
        if (!first)
                return;
        dequeue(first);
        first->turn->served = first->turn->of->served = ++a->turns;
        first->turn = NULL; /* its connection may end before the job does */
        a->password = first;
        worker_submit(a->passwords, &first->job);
}

/* The client went away: a job that has not begun is dropped. */
static void job_gone(struct request *q)
{
        struct password_job *j = q->data;

        q->data = NULL;
        q->drop = NULL;
        q->waiting = false;
        if (j == q->api->password) {
                j->q = NULL;
        } else {
                dequeue(j);
                job_free(j);
        }
        request_end(q);
}

/* The newest job of the busiest connection of the busiest address. */
static struct password_job *of_longest(const struct api *a)
{
        struct password_job *j, *last = NULL;

        TAILQ_FOREACH (j, &a->password_jobs, next)
                if (!last || j->turn->of->n_waiting > last->turn->of->n_waiting ||
                    (j->turn->of == last->turn->of &&
                     j->turn->n_waiting >= last->turn->n_waiting))
                        last = j;
        return last;
}

/* Refuses the client with the most waiting jobs, not the last one to come: a client with few
 * always has room, whatever the others do. */
static bool make_room(struct api *a, const struct api_turn *for_whom)
{
        struct password_job *j = of_longest(a);
        const struct api_turn *t = j->turn;
        struct request *q = j->q;

        if (t->of == for_whom->of ? t->n_waiting <= for_whom->n_waiting + 1
                                  : t->of->n_waiting <= for_whom->of->n_waiting + 1)
                return false;
        dequeue(j);
        job_free(j);
        q->data = NULL;
        q->gone = NULL;
        q->waiting = false;
        request_fail(q, status_too_many);
        return true;
}

/* Hashes @password, which is wiped, with @setting, or with a new one if that is "". */
static void submit(struct request *q, char *password, const char *setting, uint64_t login,
                   void (*then)(struct request *q, const struct password_job *j))
{
        struct api *a = q->api;
        struct api_turn *turn = a->conns.turn(q->call->conn, a->conns_arg);
        struct password_job *j;

        if (strlen(password) >= CRYPT_MAX_PASSPHRASE_SIZE)
                return request_fail(q, status_long);
        if (turn->n_waiting >= JOBS_OF_CONNECTION ||
            (a->n_password_jobs >= JOBS_MAX && !make_room(a, turn)))
                return request_fail(q, status_too_many);
        j = calloc(1, sizeof(*j));
        if (!j)
                return request_fail(q, status_nomem);
        j->job = (struct worker_job){.run = run_job, .done = job_done, .drop = job_drop};
        j->api = a;
        j->q = q;
        j->turn = turn;
        j->then = then;
        j->login = login;
        snprintf(j->setting, sizeof(j->setting), "%s", setting);
        j->password = strdup(password);
        explicit_bzero(password, strlen(password));
        if (!j->password) {
                job_free(j);
                return request_fail(q, status_nomem);
        }
        q->data = j;
        q->gone = job_gone;
        q->waiting = true;
        enqueue(j);
        take_next(a);
}

/* ---- changes ---- */

/* The fields of AuthChange are found by the types of the requests, so no second table is
 * needed. */
static void change(struct request *q)
{
        const ProtobufCMessageDescriptor *d = &pb__auth_change__descriptor;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        for (unsigned i = 0; i < d->n_fields; i++)
                if (d->fields[i].descriptor == q->method->request) {
                        c.change_case = (Pb__AuthChange__ChangeCase) d->fields[i].id;
                        memcpy((char *) &c + d->fields[i].offset, &q->msg, sizeof(q->msg));
                }
        request_write(q, CMD_AUTH, &c.base);
}

static void grant_permission(struct request *q)
{
        const Pb__AuthRoleGrantPermissionRequest *m = q->msg;
        enum state_outcome o = auth_check_permission(m->perm);

        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        change(q);
}

static void enable(struct request *q)
{
        Pb__AuthEnableChange e = PB__AUTH_ENABLE_CHANGE__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        uint8_t secret[AUTH_SECRET_LEN];

        if (getrandom(secret, sizeof(secret), 0) != (ssize_t) sizeof(secret))
                return request_fail(
                        q, (struct status){RPC_INTERNAL, "etcdserver: no random numbers"});
        e.secret = pb_bytes(secret, sizeof(secret));
        c.change_case = PB__AUTH_CHANGE__CHANGE_ENABLE;
        c.enable = &e;
        request_write(q, CMD_AUTH, &c.base);
        explicit_bzero(secret, sizeof(secret));
}

/* Continues the request with the hash in place of its password. */
static void hashed(struct request *q, const struct password_job *j)
{
        char *copy = strdup(j->hash), **field;

        if (q->method->request == &pb__auth_user_add_request__descriptor)
                field = &((Pb__AuthUserAddRequest *) q->msg)->hashedpassword;
        else
                field = &((Pb__AuthUserChangePasswordRequest *) q->msg)->hashedpassword;
        if (!copy || !*copy) {
                free(copy);
                return request_fail(q, status_nomem);
        }
        if (*field != protobuf_c_empty_string)
                free(*field);
        *field = copy;
        change(q);
}

static void user_add(struct request *q)
{
        Pb__AuthUserAddRequest *m = q->msg;

        if (!*m->name || (m->options && m->options->no_password)) {
                explicit_bzero(m->password, strlen(m->password));
                explicit_bzero(m->hashedpassword, strlen(m->hashedpassword));
                return change(q);
        }
        submit(q, m->password, "", 0, hashed);
}

static void user_change_password(struct request *q)
{
        Pb__AuthUserChangePasswordRequest *m = q->msg;

        submit(q, m->password, "", 0, hashed);
}

/* ---- queries ---- */

static void answer_status(struct request *q)
{
        const struct auth *a = &core_state(q->api->core)->auth;
        Pb__AuthStatusResponse p = PB__AUTH_STATUS_RESPONSE__INIT;
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        p.header = &h;
        p.enabled = a->enabled;
        p.authrevision = a->revision;
        request_reply(q, &p.base);
}

/* All answers that list names have the layout of the one to UserGet. */
static void reply_names(struct request *q, char **names, size_t n,
                        void (*again)(struct request *q))
{
        Pb__AuthUserGetResponse p = PB__AUTH_USER_GET_RESPONSE__INIT;
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        p.header = &h;
        p.roles = names;
        p.n_roles = n;
        request_answer(q, &p.base, again);
}

static bool is_user(const struct request *q, const char *name)
{
        const struct view *who = &q->who.user.name;

        return bytes_cmp(who->p, who->len, name, strlen(name)) == 0;
}

static void answer_user(struct request *q)
{
        const Pb__AuthUserGetRequest *m = q->msg;
        const struct state *s = core_state(q->api->core);
        const struct auth_user *u = auth_user_find(&s->auth, m->name);
        enum state_outcome o = is_user(q, m->name) ? permit_user(s, &q->who.user)
                                                   : permit_root(s, &q->who.user);

        if (o == STATE_OK && !u)
                o = STATE_E_USER_NOT_FOUND;
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        reply_names(q, u->roles, u->n_roles, answer_user);
}

static void answer_role(struct request *q)
{
        const Pb__AuthRoleGetRequest *m = q->msg;
        const struct state *s = core_state(q->api->core);
        const struct auth_role *r = auth_role_find(&s->auth, m->role);
        Pb__AuthRoleGetResponse p = PB__AUTH_ROLE_GET_RESPONSE__INIT;
        enum state_outcome o = permit_root(s, &q->who.user);
        cleanup_(arena_fini) struct arena a = {0};
        Pb__ResponseHeader h;

        /* A user may look at its own roles. */
        for (size_t i = 0; o == STATE_E_DENIED && i < s->auth.n_users; i++)
                if (is_user(q, s->auth.users[i].name) &&
                    auth_user_has(&s->auth.users[i], m->role))
                        o = STATE_OK;
        if (o == STATE_OK && !r)
                o = STATE_E_ROLE_NOT_FOUND;
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        p.perm = arena_alloc(&a, (r->n_permissions + 1) * sizeof(*p.perm));
        for (size_t i = 0; p.perm && i < r->n_permissions; i++) {
                Pb__Permission *perm = arena_alloc(&a, sizeof(*perm));

                if (!perm)
                        return request_fail(q, status_nomem);
                pb__permission__init(perm);
                perm->permtype = r->permissions[i].type;
                perm->key = r->permissions[i].key;
                perm->range_end = r->permissions[i].range_end;
                p.perm[p.n_perm++] = perm;
        }
        if (!p.perm)
                return request_fail(q, status_nomem);
        core_header(q->api->core, &h);
        p.header = &h;
        request_answer(q, &p.base, answer_role);
}

static void answer_users(struct request *q)
{
        const struct auth *auth = &core_state(q->api->core)->auth;
        cleanup_(arena_fini) struct arena a = {0};
        char **names = arena_alloc(&a, (auth->n_users + 1) * sizeof(*names));

        if (!names)
                return request_fail(q, status_nomem);
        for (size_t i = 0; i < auth->n_users; i++)
                names[i] = auth->users[i].name;
        reply_names(q, names, auth->n_users, answer_users);
}

static void answer_roles(struct request *q)
{
        const struct auth *auth = &core_state(q->api->core)->auth;
        cleanup_(arena_fini) struct arena a = {0};
        char **names = arena_alloc(&a, (auth->n_roles + 1) * sizeof(*names));

        if (!names)
                return request_fail(q, status_nomem);
        for (size_t i = 0; i < auth->n_roles; i++)
                names[i] = auth->roles[i].name;
        reply_names(q, names, auth->n_roles, answer_roles);
}

static void auth_status(struct request *q)
{
        request_read(q, answer_status);
}

static void user_get(struct request *q)
{
        request_read(q, answer_user);
}

static void user_list(struct request *q)
{
        request_read(q, answer_users);
}

static void role_get(struct request *q)
{
        request_read(q, answer_role);
}

static void role_list(struct request *q)
{
        request_read(q, answer_roles);
}

/* ---- login ---- */

static void compared(struct request *q, const struct password_job *j)
{
        const Pb__AuthenticateRequest *m = q->msg;
        const struct auth *a = &core_state(q->api->core)->auth;
        const struct auth_user *u = auth_user_find(a, m->name);
        Pb__AuthenticateResponse p = PB__AUTHENTICATE_RESPONSE__INIT;
        cleanup_(buf_fini) struct buf token = {0};
        Pb__ResponseHeader h;

        /* Meanwhile the user may have been deleted or changed. */
        PROBE_IF(!u || u->login != j->login, "a user changes while its password is checked");
        if (!u || !*j->hash || u->login != j->login || strcmp(u->hash, j->hash) != 0)
                return request_fail(q, status_wrong);
        token_make(a, u, lease_time_add(core_lease_time(q->api->core), q->api->token_ttl),
                   &token);
        buf_add_u8(&token, 0);
        if (buf_error(&token) < 0)
                return request_fail(q, status_nomem);
        core_header(q->api->core, &h);
        p.header = &h;
        p.token = (char *) buf_head(&token);
        request_reply(q, &p.base);
        explicit_bzero(buf_head(&token), buf_len(&token));
}

static void compare(struct request *q)
{
        Pb__AuthenticateRequest *m = q->msg;
        const struct auth *a = &core_state(q->api->core)->auth;
        const struct auth_user *u = auth_user_find(a, m->name);

        if (!a->enabled)
                return request_fail(q, status_off);
        /* An unknown user takes as long as a known one, so that names cannot be probed. */
        submit(q, m->password, u ? u->hash : "", u ? u->login : 0, compared);
}

static void authenticate(struct request *q)
{
        request_read(q, compare);
}

const struct method auth_methods[] = {
        {"/etcdserverpb.Auth/AuthEnable", &pb__auth_enable_request__descriptor, enable,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/AuthDisable", &pb__auth_disable_request__descriptor, change,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/AuthStatus", &pb__auth_status_request__descriptor, auth_status,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/Authenticate", &pb__authenticate_request__descriptor, authenticate,
         .access = FOR_ALL, .always = true},
        {"/etcdserverpb.Auth/UserAdd", &pb__auth_user_add_request__descriptor, user_add,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/UserGet", &pb__auth_user_get_request__descriptor, user_get,
         .access = FOR_USERS, .large = true},
        {"/etcdserverpb.Auth/UserList", &pb__auth_user_list_request__descriptor, user_list,
         .access = FOR_ROOT, .large = true},
        {"/etcdserverpb.Auth/UserDelete", &pb__auth_user_delete_request__descriptor, change,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/UserChangePassword",
         &pb__auth_user_change_password_request__descriptor, user_change_password,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/UserGrantRole", &pb__auth_user_grant_role_request__descriptor,
         change, .access = FOR_ROOT},
        {"/etcdserverpb.Auth/UserRevokeRole", &pb__auth_user_revoke_role_request__descriptor,
         change, .access = FOR_ROOT},
        {"/etcdserverpb.Auth/RoleAdd", &pb__auth_role_add_request__descriptor, change,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/RoleGet", &pb__auth_role_get_request__descriptor, role_get,
         .access = FOR_USERS, .large = true},
        {"/etcdserverpb.Auth/RoleList", &pb__auth_role_list_request__descriptor, role_list,
         .access = FOR_ROOT, .large = true},
        {"/etcdserverpb.Auth/RoleDelete", &pb__auth_role_delete_request__descriptor, change,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/RoleGrantPermission",
         &pb__auth_role_grant_permission_request__descriptor, grant_permission,
         .access = FOR_ROOT},
        {"/etcdserverpb.Auth/RoleRevokePermission",
         &pb__auth_role_revoke_permission_request__descriptor, change, .access = FOR_ROOT},
};
const size_t n_auth_methods = ARRAY_SIZE(auth_methods);
