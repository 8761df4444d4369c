/*
 * Transactions: all compares, then one branch, atomically and at one revision.
 *
 * As in etcd, nested transactions choose their branch by the state before anything is written.
 * All operations that will run are checked before the first write, so that a txn either happens
 * as a whole or returns an error.
 */
#include "state/internal.h"

static bool is_op(const Pb__RequestOp *op)
{
        switch (op->request_case) {
        case PB__REQUEST_OP__REQUEST_REQUEST_RANGE:
                return op->request_range;
        case PB__REQUEST_OP__REQUEST_REQUEST_PUT:
                return op->request_put;
        case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
                return op->request_delete_range;
        case PB__REQUEST_OP__REQUEST_REQUEST_TXN:
                return op->request_txn;
        default:
                return false;
        }
}

/* Counts over all levels. */
struct shape {
        size_t n, max;
};

static enum state_outcome check_shape(const Pb__TxnRequest *q, size_t ops_max,
                                      struct shape *all);

static enum state_outcome check_ops(Pb__RequestOp **ops, size_t n, size_t ops_max,
                                    struct shape *all)
{
        for (size_t i = 0; i < n; i++) {
                enum state_outcome o = STATE_OK;

                if (!is_op(ops[i]))
                        return STATE_E_KEY_NOT_FOUND;
                switch (ops[i]->request_case) {
                case PB__REQUEST_OP__REQUEST_REQUEST_RANGE:
                        o = state_check_range(ops[i]->request_range);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_PUT:
                        o = state_check_put(ops[i]->request_put);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
                        o = state_check_delete(ops[i]->request_delete_range);
                        break;
                default:
                        o = check_shape(ops[i]->request_txn, ops_max, all);
                        break;
                }
                if (o != STATE_OK)
                        return o;
        }
        return STATE_OK;
}

static enum state_outcome check_shape(const Pb__TxnRequest *q, size_t ops_max,
                                      struct shape *all)
{
        size_t branch = max_of(q->n_success, q->n_failure), n = max_of(q->n_compare, branch);
        enum state_outcome o;

        all->n += q->n_compare + q->n_success + q->n_failure;
        if (n > ops_max || all->n > all->max)
                return STATE_E_TXN_TOO_LARGE;
        for (size_t i = 0; i < q->n_compare; i++)
                if (q->compare[i]->key.len == 0)
                        return STATE_E_KEY_MISSING;
        o = check_ops(q->success, q->n_success, ops_max - n, all);
        return o != STATE_OK ? o : check_ops(q->failure, q->n_failure, ops_max - n, all);
}

int state_check_txn(const Pb__TxnRequest *q, size_t max_ops)
{
        struct shape all = {.max = 3 * max_ops};
        enum state_outcome o = check_shape(q, max_ops, &all);
        bool twice = false;
        int r;

        if (o != STATE_OK)
                return (int) o;
        r = state_txn_collides(q, &twice);
        return r == 0 && twice ? STATE_E_TXN_DUPLICATE : r;
}

#define KIND(kind) (1u << PB__REQUEST_OP__REQUEST_##kind)

static bool has(const Pb__TxnRequest *q, unsigned kinds);

static bool any_is(Pb__RequestOp **ops, size_t n, unsigned kinds)
{
        for (size_t i = 0; i < n; i++)
                if ((kinds & 1u << ops[i]->request_case) ||
                    (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_TXN &&
                     has(ops[i]->request_txn, kinds)))
                        return true;
        return false;
}

/* Whether one of the branches has an operation of these kinds. */
static bool has(const Pb__TxnRequest *q, unsigned kinds)
{
        return any_is(q->success, q->n_success, kinds) ||
               any_is(q->failure, q->n_failure, kinds);
}

bool state_txn_reads_only(const Pb__TxnRequest *q)
{
        return !has(q, KIND(REQUEST_PUT) | KIND(REQUEST_DELETE_RANGE) | KIND(_NOT_SET));
}

bool state_txn_puts(const Pb__TxnRequest *q)
{
        return has(q, KIND(REQUEST_PUT));
}

static bool holds(Pb__Compare__CompareResult result, int c)
{
        switch (result) {
        case PB__COMPARE__COMPARE_RESULT__EQUAL:
                return c == 0;
        case PB__COMPARE__COMPARE_RESULT__GREATER:
                return c > 0;
        case PB__COMPARE__COMPARE_RESULT__LESS:
                return c < 0;
        case PB__COMPARE__COMPARE_RESULT__NOT_EQUAL:
                return c != 0;
        default:
                return true; /* etcd treats an unknown result as true */
        }
}

