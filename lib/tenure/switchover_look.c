/*
 * Finds out who holds the lock, who is to get it, and who waits between them. The keys between
 * the holder's and the target's will be deleted, and the programs that created them must
 * notice: etcdctl before 3.5 does not, and would believe that it holds the lock. So each of
 * their leases must be that of a node or a session, which libtenure and tenurectl use.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tenure/switchover_internal.h"

/* ---- requests ---- */

void switching_get_op(Pb__RequestOp *op, Pb__RangeRequest *g, const struct buf *key)
{
        pb__request_op__init(op);
        pb__range_request__init(g);
        g->key = pb_bytes(buf_head(key), buf_len(key));
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op->request_range = g;
}

void switching_first_op(Pb__RequestOp *op, Pb__RangeRequest *g, const struct buf *from,
                        const struct buf *to, int64_t n)
{
        switching_get_op(op, g, from);
        g->range_end = pb_bytes(buf_head(to), buf_len(to));
        g->sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        g->sort_target = PB__RANGE_REQUEST__SORT_TARGET__CREATE;
        g->limit = n;
        g->keys_only = true;
}

/* Gets NAME from a key /tenure/CLUSTER/nodes/NAME or /tenure/CLUSTER/sessions/NAME. */
static bool name_in(ProtobufCBinaryData key, char name[static SWITCHOVER_NAME_MAX + 1])
{
        static const char root[] = "/tenure/";
        const char *p = (const char *) key.data, *stop = p + key.len, *slash;
        size_t n;

        if (key.len < sizeof(root) || memcmp(p, root, strlen(root)) != 0)
                return false;
        p += strlen(root);
        slash = memchr(p, '/', (size_t) (stop - p));
        if (!slash)
                return false;
        p = slash + 1;
        n = (size_t) (stop - p);
        if (n > 6 && memcmp(p, "nodes/", 6) == 0)
                p += 6;
        else if (n > 9 && memcmp(p, "sessions/", 9) == 0)
                p += 9;
        else
                return false;
        n = (size_t) (stop - p);
        if (memchr(p, '/', n) || n > SWITCHOVER_NAME_MAX)
                return false;
        memcpy(name, p, n);
        name[n] = '\0';
        return true;
}

/* Finds the node or session that a lease belongs to. -ESRCH: the lease is gone. */
static int read_whose(struct tenure_call *c, const void *answer)
{
        const Pb__LeaseTimeToLiveResponse *p = answer;
        char name[SWITCHOVER_NAME_MAX + 1];

        if (p->ttl < 0)
                return -ESRCH;
        for (size_t i = 0; i < p->n_keys; i++)
                if (name_in(p->keys[i], name)) {
                        c->name = strdup(name);
                        return c->name ? 0 : -ENOMEM;
                }
        return 0;
}

static const struct call_kind kind_whose = {"/etcdserverpb.Lease/LeaseTimeToLive",
                                            &pb__lease_time_to_live_response__descriptor,
                                            read_whose};

/* ---- holder and target ---- */

static void add_lease(struct switching *s, int64_t lease)
{
        buf_add(&s->leases, &lease, sizeof(lease));
        s->n_leases++;
}

static bool is_busy(struct switching *s, const struct tenure_kv *kv)
{
        struct switchover other;

        if (!kv || (s->lease != 0 && kv->lease == s->lease))
                return false;
        if (switchover_read(&other, kv->value, kv->value_len) < 0)
                call_says(s->call,
                          "The key %s.switchover is in the way, and is not a request; "
                          "delete it",
                          s->name);
        else
                call_says(s->call,
                          "A switchover of '%s' to %s is under way, which %s asked for",
                          s->name, other.to, *other.by ? other.by : "somebody");
        switching_end(s, -EBUSY);
        return true;
}

/* Ends the switchover if @kv is not a key of this lock. As in etcd, such a key still delays the
 * waiters behind it, but its owner does not know this lock. */
static bool is_in_the_way(struct switching *s, const struct tenure_kv *kv)
{
        if (!kv || lock_name_has(s->name, kv->key, kv->key_len))
                return false;
        call_says(s->call,
                  "The key %.*s is in the line for the lock '%s', but belongs to another lock, "
                  "which has to be given back first",
                  (int) min_of(kv->key_len, (size_t) 300), (const char *) kv->key, s->name);
        switching_end(s, -EOPNOTSUPP);
        return true;
}

