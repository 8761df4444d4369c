/*
 * A client that changes many keys at once, in transactions, nested ones too, and with values of
 * up to 1 MiB. How many keys there are, and how large values become, is drawn for each world.
 *
 * Nobody else writes there, so it knows what there has to be: each answer says that. A number
 * in one more key decides which transaction comes next. If the outcome of one is not known, it
 * is found out by that key: the transaction was carried out as a whole or not at all, and one
 * that was not can be carried out late only until another one has taken its number.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "asker.h"

#define KEYS_MAX 300
#define OPS_MAX 128       /* in a transaction, as in etcd */
#define BYTES_MAX 1400000 /* of a request: etcd takes 1.5 MiB */
#define LIVE_MAX (3 << 20)
#define WRITTEN_MAX (8 << 20) /* what was overwritten is kept, too */
#define COUNTER "bulk!"

struct content {
        bool there;
        uint8_t fill; /* all its bytes */
        uint32_t len;
};

enum deed { CHANGE, READ, LOOK, SETTLE };

static struct bulk {
        struct asker asker;
        unsigned n_keys, puts_most;
        uint32_t largest;
        size_t request_most; /* bytes of a transaction ... */
        size_t written_most; /* ... and of all large ones */
        size_t written;      /* by all transactions */
        struct content now[KEYS_MAX];
        struct content then[KEYS_MAX]; /* after the transaction that was asked for last */
        int64_t version;               /* of the counter */
        uint64_t number, asked;        /* of the last transaction; of the last that changes */
        enum deed deed;
        bool unsure;       /* whether `asked` was carried out ... */
        bool looked;       /* ... and it was not when it looked */
        unsigned from, to; /* what is read, or deleted */
        unsigned n_deleted;
        bool deletes, nested, exists;
} bulk;

/* A transaction under construction; the request refers to it until it is packed. */
static struct {
        Pb__RequestOp op[OPS_MAX], *ops[OPS_MAX], inner, *inners[1], otherwise, *otherwises[1];
        Pb__PutRequest put[OPS_MAX], inner_put;
        Pb__DeleteRangeRequest del, inner_del;
        Pb__TxnRequest txn, nested;
        Pb__Compare compare, *compares[1], inner_compare, *inner_compares[1];
        Pb__RangeRequest range;
        char keys[OPS_MAX][16], more[4][16], number[24];
        uint8_t pool[BYTES_MAX];
        size_t n, used;
} t;

static unsigned some(unsigned lo, unsigned hi)
{
        return (unsigned) rnd_between(&W->rnd, lo, hi);
}

static ProtobufCBinaryData key_of(char out[static 16], unsigned i)
{
        snprintf(out, 16, "bulk/%03u", i);
        return pb_bytes(out, strlen(out));
}

/* ---- requests ---- */

static Pb__RequestOp *next_op(void)
{
        Pb__RequestOp *op = &t.op[t.n];

        pb__request_op__init(op);
        t.ops[t.n++] = op;
        return op;
}

static void begin_transaction(uint64_t number)
{
        Pb__RequestOp *op;

        t.n = t.used = 0;
        pb__txn_request__init(&t.txn);
        pb__compare__init(&t.compare);
        t.compare.key = pb_bytes(COUNTER, strlen(COUNTER));
        t.compare.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        t.compare.target_union_case = PB__COMPARE__TARGET_UNION_VERSION;
        t.compare.version = bulk.version;
        t.compares[0] = &t.compare;
        t.txn.compare = t.compares;
        t.txn.n_compare = 1;

        pb__put_request__init(&t.put[0]);
        snprintf(t.number, sizeof(t.number), "%" PRIu64, number);
        t.put[0].key = t.compare.key;
        t.put[0].value = pb_bytes(t.number, strlen(t.number));
        op = next_op();
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op->request_put = &t.put[0];

        pb__range_request__init(&t.range);
        t.range.key = t.compare.key;
        pb__request_op__init(&t.otherwise);
        t.otherwise.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        t.otherwise.request_range = &t.range;
        t.otherwises[0] = &t.otherwise;
        t.txn.failure = t.otherwises;
        t.txn.n_failure = 1;
}

static void ask_transaction(void)
{
        t.txn.success = t.ops;
        t.txn.n_success = t.n;
        asker_ask(&bulk.asker, "/etcdserverpb.KV/Txn", &t.txn.base);
        bulk.asker.waits.lasts = true; /* it may take many slices */
}

/* Mostly small ones. */
static struct content draw_content(void)
{
        uint32_t len = some(0, bulk.largest);

        if (chance(W, 80) || bulk.written > bulk.written_most)
                len %= 200;
        len = (uint32_t) min_of((size_t) len, bulk.request_most - t.used);
        return (struct content){true, (uint8_t) some(0, 255), len};
}