/* An absent key compares like a key whose numbers are all 0. */
static bool compare_one(const Pb__Compare *q, const struct kv_version *v)
{
        int64_t have = 0, want = 0;

        switch (q->target) {
        case PB__COMPARE__COMPARE_TARGET__VALUE: {
                bool given = q->target_union_case == PB__COMPARE__TARGET_UNION_VALUE;

                if (!v)
                        return false; /* nothing to compare with, as in etcd */
                return holds(q->result,
                             bytes_cmp(v->value, v->value_len, given ? q->value.data : NULL,
                                       given ? q->value.len : 0));
        }
        case PB__COMPARE__COMPARE_TARGET__VERSION:
                have = v ? v->version : 0;
                want = q->target_union_case == PB__COMPARE__TARGET_UNION_VERSION ? q->version
                                                                                 : 0;
                break;
        case PB__COMPARE__COMPARE_TARGET__CREATE:
                have = v ? v->create_revision : 0;
                want = q->target_union_case == PB__COMPARE__TARGET_UNION_CREATE_REVISION
                               ? q->create_revision
                               : 0;
                break;
        case PB__COMPARE__COMPARE_TARGET__MOD:
                have = v ? v->mod_revision : 0;
                want = q->target_union_case == PB__COMPARE__TARGET_UNION_MOD_REVISION
                               ? q->mod_revision
                               : 0;
                break;
        case PB__COMPARE__COMPARE_TARGET__LEASE:
                have = v ? v->lease : 0;
                want = q->target_union_case == PB__COMPARE__TARGET_UNION_LEASE ? q->lease : 0;
                break;
        default:
                return true;
        }
        return holds(q->result, have < want ? -1 : have > want);
}

/* The bytes that one comparison with @v reads; beside those, its key is compared with the end
 * of the range. */
static size_t compared(const Pb__Compare *q, const struct kv_version *v)
{
        return v->key->len +
               (q->target == PB__COMPARE__COMPARE_TARGET__VALUE &&
                                q->target_union_case == PB__COMPARE__TARGET_UNION_VALUE
                        ? min_of(q->value.len, (size_t) v->value_len)
                        : 0);
}

static bool compares_hold(const struct state *s, const Pb__TxnRequest *q, struct budget *left)
{
        for (size_t i = 0; i < q->n_compare; i++) {
                const Pb__Compare *c = q->compare[i];
                struct kv_span span = kv_span(&c->key, &c->range_end);
                bool any = false;

                for (struct kv_key *k = kv_live_first(&s->kv, &span); k;
                     k = kv_live_next(&span, k)) {
                        any = true;
                        budget_charge_read(left, compared(c, k->newest));
                        if (!compare_one(c, k->newest))
                                return false;
                }
                if (!any && !compare_one(c, NULL))
                        return false;
        }
        return true;
}

static bool weigh_op(const struct state *s, const Pb__RequestOp *op, struct weight *b)
{
        switch (op->request_case) {
        case PB__REQUEST_OP__REQUEST_REQUEST_RANGE:
                return weigh_range(s, op->request_range, b);
        case PB__REQUEST_OP__REQUEST_REQUEST_PUT:
                return weigh_put(s, op->request_put, b);
        case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
                return weigh_delete(s, op->request_delete_range, b);
        default:
                return true;
        }
}

/* Of branches, those that are taken are numbered in the order of visits. */
static void take(struct txn_branches *b, bool yes)
{
        b->taken[b->n / 8] |= (uint8_t) (yes << b->n % 8);
        b->n++;
}

/* The operations of @q that run. */
struct branch {
        bool yes;
        Pb__RequestOp **ops;
        size_t n;
};

static struct branch branch_of(const Pb__TxnRequest *q, bool yes)
{
        return yes ? (struct branch){true, q->success, q->n_success}
                   : (struct branch){false, q->failure, q->n_failure};
}

static struct branch next_branch(const Pb__TxnRequest *q, struct txn_branches *b)
{
        bool yes = b->taken[b->at / 8] >> b->at % 8 & 1;

        b->at++;
        return branch_of(q, yes);
}

/* Returns false if it is too much. */
static bool choose(const struct state *s, const Pb__TxnRequest *q, struct txn_branches *taken,
                   struct weight *b, struct budget *left)
{
        struct branch ours;

