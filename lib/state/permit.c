#include "state/permit.h"

#include "base/probe.h"
#include "state/allowed.h"
#include "state/lease_names.h"

/* Finds the user of a command; *@ret is NULL if no permission is needed. */
static enum state_outcome find_user(const struct state *s, const struct cmd_user *who,
                                    const struct auth_user **ret)
{
        char name[256];

        *ret = NULL;
        if (!who || !s->auth.enabled)
                return STATE_OK;
        if (who->name.len == 0)
                return STATE_E_USER_EMPTY;
        if (who->name.len >= sizeof(name))
                return STATE_E_DENIED;
        memcpy(name, who->name.p, who->name.len);
        name[who->name.len] = '\0';
        *ret = auth_user_find(&s->auth, name);
        if (who->login != 0 && (!*ret || (*ret)->login != who->login))
                return STATE_E_TOKEN;
        return *ret ? STATE_OK : STATE_E_DENIED;
}

enum state_outcome permit_user(const struct state *s, const struct cmd_user *who)
{
        const struct auth_user *u;

        return find_user(s, who, &u);
}

enum state_outcome permit_name(const struct state *s, const struct cmd_user *who)
{
        struct cmd_user without_login = {.name = who->name};

        return who->name.len > 0 ? permit_user(s, &without_login) : STATE_OK;
}

enum state_outcome permit_root(const struct state *s, const struct cmd_user *who)
{
        const struct auth_user *u;
        enum state_outcome o = find_user(s, who, &u);

        return o == STATE_OK && u && !auth_user_has(u, AUTH_ROOT) ? STATE_E_DENIED : o;
}

static enum state_outcome user_range(const struct state *s, const struct auth_user *u,
                                     const ProtobufCBinaryData *key,
                                     const ProtobufCBinaryData *range_end, enum permit what,
                                     struct budget *left)
{
        struct kv_span span = kv_span(key, range_end);
        struct place at = {.key = span.from}, wanted;

        if (!u || auth_user_has(u, AUTH_ROOT))
                return STATE_OK;
        /* An empty range still reads its first key. */
        if (kv_span_is_empty(&span))
                span.single = true;
        wanted = place_end_of(&span);
        while (place_cmp(&at, &wanted) < 0)
                if (!allowed_go_on(&s->auth, u, what, &at, left))
                        return STATE_E_DENIED;
        return STATE_OK;
}

static enum state_outcome user_lease(const struct state *s, const struct auth_user *u,
                                     const struct lease *l, enum permit what,
                                     struct budget *left)
{
        struct kv_key *k;

        if (!u || !l || auth_user_has(u, AUTH_ROOT))
                return STATE_OK;
        /* Skips from one permitted range to the next: a lease may have 100,000 keys, and each
         * put that attaches another one is checked. */
        for (k = lease_key_from(l, (struct view){0}); k;) {
                struct place at = {.key = {k->bytes, k->len}}, behind = at;

                behind.behind = true;
                if (left)
                        budget_charge(left, 1);
                while (allowed_go_on(&s->auth, u, what, &at, left))
                        ;
                if (place_cmp(&at, &behind) < 0)
                        return STATE_E_DENIED;
                if (at.at_end)
                        break;
                k = lease_key_from(l, at.key);
                if (k && at.behind && bytes_cmp(k->bytes, k->len, at.key.p, at.key.len) == 0)
                        k = RB_NEXT(lease_keys, NULL, k);
        }
        return STATE_OK;
}

/* Whether @l holds a host's place: whether one of its keys belongs to an agent. */
static bool is_agents(const struct lease *l)
{
        static const uint8_t prefix[] = {'/', 't', 'e', 'n', 'u', 'r', 'e', '/'};
        const struct kv_key *k = lease_key_from(l, (struct view){prefix, sizeof(prefix)});

        return k && k->len >= sizeof(prefix) && memcmp(k->bytes, prefix, sizeof(prefix)) == 0;
}

enum state_outcome permit_owner(const struct state *s, const struct cmd_user *who,
                                const struct lease *l, enum lease_tie tie)
{
        const struct auth_user *u;
        char name[AUTH_NAME_MAX + 1];

        if (!who || !s->auth.enabled || !l->owner || tie == LEASE_TIE_NONE ||
            (tie == LEASE_TIE_AGENTS && !is_agents(l)))
                return STATE_OK;
        if (who->name.len > AUTH_NAME_MAX)
                return STATE_E_DENIED;
        if (who->name.len > 0) /* a program that has not logged in has none */
                memcpy(name, who->name.p, who->name.len);
        name[who->name.len] = '\0';
        if (strcmp(name, l->owner) == 0)
                return STATE_OK;
        PROBE("a user wants to renew or revoke another user's lease");
        u = auth_user_find(&s->auth, name);
        return u && auth_user_has(u, AUTH_ROOT) ? STATE_OK : STATE_E_DENIED;
}

/* Leases that the txn was found to be allowed to use. Nothing is written before all of the txn
 * has been checked, so the answer is the same for each put. Most txns use one or two leases. */