static bool set_target(struct switching *s, const struct tenure_kv *kv)
{
        if (kv->key_len >= sizeof(s->request.key))
                return false;
        memcpy(s->request.key, kv->key, kv->key_len);
        s->request.key[kv->key_len] = '\0';
        s->request.created = kv->create_revision;
        return true;
}

static void next_in_line(struct switching *s, const struct tenure_kv *kv)
{
        if (kv && set_target(s, kv)) {
                snprintf(s->request.to, sizeof(s->request.to), "%.255s", s->request.key);
                add_lease(s, kv->lease);
                return switching_go_to(s, SWITCH_WHO);
        }
        call_says(s->call, "Nobody waits for the lock '%s'", s->name);
        switching_end(s, -ENOENT);
}

static void on_looked(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        const struct tenure_kv *holder = tenure_call_kv(c, 0, 0);
        const struct tenure_kv *node = tenure_call_kv(c, 2, 0);
        const struct tenure_kv *session = tenure_call_kv(c, 3, 0);
        int r;

        if (!switching_has_answer(s, c, &r) || is_busy(s, tenure_call_kv(c, 1, 0)))
                goto out;
        if (tenure_call_kv(c, 1, 0)) { /* our own request, whose answer was lost */
                s->mod = tenure_call_kv(c, 1, 0)->mod_revision;
                s->asked_at = calls_now(s->tenure->calls);
                s->blind = true;
                switching_go_to(s, SWITCH_CHECK);
                goto out;
        }
        buf_clear(&s->leases);
        s->n_leases = s->at = 0;
        if (!holder) {
                call_says(s->call, "Nobody holds the lock '%s'", s->name);
                switching_end(s, -ENOENT);
                goto out;
        }
        if (is_in_the_way(s, holder) || (s->next && is_in_the_way(s, tenure_call_kv(c, 0, 1))))
                goto out;
        if (!switching_set_holder(s, holder)) {
                switching_no_memory(s);
                goto out;
        }
        add_lease(s, holder->lease);
        if (s->next) {
                next_in_line(s, tenure_call_kv(c, 0, 1));
        } else if (!node && !session) {
                call_says(s->call, "No node and no session is named '%s'", s->request.to);
                switching_end(s, -ENOENT);
        } else {
                add_lease(s, node ? node->lease : 0);
                add_lease(s, session ? session->lease : 0);
                switching_go_to(s, SWITCH_TARGET);
        }
out:
        tenure_call_free(c);
}

void switching_look(struct switching *s)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0}, node = {0}, session = {0};
        Pb__RequestOp op[4], *ops[] = {&op[0], &op[1], &op[2], &op[3]};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        const char *cluster = tenure_cluster(s->tenure);
        Pb__RangeRequest get[4];

        if (!*cluster) /* the agent reports it */
                return switching_again(s);
        switchover_range(s->name, &from, &to);
        buf_printf(&node, "/tenure/%s/nodes/%s", cluster, s->request.to);
        buf_printf(&session, "/tenure/%s/sessions/%s", cluster, s->request.to);
        if (buf_error(&from) < 0 || buf_error(&to) < 0 || buf_error(&node) < 0 ||
            buf_error(&session) < 0)
                return switching_again(s);
        switching_first_op(&op[0], &get[0], &from, &to, 2);
        switching_get_op(&op[1], &get[1], &s->key);
        switching_get_op(&op[2], &get[2], &node);
        switching_get_op(&op[3], &get[3], &session);
        get[2].keys_only = get[3].keys_only = true;
        q.success = ops;
        q.n_success = s->next ? 2 : 4;
        switching_ask(s, &switching_txn, &q.base, on_looked);
}

static int64_t lease_at(const struct switching *s, size_t i)
{
        int64_t lease;

        memcpy(&lease, buf_head(&s->leases) + i * sizeof(lease), sizeof(lease));
        return lease;
}

