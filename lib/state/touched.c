/*
 * Checks whether a transaction touches a key twice, in O(n log n) for n operations: if the
 * check took longer than the transaction, it could be used to block everybody.
 *
 * The rules are etcd's: no key may be put twice, or deleted and put, unless the two operations
 * are in the two branches of one transaction. Within a branch, etcd looks at the deletions
 * first, then at nested transactions one after the other, then at the puts; a put collides with
 * a deletion that etcd has seen before. So each operation is numbered in that order, and each
 * branch knows which numbers belong to the other branch of its transaction and do not count.
 */
#include "state/internal.h"

#define NOWHERE SIZE_MAX

struct branch {
        size_t within;           /* the branch that contains its txn, or NOWHERE */
        size_t not_from, not_to; /* numbers in the txn's other branch, if etcd has seen it
                                  * before */
};

struct touch {
        struct kv_span span; /* for a put: its key */
        size_t branch;
        bool put;
};

/* An end of a deletion, or a put; sorted by key. */
struct event {
        struct view key;
        enum { UNTIL, FROM, PUT, UP_TO } what; /* the order at equal keys */
        size_t n;
};

struct touched {
        struct branch *branches;
        struct touch *touches; /* by number */
        struct event *events;
        size_t *deletes; /* a Fenwick tree: how many deletions cover the current key */
        size_t n_branches, branches_cap, n, cap, n_events;
};

static void touched_fini(struct touched *t)
{
        free(t->branches);
        free(t->touches);
        free(t->events);
        free(t->deletes);
}

static int touch(struct touched *t, size_t branch, const ProtobufCBinaryData *key,
                 const ProtobufCBinaryData *range_end, bool put)
{
        struct kv_span span = kv_span(key, range_end);

        /* A deletion of all keys from some key on collides with nothing, as in etcd: clients
         * use it to clear and refill a range in one txn. */
        if (span.to_end || kv_span_is_empty(&span))
                return 0;
        if (array_reserve(&t->touches, &t->cap, t->n + 1, sizeof(*t->touches)) < 0)
                return -ENOMEM;
        t->touches[t->n++] = (struct touch){span, branch, put};
        return 0;
}

static int collect(struct touched *t, struct branch in, Pb__RequestOp **ops, size_t n)
{
        static const ProtobufCBinaryData none;
        size_t me = t->n_branches;
        int r = array_reserve(&t->branches, &t->branches_cap, me + 1, sizeof(*t->branches));

        if (r < 0)
                return r;
        t->branches[t->n_branches++] = in;
        for (size_t i = 0; r == 0 && i < n; i++)
                if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE)
                        r = touch(t, me, &ops[i]->request_delete_range->key,
                                  &ops[i]->request_delete_range->range_end, false);
        for (size_t i = 0; r == 0 && i < n; i++) {
                const Pb__TxnRequest *q = ops[i]->request_txn;
                size_t from = t->n;

                if (ops[i]->request_case != PB__REQUEST_OP__REQUEST_REQUEST_TXN)
                        continue;
                r = collect(t, (struct branch){.within = me}, q->success, q->n_success);
                if (r == 0)
                        r = collect(t, (struct branch){me, from, t->n}, q->failure,
                                    q->n_failure);
        }
        for (size_t i = 0; r == 0 && i < n; i++)
                if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_PUT)
                        r = touch(t, me, &ops[i]->request_put->key, &none, true);
        return r;
}

static int event_cmp(const void *a, const void *b)
{
        const struct event *x = a, *y = b;
        int c = bytes_cmp(x->key.p, x->key.len, y->key.p, y->key.len);

        if (c == 0 && x->what != y->what)
                c = x->what < y->what ? -1 : 1;
        return c != 0 ? c : x->n < y->n ? -1 : x->n > y->n;
}

static void deletes_add(struct touched *t, size_t n, size_t what)
{
        for (size_t i = n + 1; i <= t->n; i += i & -i)
                t->deletes[i] += what;
}

/* How many of the deletions that cover the current key have a number below @n. */
static size_t deletes_below(const struct touched *t, size_t n)
{
        size_t sum = 0;

        for (size_t i = n; i > 0; i -= i & -i)
                sum += t->deletes[i];
        return sum;
}

/* Whether @earlier is in the other branch of a txn that contains @n. */
static bool excluded(const struct touched *t, size_t n, size_t earlier)
{
        for (size_t b = t->touches[n].branch; b != NOWHERE; b = t->branches[b].within)
                if (earlier >= t->branches[b].not_from && earlier < t->branches[b].not_to)
                        return true;
        return false;
}

static bool deleted(const struct touched *t, size_t n)
{
        size_t sum = deletes_below(t, n);

        for (size_t b = t->touches[n].branch; sum > 0 && b != NOWHERE;
             b = t->branches[b].within)
                sum -= deletes_below(t, t->branches[b].not_to) -
                       deletes_below(t, t->branches[b].not_from);
        return sum > 0;
}

static void add_events(struct touched *t)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct touch *at = &t->touches[i];

                t->events[t->n_events++] =
                        (struct event){at->span.from, at->put ? PUT : FROM, i};
                if (at->put)
                        continue;
                t->events[t->n_events++] = at->span.single
                                                   ? (struct event){at->span.from, UP_TO, i}
                                                   : (struct event){at->span.end, UNTIL, i};
        }
        qsort(t->events, t->n_events, sizeof(*t->events), event_cmp);
}

/* Goes from the least key to the greatest. Puts of one key come in the order of their numbers,
 * so if any two collide, two neighbours do. */
static bool collide(struct touched *t)
{
        const struct event *before = NULL;

        for (size_t i = 0; i < t->n_events; i++) {
                const struct event *e = &t->events[i];

                if (e->what != PUT) {
                        deletes_add(t, e->n, e->what == FROM ? 1 : SIZE_MAX);
                        continue;
                }
                if (before &&
                    bytes_cmp(before->key.p, before->key.len, e->key.p, e->key.len) == 0 &&
                    !excluded(t, e->n, before->n))
                        return true;
                if (deleted(t, e->n))
                        return true;
                before = e;
        }
        return false;
}

static int ops_collide(Pb__RequestOp **ops, size_t n, bool *ret)
{
        cleanup_(touched_fini) struct touched t = {0};
        int r = collect(&t, (struct branch){.within = NOWHERE}, ops, n);

        if (r < 0 || t.n < 2)
                return r;
        t.events = calloc(2 * t.n, sizeof(*t.events));
        t.deletes = calloc(t.n + 1, sizeof(*t.deletes));
        if (!t.events || !t.deletes)
                return -ENOMEM;
        add_events(&t);
        *ret = collide(&t);
        return 0;
}

int state_txn_collides(const Pb__TxnRequest *q, bool *ret)
{
        int r;

        *ret = false;
        r = ops_collide(q->success, q->n_success, ret);
        return r < 0 || *ret ? r : ops_collide(q->failure, q->n_failure, ret);
}