        for (size_t i = 0; i < q->n_compare; i++)
                if (!weigh_compare(s, q->compare[i], b))
                        return false;
        ours = branch_of(q, compares_hold(s, q, left));
        take(taken, ours.yes);
        for (size_t i = 0; i < ours.n; i++)
                if (ours.ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_TXN
                            ? !choose(s, ours.ops[i]->request_txn, taken, b, left)
                            : !weigh_op(s, ours.ops[i], b))
                        return false;
        return true;
}

/* To weigh a step costs a quarter of what it costs to run it. */
enum state_outcome state_weigh_txn(const struct state *s, const Pb__TxnRequest *q,
                                   struct budget *left, struct state_admission *a)
{
        struct weight b = {.steps = STATE_TXN_STEPS_MAX,
                           .counts_compared = a->at != ADMIT_APPLIED};
        bool enough = choose(s, q, &a->branches, &b, left) && weigh_end(&b);

        a->steps = STATE_TXN_STEPS_MAX - b.steps;
        a->room = b.put;
        a->answer = b.answer;
        budget_charge(left, a->steps / 2);
        return enough ? STATE_OK : STATE_E_TXN_TOO_LARGE;
}

static enum state_outcome check_put_op(const struct state *s, const Pb__RequestOp *op)
{
        return op->request_case == PB__REQUEST_OP__REQUEST_REQUEST_PUT
                       ? state_check_put_now(s, op->request_put)
                       : STATE_OK;
}

static enum state_outcome check_range_op(const struct state *s, const Pb__RequestOp *op)
{
        if (op->request_case != PB__REQUEST_OP__REQUEST_REQUEST_RANGE ||
            op->request_range->revision <= 0)
                return STATE_OK;
        return op->request_range->revision > s->revision       ? STATE_E_FUTURE
               : op->request_range->revision < s->kv.compacted ? STATE_E_COMPACTED
                                                               : STATE_OK;
}

/* Runs @check on each operation that will run. */
static enum state_outcome
check_ops_now(const struct state *s, const Pb__TxnRequest *q, struct txn_branches *taken,
              enum state_outcome (*check)(const struct state *s, const Pb__RequestOp *op))
{
        struct branch b = next_branch(q, taken);

        for (size_t i = 0; i < b.n; i++) {
                enum state_outcome o =
                        b.ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_TXN
                                ? check_ops_now(s, b.ops[i]->request_txn, taken, check)
                                : check(s, b.ops[i]);

                if (o != STATE_OK)
                        return o;
        }
        return STATE_OK;
}

/* Puts are checked before reads, as in etcd: the order decides which error is returned. */
enum state_outcome state_check_txn_now(const struct state *s, const Pb__TxnRequest *q,
                                       struct state_admission *a)
{
        enum state_outcome o;

        a->branches.at = 0;
        o = check_ops_now(s, q, &a->branches, check_put_op);
        a->branches.at = 0;
        return o == STATE_OK ? check_ops_now(s, q, &a->branches, check_range_op) : o;
}

static void change_caches(struct state *s, const Pb__TxnRequest *q, struct txn_branches *taken,
                          struct cached_wait *wait)
{
        struct branch b = next_branch(q, taken);

        for (size_t i = 0; i < b.n; i++) {
                struct kv_span span;

                switch (b.ops[i]->request_case) {
                case PB__REQUEST_OP__REQUEST_REQUEST_PUT:
                        span = kv_span(&b.ops[i]->request_put->key, &(ProtobufCBinaryData){0});
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
                        span = kv_span(&b.ops[i]->request_delete_range->key,
                                       &b.ops[i]->request_delete_range->range_end);
                        break;
                case PB__REQUEST_OP__REQUEST_REQUEST_TXN:
                        change_caches(s, b.ops[i]->request_txn, taken, wait);
                        continue;
                default:
                        continue;
                }
                cached_change(&s->cached, &span, s->time, wait);
        }
}

void state_txn_awaits_caches(struct state *s, const Pb__TxnRequest *q,
                             struct state_admission *a, struct cached_wait *wait)
{
        a->branches.at = 0;
        change_caches(s, q, &a->branches, wait);
}

static int run(struct state *s, const Pb__TxnRequest *q, struct txn_branches *taken,
               uint32_t *sub, struct arena *a, Pb__TxnResponse *out, struct budget *left);

/* The header of an operation's response has the revision after the changes so far; for a nested
 * txn etcd leaves it empty. */
static Pb__ResponseHeader *new_header(struct arena *a, int64_t revision)
{
        Pb__ResponseHeader *h = arena_alloc(a, sizeof(*h));

        if (h) {
                pb__response_header__init(h);
                h->revision = revision;
        }
        return h;
}

