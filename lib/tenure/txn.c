/* Transactions. Each condition and operation is encoded as soon as it is added. */
#include "base/utf8.h"
#include "tenure/calls.h"

#define COMPARE (1 << 3 | 2) /* the fields of TxnRequest */
#define SUCCESS (2 << 3 | 2)
#define FAILURE (3 << 3 | 2)
#define NESTED (4 << 3 | 2) /* ... and of RequestOp */

struct tenure_txn {
        struct tenure *tenure;
        struct buf conditions, then, other;
        size_t n_conditions, n_then, n_else;
        struct buf guard_key;
        int64_t guard; /* the lease; 0: none */
        bool in_else, changes, named;
        int r; /* the first error */
        char error[512];
};

int tenure_txn_new(struct tenure *t, struct tenure_txn **ret)
{
        struct tenure_txn *x = calloc(1, sizeof(*x));

        if (!x)
                return tenure_fail(t, -ENOMEM, "out of memory");
        x->tenure = t;
        *ret = x;
        return 0;
}

struct tenure_txn *tenure_txn_free(struct tenure_txn *x)
{
        if (!x)
                return NULL;
        buf_fini(&x->conditions);
        buf_fini(&x->then);
        buf_fini(&x->other);
        buf_fini(&x->guard_key);
        free(x);
        return NULL;
}

/* Keeps the first error, which tenure_error() has now, for tenure_txn_commit(). */
static void remember(struct tenure_txn *x, int r)
{
        if (r >= 0 || x->r < 0)
                return;
        x->r = r;
        utf8_print(x->error, sizeof(x->error), "%s", tenure_error(x->tenure));
}

struct tenure *txn_tenure(const struct tenure_txn *x)
{
        return x->tenure;
}

bool txn_is_guarded(const struct tenure_txn *x)
{
        return x->guard != 0;
}

void txn_fail(struct tenure_txn *x, int r)
{
        remember(x, r);
}

/* ---- conditions ---- */

static bool compare_begin(struct tenure_txn *x, Pb__Compare *c, const void *key, size_t key_len,
                          char op)
{
        static const struct {
                char op;
                Pb__Compare__CompareResult result;
        } ops[] = {{'=', PB__COMPARE__COMPARE_RESULT__EQUAL},
                   {'!', PB__COMPARE__COMPARE_RESULT__NOT_EQUAL},
                   {'<', PB__COMPARE__COMPARE_RESULT__LESS},
                   {'>', PB__COMPARE__COMPARE_RESULT__GREATER}};

        pb__compare__init(c);
        c->key = pb_bytes(key, key_len);
        if (key_len == 0) {
                remember(x, tenure_fail(x->tenure, -EINVAL, "a key has at least one byte"));
                return false;
        }
        for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
                if (ops[i].op == op) {
                        c->result = ops[i].result;
                        return true;
                }
        remember(x, tenure_fail(x->tenure, -EINVAL,
                                "a condition compares with one of = ! < >, not with '%c'", op));
        return false;
}

static void compare_add(struct tenure_txn *x, const Pb__Compare *c)
{
        pb_append_field(&x->conditions, COMPARE, &c->base);
        x->n_conditions++;
}

void tenure_txn_if_value(struct tenure_txn *x, const void *key, size_t key_len, char op,
                         const void *value, size_t value_len)
{
        Pb__Compare c;

        if (!compare_begin(x, &c, key, key_len, op))
                return;
        c.target = PB__COMPARE__COMPARE_TARGET__VALUE;
        c.target_union_case = PB__COMPARE__TARGET_UNION_VALUE;
        c.value = pb_bytes(value, value_len);
        compare_add(x, &c);
}

/* Adds a condition on a number; all members of the union except the value are numbers. */
static void compare_number(struct tenure_txn *x, const void *key, size_t key_len, char op,
                           Pb__Compare__CompareTarget target,
                           Pb__Compare__TargetUnionCase which, int64_t number)
{
        Pb__Compare c;

        if (!compare_begin(x, &c, key, key_len, op))
                return;
        c.target = target;
        c.target_union_case = which;
        c.version = number;
        compare_add(x, &c);
}

void tenure_txn_if_version(struct tenure_txn *x, const void *key, size_t key_len, char op,
                           int64_t version)
{
        compare_number(x, key, key_len, op, PB__COMPARE__COMPARE_TARGET__VERSION,
                       PB__COMPARE__TARGET_UNION_VERSION, version);
}