static void on_target(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        const struct tenure_kv *kv = tenure_call_kv(c, 0, 0);
        int r;

        if (!switching_has_answer(s, c, &r))
                goto out;
        if (!kv)
                kv = tenure_call_kv(c, 1, 0);
        if (!kv || !set_target(s, kv)) {
                call_says(s->call, "%s does not wait for the lock '%s'", s->request.to,
                          s->name);
                switching_end(s, -ENOENT);
        } else if (switching_is_holder(s, kv)) {
                snprintf(s->request.from, sizeof(s->request.from), "%s", s->request.to);
                s->switched.token = kv->create_revision;
                call_says(s->call, "%s holds the lock '%s' already", s->request.to, s->name);
                switching_end(s, -EALREADY);
        } else {
                switching_go_to(s, SWITCH_BETWEEN);
        }
out:
        tenure_call_free(c);
}

void switching_look_for_target(struct switching *s)
{
        cleanup_(buf_fini) struct buf node = {0}, session = {0};
        Pb__RequestOp op[2], *ops[] = {&op[0], &op[1]};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RangeRequest get[2];

        buf_printf(&node, "%s/%" PRIx64, s->name, (uint64_t) lease_at(s, 1));
        buf_printf(&session, "%s/%" PRIx64, s->name, (uint64_t) lease_at(s, 2));
        if (buf_error(&node) < 0 || buf_error(&session) < 0)
                return switching_again(s);
        switching_get_op(&op[0], &get[0], &node);
        switching_get_op(&op[1], &get[1], &session);
        get[0].keys_only = get[1].keys_only = true;
        q.success = ops;
        q.n_success = 2;
        switching_ask(s, &switching_txn, &q.base, on_target);
}

static void on_between(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        const struct tenure_kv *kv;
        int r;

        if (switching_has_answer(s, c, &r)) {
                int64_t holder = lease_at(s, 0);

                for (size_t i = 0; (kv = tenure_call_kv(c, 0, i)); i++)
                        if (is_in_the_way(s, kv))
                                goto out;
                buf_clear(&s->leases);
                s->n_leases = 0;
                add_lease(s, holder);
                for (size_t i = 0; (kv = tenure_call_kv(c, 0, i)); i++)
                        add_lease(s, kv->lease);
                if (buf_error(&s->leases) < 0)
                        switching_no_memory(s);
                else
                        switching_go_to(s, SWITCH_WHO);
        }
out:
        tenure_call_free(c);
}

void switching_look_between(struct switching *s)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0};
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        switchover_range(s->name, &from, &to);
        if (buf_error(&from) < 0 || buf_error(&to) < 0)
                return switching_again(s);
        q.key = pb_bytes(buf_head(&from), buf_len(&from));
        q.range_end = pb_bytes(buf_head(&to), buf_len(&to));
        q.min_create_revision = s->created + 1;
        q.max_create_revision = s->request.created - 1;
        q.keys_only = true;
        switching_ask(s, &kind_range_part, &q.base, on_between);
}

static void unknown(struct switching *s, size_t i)
{
        if (i == 0)
                call_says(s->call,
                          "The lock '%s' is held by a program that cannot be asked, such as "
                          "etcdctl: end that program",
                          s->name);
        else
                call_says(s->call,
                          "A program such as etcdctl waits for the lock '%s' before %s, and "
                          "would not notice that it is passed over: end that program, or "
                          "name another target",
                          s->name, s->request.to);
        switching_end(s, -EOPNOTSUPP);
}

static void on_whose(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        int r;

        if (!switching_has_answer(s, c, &r))
                goto out;
        if (r == -ESRCH && s->at == 0) {
                switching_go_to(s, SWITCH_LOOK); /* the holder has gone: look again */
                goto out;
        }
        if (s->next && s->at == 1) {
                if (c->name)
                        snprintf(s->request.to, sizeof(s->request.to), "%s", c->name);
        } else if (r == 0 && !c->name) {
                unknown(s, s->at);
                goto out;
        } else if (s->at == 0) {
                snprintf(s->request.from, sizeof(s->request.from), "%s", c->name);
        }
        s->at++;
        switching_soon(s);
out:
        tenure_call_free(c);
}

void switching_look_whose(struct switching *s)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

        if (s->at == s->n_leases)
                return switching_go_to(s, s->lease ? SWITCH_ASK : SWITCH_GRANT);
        q.id = lease_at(s, s->at);
        q.keys = true;
        if (q.id == 0)
                return unknown(s, s->at);
        switching_ask(s, &kind_whose, &q.base, on_whose);
}