static void make_put(Pb__PutRequest *q, char key[static 16], unsigned i)
{
        struct content c = draw_content();

        pb__put_request__init(q);
        q->key = key_of(key, i);
        memset(t.pool + t.used, c.fill, c.len);
        q->value = pb_bytes(t.pool + t.used, c.len);
        t.used += c.len;
        bulk.written += c.len;
        bulk.then[i] = c;
}

/* Of @n keys from @from on, around the end. */
static void add_puts(unsigned from, unsigned n)
{
        for (unsigned i = 0; i < n && t.n < OPS_MAX; i++) {
                size_t k = t.n;
                Pb__RequestOp *op = next_op();

                make_put(&t.put[k], t.keys[k], (from + i) % bulk.n_keys);
                op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                op->request_put = &t.put[k];
        }
}

static void make_deletion(Pb__DeleteRangeRequest *q, char a[static 16], char b[static 16])
{
        bulk.from = some(0, bulk.n_keys - 1);
        bulk.to = some(bulk.from + 1, bulk.n_keys);
        pb__delete_range_request__init(q);
        q->key = key_of(a, bulk.from);
        q->range_end = key_of(b, bulk.to);
        bulk.n_deleted = 0;
        for (unsigned i = bulk.from; i < bulk.to; i++) {
                bulk.n_deleted += bulk.now[i].there;
                bulk.then[i].there = false;
        }
}

/* Deletes some, and puts others. */
static void add_deletion(void)
{
        Pb__RequestOp *op = next_op();
        unsigned others;

        make_deletion(&t.del, t.more[0], t.more[1]);
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op->request_delete_range = &t.del;
        bulk.deletes = true;
        others = bulk.n_keys - (bulk.to - bulk.from);
        if (others > 0 && chance(W, 50))
                add_puts(bulk.to, some(1, min_of(others, bulk.puts_most)));
}

/* If a key exists, puts one, and otherwise deletes some. As in etcd, what exists before the
 * whole transaction counts. */
static void add_nested(void)
{
        Pb__RequestOp *op = next_op();
        unsigned asked = some(0, bulk.n_keys - 1);

        pb__txn_request__init(&t.nested);
        pb__compare__init(&t.inner_compare);
        t.inner_compare.key = key_of(t.more[2], asked);
        t.inner_compare.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        t.inner_compare.target_union_case = PB__COMPARE__TARGET_UNION_VERSION;
        t.inner_compare.result = PB__COMPARE__COMPARE_RESULT__GREATER;
        t.inner_compares[0] = &t.inner_compare;
        t.nested.compare = t.inner_compares;
        pb__request_op__init(&t.inner);
        t.inners[0] = &t.inner;
        t.nested.n_compare = t.nested.n_success = t.nested.n_failure = 1;
        t.nested.success = t.nested.failure = t.inners;
        bulk.nested = true;
        bulk.exists = bulk.now[asked].there;
        if (bulk.exists) {
                make_put(&t.inner_put, t.more[3], some(0, bulk.n_keys - 1));
                t.inner.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                t.inner.request_put = &t.inner_put;
                t.nested.n_failure = 0;
        } else {
                make_deletion(&t.inner_del, t.more[0], t.more[1]);
                t.inner.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
                t.inner.request_delete_range = &t.inner_del;
                t.nested.n_success = 0;
        }
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
        op->request_txn = &t.nested;
}

static size_t live(void)
{
        size_t n = 0;

        for (unsigned i = 0; i < bulk.n_keys; i++)
                n += bulk.now[i].there ? bulk.now[i].len : 0;
        return n;
}

static void change(void)
{
        bulk.deed = CHANGE;
        bulk.asked = ++bulk.number;
        bulk.deletes = bulk.nested = false;
        memcpy(bulk.then, bulk.now, sizeof(bulk.then));
        begin_transaction(bulk.number);
        if (live() > LIVE_MAX || chance(W, 25))
                add_deletion();
        else if (chance(W, 30))
                add_nested();
        else
                add_puts(some(0, bulk.n_keys - 1),
                         some(1, min_of(bulk.puts_most, bulk.n_keys)));
        ask_transaction();
}

static void act(struct asker *a)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        char from[16], to[16];

        if (bulk.unsure && bulk.looked) {
                bulk.deed = SETTLE;
                begin_transaction(++bulk.number);
                return ask_transaction();
        }
        if (bulk.unsure) {
                bulk.deed = LOOK;
                q.key = pb_bytes(COUNTER, strlen(COUNTER));
        } else if (chance(W, 70)) {
                return change();
        } else {
                bulk.deed = READ;
                bulk.from = some(0, bulk.n_keys - 1);
                bulk.to = some(bulk.from + 1, bulk.n_keys);
                q.key = key_of(from, bulk.from);
                q.range_end = key_of(to, bulk.to);
        }
        asker_ask(a, "/etcdserverpb.KV/Range", &q.base);
        a->waits.lasts = true;
}