void tenure_txn_if_created(struct tenure_txn *x, const void *key, size_t key_len, char op,
                           int64_t revision)
{
        compare_number(x, key, key_len, op, PB__COMPARE__COMPARE_TARGET__CREATE,
                       PB__COMPARE__TARGET_UNION_CREATE_REVISION, revision);
}

void tenure_txn_if_modified(struct tenure_txn *x, const void *key, size_t key_len, char op,
                            int64_t revision)
{
        compare_number(x, key, key_len, op, PB__COMPARE__COMPARE_TARGET__MOD,
                       PB__COMPARE__TARGET_UNION_MOD_REVISION, revision);
}

static void compare_lease(Pb__Compare *c, int64_t lease)
{
        c->target = PB__COMPARE__COMPARE_TARGET__LEASE;
        c->target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        c->lease = lease;
}

void tenure_txn_if_lease(struct tenure_txn *x, const void *key, size_t key_len, char op,
                         int64_t lease)
{
        Pb__Compare c;
        int r;

        if (!compare_begin(x, &c, key, key_len, op))
                return;
        r = lease_of(x->tenure, lease, &lease);
        if (r < 0)
                return remember(x, r);
        compare_lease(&c, lease);
        compare_add(x, &c);
}

void txn_guard(struct tenure_txn *x, const void *key, size_t key_len, int64_t lease)
{
        assert(key_len > 0 && lease != 0 && x->guard == 0);
        x->guard = lease;
        buf_add(&x->guard_key, key, key_len);
}

/* ---- operations ---- */

static void add_op(struct tenure_txn *x, const Pb__RequestOp *op, bool changes)
{
        if (x->in_else) {
                pb_append_field(&x->other, FAILURE, &op->base);
                x->n_else++;
        } else {
                pb_append_field(&x->then, SUCCESS, &op->base);
                x->n_then++;
        }
        x->changes |= changes;
}

void tenure_txn_get(struct tenure_txn *x, const struct tenure_range *q)
{
        cleanup_(freep) uint8_t *room = malloc(q->key_len + 1);
        Pb__RequestOp op = PB__REQUEST_OP__INIT;
        Pb__RangeRequest p;
        int r = room ? range_request(x->tenure, q, room, &p)
                     : tenure_fail(x->tenure, -ENOMEM, "out of memory");

        if (r < 0)
                return remember(x, r);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op.request_range = &p;
        add_op(x, &op, false);
}

/* @r: the result of making @p. */
static void add_put(struct tenure_txn *x, int r, Pb__PutRequest *p)
{
        Pb__RequestOp op = PB__REQUEST_OP__INIT;

        if (r < 0)
                return remember(x, r);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = p;
        add_op(x, &op, true);
}

void tenure_txn_put(struct tenure_txn *x, const void *key, size_t key_len, const void *value,
                    size_t value_len, int64_t lease)
{
        Pb__PutRequest p;
        int r = put_request(x->tenure, key, key_len, value, value_len, lease, &p);

        add_put(x, r, &p);
}

void tenure_txn_put_named(struct tenure_txn *x, const void *key, size_t key_len,
                          const void *value, size_t value_len, const char *name)
{
        Pb__PutRequest p;
        int r = put_request_named(x->tenure, key, key_len, value, value_len, name, &p);

        x->named = true;
        add_put(x, r, &p);
}

void tenure_txn_delete(struct tenure_txn *x, const struct tenure_range *q)
{
        cleanup_(freep) uint8_t *room = malloc(q->key_len + 1);
        Pb__RequestOp op = PB__REQUEST_OP__INIT;
        Pb__DeleteRangeRequest p;
        int r = room ? delete_request(x->tenure, q, room, &p)
                     : tenure_fail(x->tenure, -ENOMEM, "out of memory");

        if (r < 0)
                return remember(x, r);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &p;
        add_op(x, &op, true);
}

void tenure_txn_else(struct tenure_txn *x)
{
        if (x->in_else)
                remember(x, tenure_fail(x->tenure, -EINVAL,
                                        "a transaction has one tenure_txn_else() at most"));
        x->in_else = true;
}

/* ---- results ---- */

static int read_op(struct tenure_call *c, size_t i, const Pb__ResponseOp *op)
{
        const Pb__RangeResponse *range;

        switch (op->response_case) {
        case PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE:
                range = op->response_range;
                c->found[i].count = range->count;
                return found_kvs(c, i, range->kvs, range->n_kvs);
        case PB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE:
                c->found[i].count = op->response_delete_range->deleted;
                return 0;
        case PB__RESPONSE_OP__RESPONSE_RESPONSE_PUT:
                return 0;
        default:
                return -EBADMSG;
        }
}

