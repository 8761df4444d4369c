#include "lease/state.h"
#include "test.h"

/* ---- random transactions, and what etcd's own words say of them, in n squared ---- */

#define KEYS "abcdefgh"

static ProtobufCBinaryData random_key(struct arena *a)
{
        uint8_t *p = arena_alloc(a, 1);

        *p = (uint8_t) KEYS[rnd(0, 7)];
        return pb_bytes(p, 1);
}

static Pb__TxnRequest *random_txn(struct arena *a, unsigned depth);

static Pb__RequestOp **random_ops(struct arena *a, unsigned depth, size_t *ret_n)
{
        size_t n = rnd(0, depth > 0 ? 3 : 2);
        Pb__RequestOp **ops = arena_alloc(a, (n + 1) * sizeof(Pb__RequestOp *));

        for (size_t i = 0; i < n; i++) {
                Pb__RequestOp *op = ops[i] = arena_alloc(a, sizeof(*op));

                pb__request_op__init(op);
                switch (rnd(0, depth > 0 ? 4 : 2)) {
                case 0:
                case 1:
                        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                        op->request_put = arena_alloc(a, sizeof(*op->request_put));
                        pb__put_request__init(op->request_put);
                        op->request_put->key = random_key(a);
                        break;
                case 2:
                        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
                        op->request_delete_range =
                                arena_alloc(a, sizeof(*op->request_delete_range));
                        pb__delete_range_request__init(op->request_delete_range);
                        op->request_delete_range->key = random_key(a);
                        if (rnd(0, 2) == 0)
                                op->request_delete_range->range_end = random_key(a);
                        else if (rnd(0, 9) == 0)
                                op->request_delete_range->range_end = pb_bytes("", 1);
                        break;
                default:
                        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
                        op->request_txn = random_txn(a, depth - 1);
                        break;
                }
        }
        *ret_n = n;
        return ops;
}

static Pb__TxnRequest *random_txn(struct arena *a, unsigned depth)
{
        Pb__TxnRequest *q = arena_alloc(a, sizeof(*q));

        pb__txn_request__init(q);
        q->success = random_ops(a, depth, &q->n_success);
        q->failure = random_ops(a, depth, &q->n_failure);
        return q;
}

struct seen {
        const ProtobufCBinaryData *puts[512];
        struct kv_span deletes[512];
        size_t n_puts, n_deletes;
};

static bool seen_has(const struct seen *s, const ProtobufCBinaryData *key)
{
        for (size_t i = 0; i < s->n_puts; i++)
                if (s->puts[i]->data[0] == key->data[0])
                        return true;
        for (size_t i = 0; i < s->n_deletes; i++)
                if (kv_span_has(&s->deletes[i], key->data, key->len))
                        return true;
        return false;
}

static void seen_add(struct seen *s, const struct seen *more)
{
        CHECK(s->n_puts + more->n_puts < 512 && s->n_deletes + more->n_deletes < 512);
        memcpy(s->puts + s->n_puts, more->puts, more->n_puts * sizeof(*s->puts));
        memcpy(s->deletes + s->n_deletes, more->deletes, more->n_deletes * sizeof(*s->deletes));
        s->n_puts += more->n_puts;
        s->n_deletes += more->n_deletes;
}

/* etcd's checkIntervals(). */
static bool look(Pb__RequestOp **ops, size_t n, struct seen *s)
{
        bool twice = false;

        for (size_t i = 0; i < n; i++) {
                const Pb__DeleteRangeRequest *d = ops[i]->request_delete_range;

                if (ops[i]->request_case != PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE)
                        continue;
                s->deletes[s->n_deletes] = kv_span(&d->key, &d->range_end);
                s->n_deletes += !s->deletes[s->n_deletes].to_end;
        }
        for (size_t i = 0; i < n; i++) {
                const Pb__TxnRequest *q = ops[i]->request_txn;
                struct seen yes = {.n_puts = 0}, no = {.n_puts = 0};

                if (ops[i]->request_case != PB__REQUEST_OP__REQUEST_REQUEST_TXN)
                        continue;
                twice |= look(q->success, q->n_success, &yes);
                twice |= look(q->failure, q->n_failure, &no);
                for (size_t k = 0; k < yes.n_puts; k++)
                        twice |= seen_has(s, yes.puts[k]);
                for (size_t k = 0; k < no.n_puts; k++)
                        twice |= seen_has(s, no.puts[k]);
                seen_add(s, &yes);
                seen_add(s, &no);
        }
        for (size_t i = 0; i < n; i++) {
                if (ops[i]->request_case != PB__REQUEST_OP__REQUEST_REQUEST_PUT)
                        continue;
                twice |= seen_has(s, &ops[i]->request_put->key);
                s->puts[s->n_puts++] = &ops[i]->request_put->key;
        }
        return twice;
}

TEST(keys_given_twice_are_those_that_etcd_finds)
{
        unsigned n[2] = {0};

        for (unsigned i = 0; i < 8000; i++) {
                cleanup_(arena_fini) struct arena a = {0};
                struct seen yes = {.n_puts = 0}, no = {.n_puts = 0};
                Pb__TxnRequest *q = random_txn(&a, (unsigned) rnd(0, 4));
                bool wanted = look(q->success, q->n_success, &yes), got;

                wanted |= look(q->failure, q->n_failure, &no);
                CHECK_EQ(state_txn_collides(q, &got), 0);
                CHECK_EQ(got, wanted);
                n[got]++;
        }
        CHECK(n[0] > 300 && n[1] > 300);
}
