/*
 * Whether a command is accepted and what it costs. Asked where the command comes in, to keep
 * out of the log what would be refused, and again where it is applied, which decides.
 *
 * state_admit() shows the order of the checks, one for all commands. The first that fails is
 * the outcome, so the order belongs to the meaning of the log (I4). Where a command comes in,
 * entries that are not applied yet may still grant a permission, disarm an alarm or create a
 * lease; so what depends on these is checked only where the command is applied.
 *
 * Cache terms come last (caching.c): a command that has to wait for them changes the state.
 */
#include "state/internal.h"
#include "state/lease_names.h"
#include "state/permit.h"

/* Whether the command is one of those that etcd stops, too, while the replicas may differ. What
 * the core does with leases by itself goes on: renewals and expiries. */
static bool is_stopped(const struct state *s, enum cmd_type type, const void *m)
{
        switch (type) {
        case CMD_PUT:
        case CMD_DELETE_RANGE:
        case CMD_COMPACT:
        case CMD_GRANT:
        case CMD_REVOKE:
                return state_alarmed(s, PB__ALARM_TYPE__CORRUPT);
        case CMD_TXN:
                return state_alarmed(s, PB__ALARM_TYPE__CORRUPT) && !state_txn_reads_only(m);
        default:
                return false;
        }
}

/* ---- form ---- */

enum state_outcome state_check_put(const Pb__PutRequest *q)
{
        if (q->key.len == 0)
                return STATE_E_KEY_MISSING;
        if (q->ignore_value && q->value.len > 0)
                return STATE_E_VALUE_GIVEN;
        if (q->ignore_lease && (q->lease != 0 || q->lease_name.len > 0))
                return STATE_E_LEASE_GIVEN;
        return names_check(q->lease == PB_LEASE_BY_NAME ? 0 : q->lease, &q->lease_name);
}

enum state_outcome state_check_delete(const Pb__DeleteRangeRequest *q)
{
        return q->key.len == 0 ? STATE_E_KEY_MISSING : STATE_OK;
}

static enum state_outcome check_grant(const Pb__LeaseGrantRequest *q)
{
        if (q->name.len > STATE_LEASE_NAME_MAX)
                return STATE_E_LEASE_NAME;
        if (q->ttl > STATE_TTL_MAX_S || q->ttl_ms > STATE_TTL_MAX_S * 1000)
                return STATE_E_TTL_TOO_LARGE;
        return STATE_OK;
}

static enum state_outcome check_cache(const Pb__CacheTerm *q)
{
        if (q->key.len == 0)
                return STATE_E_KEY_MISSING;
        return q->key.len + q->range_end.len > CACHED_SPAN_MAX ? STATE_E_CACHE_TOO_LARGE
                                                               : STATE_OK;
}

static int check_form(enum cmd_type type, const void *m, const struct state_admission *a)
{
        const Pb__LeaseRevokeRequest *revoke = m;

        switch (type) {
        case CMD_PUT:
                return (int) state_check_put(m);
        case CMD_DELETE_RANGE:
                return (int) state_check_delete(m);
        case CMD_TXN:
                return state_check_txn(m, a->max_txn_ops);
        case CMD_GRANT:
                return (int) check_grant(m);
        case CMD_REVOKE:
                return (int) names_check(revoke->id, &revoke->name);
        case CMD_CACHE:
                return (int) check_cache(m);
        default:
                return 0;
        }
}

/* ---- permission and room ---- */

/* A lease has to exist for its keys to be looked at, so for a revocation that comes first. */
static enum state_outcome permitted(const struct state *s, const struct cmd *c, const void *m,
                                    struct budget *left)
{
        const struct cmd_user *who = c->by_user ? &c->user : NULL;
        const Pb__LeaseRevokeRequest *q = m;
        const struct lease *l;
        enum state_outcome o;

