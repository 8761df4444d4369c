/*
 * What etcd answers to odd transactions, where every version applies them otherwise.
 *
 * Where a txn is applied, a range at a negative revision reads the newest one, and a compare of
 * an unknown target holds. In etcd, such a range is refused as compacted, and such a compare
 * finds both sides equal. Replicas of all versions have to apply an entry alike, so the request
 * is changed before it becomes one: these ranges are refused as ones of the future, and the
 * compares that do not hold become such as never do.
 */
#include "etcd/internal.h"

static void settle(struct request *q, Pb__TxnRequest *t);

static bool is_unknown(const Pb__Compare *c)
{
        return c->target < PB__COMPARE__COMPARE_TARGET__VERSION ||
               c->target > PB__COMPARE__COMPARE_TARGET__LEASE;
}

static bool holds_if_equal(const Pb__Compare *c)
{
        return c->result != PB__COMPARE__COMPARE_RESULT__GREATER &&
               c->result != PB__COMPARE__COMPARE_RESULT__LESS &&
               c->result != PB__COMPARE__COMPARE_RESULT__NOT_EQUAL;
}

static void settle_compare(struct request *q, Pb__Compare *c)
{
        if (!is_unknown(c) || holds_if_equal(c))
                return;
        c->target = PB__COMPARE__COMPARE_TARGET__VERSION;
        c->result = PB__COMPARE__COMPARE_RESULT__LESS;
        /* Without a version in the request, it is compared with 0. */
        if (c->target_union_case == PB__COMPARE__TARGET_UNION_VERSION)
                c->version = 0;
        q->own = (struct view){0};
}

static void settle_range(struct request *q, Pb__RangeRequest *r)
{
        if (r->revision >= 0)
                return;
        r->revision = INT64_MAX;
        q->reads_compacted = true;
        q->own = (struct view){0};
}

static void settle_ops(struct request *q, Pb__RequestOp *const *ops, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_TXN)
                        settle(q, ops[i]->request_txn);
                else if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_RANGE)
                        settle_range(q, ops[i]->request_range);
}

static void settle(struct request *q, Pb__TxnRequest *t)
{
        for (size_t i = 0; i < t->n_compare; i++)
                settle_compare(q, t->compare[i]);
        settle_ops(q, t->success, t->n_success);
        settle_ops(q, t->failure, t->n_failure);
}

void settle_txn(struct request *q)
{
        settle(q, q->msg);
}