static int run_op(struct state *s, const Pb__RequestOp *op, struct txn_branches *taken,
                  uint32_t *sub, struct arena *a, Pb__ResponseOp *out, struct budget *left)
{
        const struct kv_version *prev;
        struct budget all = BUDGET_ALL; /* state_weigh_txn() has found that it is not much */
        bool nomem;
        int r;

        switch (op->request_case) {
        case PB__REQUEST_OP__REQUEST_REQUEST_PUT: {
                Pb__PutResponse *p = arena_alloc(a, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                pb__put_response__init(p);
                r = state_write_put(s, op->request_put, sub, &prev);
                if (r < 0)
                        return r;
                if (op->request_put->prev_kv && prev) {
                        p->prev_kv = arena_alloc(a, sizeof(*p->prev_kv));
                        if (!p->prev_kv)
                                return -ENOMEM;
                        kv_fill(prev, p->prev_kv);
                }
                p->header = new_header(a, s->revision + (*sub > 0));
                out->response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
                out->response_put = p;
                return p->header ? 0 : -ENOMEM;
        }
        case PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE: {
                Pb__DeleteRangeResponse *p = arena_alloc(a, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                pb__delete_range_response__init(p);
                r = state_write_delete(s, op->request_delete_range, sub, a, p, &all);
                p->header = new_header(a, s->revision + (*sub > 0));
                out->response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE;
                out->response_delete_range = p;
                return r < 0 ? r : p->header ? 0 : -ENOMEM;
        }
        case PB__REQUEST_OP__REQUEST_REQUEST_RANGE: {
                Pb__RangeResponse *p = arena_alloc(a, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                pb__range_response__init(p);
                (void) state_range(s, op->request_range, a, p, left, &nomem);
                s->counts.ranges++;
                p->header = new_header(a, s->revision + (*sub > 0));
                out->response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
                out->response_range = p;
                return nomem || !p->header ? -ENOMEM : 0;
        }
        default: {
                Pb__TxnResponse *p = arena_alloc(a, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                pb__txn_response__init(p);
                p->header = new_header(a, 0);
                out->response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_TXN;
                out->response_txn = p;
                r = run(s, op->request_txn, taken, sub, a, p, left);
                return r < 0 ? r : p->header ? 0 : -ENOMEM;
        }
        }
}

static int run(struct state *s, const Pb__TxnRequest *q, struct txn_branches *taken,
               uint32_t *sub, struct arena *a, Pb__TxnResponse *out, struct budget *left)
{
        struct branch b = next_branch(q, taken);

        out->succeeded = b.yes;
        out->responses = arena_alloc(a, b.n * sizeof(*out->responses));
        if (!out->responses)
                return -ENOMEM;
        for (size_t i = 0; i < b.n; i++) {
                int r;

                out->responses[i] = arena_alloc(a, sizeof(**out->responses));
                if (!out->responses[i])
                        return -ENOMEM;
                pb__response_op__init(out->responses[i]);
                out->n_responses++;
                r = run_op(s, b.ops[i], taken, sub, a, out->responses[i], left);
                if (r < 0)
                        return r;
        }
        return 0;
}

int state_txn(struct state *s, const Pb__TxnRequest *q, struct state_admission *admitted,
              struct state_reply *reply, struct budget *left)
{
        Pb__TxnResponse p = PB__TXN_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        uint32_t sub = 0;
        int r;

        budget_charge(left, 2 * admitted->steps - admitted->steps / 2);
        admitted->branches.at = 0;
        r = run(s, q, &admitted->branches, &sub, &a, &p, left);
        if (r < 0)
                return r;
        s->counts.txns++;
        if (sub > 0)
                s->revision++;
        if (reply->out) {
                reply->header.revision = s->revision;
                p.header = &reply->header;
                pb_append(reply->out, &p.base);
        }
        return 0;
}

int state_txn_read(struct state *s, const struct cmd_user *who, const Pb__TxnRequest *q,
                   struct state_reply *reply, struct budget *left)
{
        struct cmd c = {.type = CMD_TXN, .by_user = true, .user = *who};
        struct state_admission a = {.at = ADMIT_READ, .max_txn_ops = STATE_TXN_OPS_MAX};
        int r;

        assert(state_txn_reads_only(q));
        r = state_admit(s, &c, q, left, &a);
        return r == 0 ? state_txn(s, q, &a, reply, left) : r;
}