/* ---- answers ---- */

static void check_read(const Pb__RangeResponse *p)
{
        size_t at = 0;

        for (unsigned i = bulk.from; i < bulk.to; i++) {
                const struct content *c = &bulk.now[i];
                const Pb__KeyValue *kv = at < p->n_kvs ? p->kvs[at] : NULL;
                char key[16];

                (void) key_of(key, i);
                if (!c->there)
                        continue;
                at++;
                if (!kv || kv->key.len != strlen(key) ||
                    memcmp(kv->key.data, key, kv->key.len) != 0)
                        return fail(W, "bulk: %s is not there", key);
                if (kv->value.len != c->len ||
                    (c->len > 0 &&
                     (kv->value.data[0] != c->fill || kv->value.data[c->len - 1] != c->fill)))
                        return fail(W, "bulk: %s has %zu bytes of another value, not %u", key,
                                    kv->value.len, (unsigned) c->len);
        }
        if (at != p->n_kvs)
                fail(W, "bulk: there are %zu keys more than there can be", p->n_kvs - at);
}

/* The counter, as somebody has read it while the outcome of a transaction was not known. */
static void settle(const Pb__RangeResponse *p)
{
        int64_t version = p->n_kvs > 0 ? p->kvs[0]->version : 0;
        char number[24] = "";

        bulk.looked = version == bulk.version;
        if (bulk.looked)
                return;
        if (version != bulk.version + 1)
                return fail(W, "bulk: the counter was put %" PRId64 " times, not %" PRId64,
                            version, bulk.version);
        memcpy(number, p->kvs[0]->value.data, min_of(p->kvs[0]->value.len, sizeof(number) - 1));
        if (strtoull(number, NULL, 10) == bulk.asked)
                memcpy(bulk.now, bulk.then, sizeof(bulk.now));
        bulk.version = version;
        bulk.unsure = false;
}

static void on_changed(const Pb__TxnResponse *p)
{
        if (!p->succeeded && bulk.deed == SETTLE)
                return settle(p->responses[0]->response_range);
        if (!p->succeeded)
                return fail(W, "bulk: a transaction was refused, though nobody else writes");
        W->counts.bulk++;
        bulk.version++;
        bulk.unsure = bulk.looked = false;
        if (bulk.deed == SETTLE)
                return;
        if (bulk.deletes &&
            p->responses[1]->response_delete_range->deleted != (int64_t) bulk.n_deleted)
                fail(W, "bulk: %" PRId64 " keys were deleted, not %u",
                     p->responses[1]->response_delete_range->deleted, bulk.n_deleted);
        if (bulk.nested && p->responses[1]->response_txn->succeeded != bulk.exists)
                fail(W, "bulk: a nested transaction took the wrong branch");
        memcpy(bulk.now, bulk.then, sizeof(bulk.now));
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        a->act_at = W->now + some_time(W, 0, 200 * MSEC);
        if (code != RPC_OK || lost) {
                bulk.unsure = bulk.unsure || bulk.deed == CHANGE;
                bulk.looked = false;
                return;
        }
        if (bulk.deed == CHANGE || bulk.deed == SETTLE) {
                Pb__TxnResponse *p = pb__txn_response__unpack(NULL, m.len, m.p);

                on_changed(p);
                pb_free(p);
        } else {
                Pb__RangeResponse *p = pb__range_response__unpack(NULL, m.len, m.p);

                if (bulk.deed == READ)
                        check_read(p);
                else
                        settle(p);
                pb_free(p);
        }
}

static const struct asker_ops ops = {.act = act, .answered = answered};

void bulk_begin(struct world *w)
{
        static const uint32_t largest[] = {0, 100, 5000, 5000, 100000, 1 << 20};

        if (!w->bulk)
                return;
        bulk = (struct bulk){.n_keys = some(1, chance(w, 50) ? 20 : KEYS_MAX),
                             .puts_most = some(1, chance(w, 50) ? 5 : OPS_MAX - 2),
                             .largest = largest[some(0, ARRAY_SIZE(largest) - 1)],
                             .request_most = sizeof(t.pool),
                             .written_most = WRITTEN_MAX};
        if (w->rated) {
                bulk.request_most = min_of(sizeof(t.pool), (size_t) w->request_most);
                bulk.written_most = min_of((size_t) WRITTEN_MAX, (size_t) w->rate);
        }
        w->bulk_keys = bulk.n_keys;
        w->bulk_largest = bulk.largest;
        asker_begin(&bulk.asker, 0, &ops);
}