struct passed {
        const struct lease *of[8];
        size_t n;
        struct budget *left;
};

static bool has_passed(const struct passed *p, const struct lease *l)
{
        for (size_t i = 0; i < min_of(p->n, ARRAY_SIZE(p->of)); i++)
                if (p->of[i] == l)
                        return true;
        return false;
}

static enum state_outcome user_put(const struct state *s, const struct auth_user *u,
                                   const Pb__PutRequest *q, struct passed *passed)
{
        static const ProtobufCBinaryData none;
        enum state_outcome o = user_range(s, u, &q->key, &none, PERMIT_WRITE, passed->left);
        struct lease *l;

        if (o == STATE_OK && q->prev_kv)
                o = user_range(s, u, &q->key, &none, PERMIT_READ, passed->left);
        /* If the lease does not exist, another check reports that. */
        if (o != STATE_OK || names_put_lease(s, q, &l) != STATE_OK || has_passed(passed, l))
                return o;
        o = user_lease(s, u, l, PERMIT_WRITE, passed->left);
        if (o == STATE_OK)
                passed->of[passed->n++ % ARRAY_SIZE(passed->of)] = l;
        return o;
}

static enum state_outcome user_delete(const struct state *s, const struct auth_user *u,
                                      const Pb__DeleteRangeRequest *q, struct budget *left)
{
        enum state_outcome o = user_range(s, u, &q->key, &q->range_end, PERMIT_WRITE, left);

        return o == STATE_OK && q->prev_kv
                       ? user_range(s, u, &q->key, &q->range_end, PERMIT_READ, left)
                       : o;
}

static enum state_outcome user_txn(const struct state *s, const struct auth_user *u,
                                   const Pb__TxnRequest *q, struct passed *passed);

static enum state_outcome user_ops(const struct state *s, const struct auth_user *u,
                                   Pb__RequestOp *const *ops, size_t n, struct passed *passed)
{
        enum state_outcome o = STATE_OK;

        for (size_t i = 0; i < n && o == STATE_OK; i++)
                switch (ops[i]->request_case) {
                case PB__REQUEST_OP__REQUEST_REQUEST_RANGE:
                        o = user_range(s, u, &ops[i]->request_range->key,
                                       &ops[i]->request_range->range_end, PERMIT_READ,
                                       passed->left);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_PUT:
                        o = user_put(s, u, ops[i]->request_put, passed);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
                        o = user_delete(s, u, ops[i]->request_delete_range, passed->left);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_TXN:
                        o = user_txn(s, u, ops[i]->request_txn, passed);
                        break;
                default:
                        break;
                }
        return o;
}

static enum state_outcome user_txn(const struct state *s, const struct auth_user *u,
                                   const Pb__TxnRequest *q, struct passed *passed)
{
        enum state_outcome o = STATE_OK;

        for (size_t i = 0; i < q->n_compare && o == STATE_OK; i++)
                o = user_range(s, u, &q->compare[i]->key, &q->compare[i]->range_end,
                               PERMIT_READ, passed->left);
        if (o == STATE_OK)
                o = user_ops(s, u, q->success, q->n_success, passed);
        return o == STATE_OK ? user_ops(s, u, q->failure, q->n_failure, passed) : o;
}

enum state_outcome permit_range(const struct state *s, const struct cmd_user *who,
                                const ProtobufCBinaryData *key,
                                const ProtobufCBinaryData *range_end, enum permit what)
{
        const struct auth_user *u;
        enum state_outcome o = find_user(s, who, &u);

        return o == STATE_OK ? user_range(s, u, key, range_end, what, NULL) : o;
}

enum state_outcome permit_lease(const struct state *s, const struct cmd_user *who, int64_t id,
                                enum permit what, struct budget *left)
{
        const struct auth_user *u;
        enum state_outcome o = find_user(s, who, &u);

        return o == STATE_OK ? user_lease(s, u, leases_find(&s->leases, id), what, left) : o;
}

enum state_outcome permit_command(const struct state *s, const struct cmd_user *who,
                                  enum cmd_type type, const void *m, struct budget *left)
{
        const Pb__CacheTerm *cache = m;
        const Pb__AlarmRequest *alarm = m;
        struct passed passed = {.left = left};
        const struct auth_user *u;
        enum state_outcome o = find_user(s, who, &u);

        if (o != STATE_OK || !u || auth_user_has(u, AUTH_ROOT))
                return o;
        switch (type) {
        case CMD_PUT:
                return user_put(s, u, m, &passed);
        case CMD_DELETE_RANGE:
                return user_delete(s, u, m, left);
        case CMD_TXN:
                return user_txn(s, u, m, &passed);
        case CMD_CACHE:
                return user_range(s, u, &cache->key, &cache->range_end, PERMIT_READ, left);
        case CMD_ALARM:
                return alarm->action == PB__ALARM_REQUEST__ALARM_ACTION__GET ? STATE_OK
                                                                             : STATE_E_DENIED;
        case CMD_AUTH:
                return STATE_E_DENIED;
        default:
                return STATE_OK;
        }
}