        if (c->type == CMD_MEMBER) /* a replica says it of itself */
                return STATE_OK;
        if (c->type != CMD_REVOKE)
                return permit_command(s, who, c->type, m, left);
        l = state_revoked(s, q);
        if (!l)
                return q->name.len > 0 ? STATE_E_LEASE_NAME_NOT_FOUND : STATE_E_LEASE_NOT_FOUND;
        o = permit_lease(s, who, l->id, PERMIT_WRITE, left);
        return o == STATE_OK ? permit_owner(s, who, l, (enum lease_tie) q->tied) : o;
}

static bool grows(enum cmd_type type, const void *m)
{
        return type == CMD_PUT || type == CMD_GRANT || (type == CMD_TXN && state_txn_puts(m));
}

static bool fits(const struct state *s, uint64_t quota, size_t bytes)
{
        return quota == 0 || bytes == 0 || (bytes <= quota && state_bytes(s) <= quota - bytes);
}

/* ---- what the command names ---- */

enum state_outcome state_check_put_now(const struct state *s, const Pb__PutRequest *q)
{
        const struct kv_key *k;
        struct lease *l;
        enum state_outcome o = names_put_lease(s, q, &l);

        if (o != STATE_OK)
                return o;
        if (!q->ignore_value && !q->ignore_lease && (!l || l->n_keys < STATE_LEASE_KEYS_MAX))
                return STATE_OK;
        k = kv_find(&s->kv, q->key.data, q->key.len);
        /* A txn may attach a few more, but the number of keys that a check visits is
         * bounded. */
        if (l && l->n_keys >= STATE_LEASE_KEYS_MAX && (!k || k->lease != l))
                return STATE_E_LEASE_KEYS;
        if (!q->ignore_value && !q->ignore_lease)
                return STATE_OK;
        return k && kv_live(k) ? STATE_OK : STATE_E_KEY_NOT_FOUND;
}

/* The replica that took the request has replaced an id of 0, and refused a negative one
 * (A21). */
static enum state_outcome check_grant_now(const struct state *s, const Pb__LeaseGrantRequest *q)
{
        if (q->id <= 0 || state_grant_ttl_ms(q) <= 0)
                return STATE_E_MALFORMED;
        if (leases_find(&s->leases, q->id))
                return STATE_E_LEASE_EXISTS;
        if (names_find(s, &q->name))
                return STATE_E_LEASE_NAME_USED;
        return s->leases.n >= STATE_LEASES_MAX ? STATE_E_LEASES_FULL : STATE_OK;
}

static enum state_outcome check_compact_now(const struct state *s,
                                            const Pb__CompactionRequest *q)
{
        if (q->revision <= s->kv.compacted)
                return STATE_E_COMPACTED;
        return q->revision > s->revision ? STATE_E_FUTURE : STATE_OK;
}

static enum state_outcome check_now(const struct state *s, enum cmd_type type, const void *m,
                                    struct state_admission *a)
{
        switch (type) {
        case CMD_PUT:
                return state_check_put_now(s, m);
        case CMD_TXN:
                return state_check_txn_now(s, m, a);
        case CMD_COMPACT:
                return check_compact_now(s, m);
        case CMD_GRANT:
                return check_grant_now(s, m);
        default:
                return STATE_OK;
        }
}

int state_admit(const struct state *s, const struct cmd *c, const void *m, struct budget *left,
                struct state_admission *a)
{
        bool decides = a->at != ADMIT_DOOR;
        int r = decides && is_stopped(s, c->type, m) ? STATE_E_CORRUPT : 0;

        if (r == 0)
                r = check_form(c->type, m, a);
        a->grows = r == 0 && grows(c->type, m);
        if (r == 0 && decides)
                r = (int) permitted(s, c, m, left);
        if (r == 0 && decides && a->grows && state_alarmed(s, PB__ALARM_TYPE__NOSPACE))
                r = STATE_E_NOSPACE;
        if (r == 0)
                r = (int) state_weigh(s, c->type, m, left, a);
        /* Only a caller that may write can raise the alarm that space is used up. */
        if (r == 0 && !fits(s, c->quota, a->room) &&
            (decides || permitted(s, c, m, left) == STATE_OK))
                r = STATE_E_NOSPACE;
        if (r == 0 && decides)
                r = (int) check_now(s, c->type, m, a);
        return r;
}