static int read_outcome(struct tenure_call *c, const Pb__TxnResponse *p)
{
        size_t first = p->succeeded ? 0 : c->n_then;
        int r = p->n_responses == (p->succeeded ? c->n_then : c->n_else) ? 0 : -EBADMSG;

        if (r == 0)
                r = found_new(c, c->n_then + c->n_else);
        for (size_t i = 0; i < p->n_responses && r == 0; i++)
                r = read_op(c, first + i, p->responses[i]);
        if (r < 0 || p->succeeded)
                return r;
        call_says(c, "The conditions of the transaction do not hold");
        return -ECANCELED;
}

/* The guard did not hold: the core has only read its key. */
static int read_refusal(struct tenure_call *c, const Pb__TxnResponse *p)
{
        const Pb__ResponseOp *op = p->n_responses == 1 ? p->responses[0] : NULL;
        const Pb__RangeResponse *found;

        if (!op || op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return -EBADMSG;
        found = op->response_range;
        if (found->n_kvs == 0)
                call_says(c,
                          "The lease %016llx that guarded it has ended: its key is gone; "
                          "nothing was changed",
                          (unsigned long long) c->guard);
        else
                call_says(c,
                          "The lease %016llx that guarded it is not held any more: its key "
                          "is on the lease %016llx; nothing was changed",
                          (unsigned long long) c->guard,
                          (unsigned long long) found->kvs[0]->lease);
        return -ESTALE;
}

static int read_txn(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;

        if (!c->guarded)
                return read_outcome(c, p);
        if (!p->succeeded)
                return read_refusal(c, p);
        if (!c->nested)
                return read_outcome(c, p);
        if (p->n_responses != 1 ||
            p->responses[0]->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_TXN)
                return -EBADMSG;
        return read_outcome(c, p->responses[0]->response_txn);
}

static const struct call_kind kind_txn = {"/etcdserverpb.KV/Txn", &pb__txn_response__descriptor,
                                          read_txn};

/* ---- sending ---- */

static void add_buf(struct buf *to, const struct buf *from)
{
        if (buf_len(from) > 0)
                buf_add(to, buf_head(from), buf_len(from));
        to->failed |= from->failed;
}

static void write_body(struct tenure_txn *x, struct buf *out)
{
        add_buf(out, &x->conditions);
        add_buf(out, &x->then);
        add_buf(out, &x->other);
}

/* Makes the whole transaction the only operation under the guard's condition, so that the guard
 * also covers what follows tenure_txn_else(). Without other conditions, the operations follow
 * the guard's condition directly. */
static void write_guarded(struct tenure_txn *x, struct tenure_call *c)
{
        cleanup_(buf_fini) struct buf body = {0}, op = {0};
        Pb__Compare held = PB__COMPARE__INIT;
        Pb__RangeRequest look = PB__RANGE_REQUEST__INIT;
        Pb__RequestOp look_op = PB__REQUEST_OP__INIT;

        held.key = look.key = pb_bytes(buf_head(&x->guard_key), buf_len(&x->guard_key));
        compare_lease(&held, x->guard);
        pb_append_field(&c->request, COMPARE, &held.base);
        c->guarded = true;
        c->guard = x->guard;
        c->nested = x->n_conditions > 0;
        if (c->nested) {
                write_body(x, &body);
                buf_add_varint(&op, NESTED);
                buf_add_bytes(&op, buf_head(&body), buf_len(&body));
                buf_add_varint(&c->request, SUCCESS);
                buf_add_bytes(&c->request, buf_head(&op), buf_len(&op));
                c->request.failed |= body.failed || op.failed;
        } else {
                add_buf(&c->request, &x->then);
        }
        look.keys_only = true;
        look_op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        look_op.request_range = &look;
        pb_append_field(&c->request, FAILURE, &look_op.base);
        c->request.failed |= x->guard_key.failed;
}

int tenure_txn_commit(struct tenure_txn *x, struct tenure_call **ret)
{
        struct tenure *t = x->tenure;
        struct tenure_call *c;
        int r = x->r;

        if (r < 0)
                (void) !tenure_fail(t, r, "%s", x->error);
        else
                r = call_new(t, &kind_txn, &c);
        if (r < 0) {
                tenure_txn_free(x);
                return r;
        }
        c->n_then = x->n_then;
        c->n_else = x->n_else;
        c->changes = x->changes;
        c->named = x->named;
        if (x->guard != 0)
                write_guarded(x, c);
        else
                write_body(x, &c->request);
        tenure_txn_free(x);
        return call_begin(c, ret);
}
