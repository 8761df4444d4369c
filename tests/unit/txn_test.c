#include "../whole.h"
#include "state/internal.h"
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

/* ---- what a command may look at ---- */

static enum state_outcome apply(struct state *s, enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf body = {0}, out = {0};
        struct state_reply reply = {.out = &out};
        struct cmd c = {.type = type};

        pb__response_header__init(&reply.header);
        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(s, s->applied + 1, (struct lease_time){NSEC_PER_SEC});
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

static void put(struct state *s, const char *key, size_t value_len, int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        cleanup_(freep) uint8_t *value = calloc(1, value_len + 1);

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, value_len);
        q.lease = lease;
        CHECK_EQ(apply(s, CMD_PUT, &q.base), STATE_OK);
}

static void fill(struct state *s, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%06u", i);
                put(s, key, 1, 0);
        }
}

/* A txn of one operation, or with one compare, on all keys that begin with k up to @to. */
struct one {
        Pb__Compare compare, *compares[1];
        Pb__RangeRequest range;
        Pb__DeleteRangeRequest del;
        Pb__PutRequest put;
        Pb__RequestOp op[2], *ops[2];
        Pb__TxnRequest q;
};

static void one(struct one *o, const char *to)
{
        *o = (struct one){PB__COMPARE__INIT,       {&o->compare},
                          PB__RANGE_REQUEST__INIT, PB__DELETE_RANGE_REQUEST__INIT,
                          PB__PUT_REQUEST__INIT,   {PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT},
                          {&o->op[0], &o->op[1]},  PB__TXN_REQUEST__INIT};
        o->put.key = pb_bytes("a", 1);
        o->op[0].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        o->op[0].request_put = &o->put;
        o->compare.key = o->range.key = o->del.key = pb_bytes("k", 1);
        o->compare.range_end = o->range.range_end = o->del.range_end = pb_bytes(to, strlen(to));
        o->compare.result = PB__COMPARE__COMPARE_RESULT__GREATER;
        o->q.success = o->ops;
        o->q.n_success = 1;
}

static void with_range(struct one *o)
{
        o->op[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        o->op[1].request_range = &o->range;
        o->q.n_success = 2;
}

/* It is applied in one turn: a txn of 10,000 puts among a million keys took 80 ms. */
TEST(a_txn_looks_for_so_many_keys)
{
        Pb__RequestOp op[STATE_TXN_OPS_MAX], *ops[STATE_TXN_OPS_MAX];
        Pb__Compare compare = PB__COMPARE__INIT, *compares[STATE_TXN_OPS_MAX];
        Pb__PutRequest puts[STATE_TXN_OPS_MAX];
        cleanup_(buf_fini) struct buf body = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_TXN};
        char keys[STATE_TXN_OPS_MAX][8];
        struct budget left = {1000000};
        struct state s;

        state_init(&s);
        compare.key = pb_bytes("a", 1);
        compare.result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        compare.target = PB__COMPARE__COMPARE_TARGET__MOD;
        for (unsigned i = 0; i < STATE_TXN_OPS_MAX; i++) {
                snprintf(keys[i], sizeof(keys[i]), "k%03u", i);
                pb__put_request__init(&puts[i]);
                puts[i].key = pb_bytes(keys[i], 4);
                pb__request_op__init(&op[i]);
                op[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                op[i].request_put = &puts[i];
                ops[i] = &op[i];
                compares[i] = &compare;
        }
        q.success = ops;
        q.compare = compares;
        q.n_success = STATE_TXN_OPS_MAX / 2 + 1;
        q.n_compare = STATE_TXN_OPS_MAX / 2;
        CHECK_EQ(apply(&s, CMD_TXN, &q.base), STATE_E_TXN_TOO_LARGE);
        q.n_success--;
        CHECK_EQ(apply(&s, CMD_TXN, &q.base), STATE_OK);
        /* Several of them in one entry are more than one turn. */
        q.n_compare = 0;
        q.n_success = STATE_TXN_OPS_MAX;
        pb_append(&body, &q.base);
        c.body = (struct view){body.data, buf_len(&body)};
        CHECK_EQ(state_apply_some(&s, &c, &reply, &left), 0);
        CHECK_EQ(reply.outcome, STATE_OK);
        CHECK(left.left <= 1000000 - 20 * STATE_TXN_OPS_MAX);
        state_fini(&s);
}

#define LARGE ((size_t) 200000)

static void put_large(struct state *s, uint8_t last)
{
        static uint8_t value[LARGE];
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        char key[8];

        value[LARGE - 1] = last;
        p.key = pb_bytes(key, (size_t) snprintf(key, sizeof(key), "k%03u", last));
        p.value = pb_bytes(value, LARGE);
        CHECK_EQ(apply(s, CMD_PUT, &p.base), STATE_OK);
}

static int at_the_door(const struct state *s, const Pb__TxnRequest *q)
{
        struct state_admission a = {.at = ADMIT_DOOR, .max_txn_ops = STATE_TXN_OPS_MAX};
        struct cmd c = {.type = CMD_TXN};
        struct budget left = BUDGET_ALL;

        return state_admit(s, &c, q, &left, &a);
}

/* Every replica applies it in one turn, in which renewals wait. So it is refused where it comes
 * in; one that is in the log is applied as by every version. */
TEST(a_txn_compares_so_many_bytes)
{
        static uint8_t value[LARGE];
        Pb__Compare c = PB__COMPARE__INIT, *compares[1] = {&c};
        struct state s;
        struct one o;

        state_init(&s);
        for (uint8_t i = 0; i < 190; i++)
                put_large(&s, i);
        one(&o, "l");
        with_range(&o);
        o.range.keys_only = true;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);
        o.range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        o.range.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);
        one(&o, "k003");
        with_range(&o);
        o.range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);

        one(&o, "l");
        c.key = pb_bytes("k", 1);
        c.range_end = pb_bytes("l", 1);
        c.target = PB__COMPARE__COMPARE_TARGET__VALUE;
        c.target_union_case = PB__COMPARE__TARGET_UNION_VALUE;
        c.result = PB__COMPARE__COMPARE_RESULT__NOT_EQUAL;
        c.value = pb_bytes(value, LARGE);
        o.q.compare = compares;
        o.q.n_compare = 1;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);
        for (uint8_t i = 190; i < 255; i++)
                put_large(&s, i);
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        state_fini(&s);
}

#define LONG_KEY ((size_t) 200000)

/* Each key that a range visits is compared with both of its ends. */
TEST(a_txn_compares_so_many_bytes_of_keys)
{
        static uint8_t key[LONG_KEY], end[LONG_KEY];
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        struct state_admission a = {.at = ADMIT_DOOR};
        struct cmd c = {.type = CMD_DELETE_RANGE};
        struct budget left = BUDGET_ALL;
        struct state s;
        struct one o;

        state_init(&s);
        p.key = pb_bytes(key, LONG_KEY);
        for (unsigned i = 0; i < 120; i++) {
                key[LONG_KEY - 1] = (uint8_t) i;
                CHECK_EQ(apply(&s, CMD_PUT, &p.base), STATE_OK);
        }
        key[LONG_KEY - 1] = 0;
        end[LONG_KEY - 1] = 200;
        one(&o, "l");
        o.compare.key = o.range.key = o.del.key = pb_bytes(key, LONG_KEY);
        o.compare.range_end = o.range.range_end = o.del.range_end = pb_bytes(end, LONG_KEY);
        o.compare.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        o.q.compare = o.compares;
        o.q.n_compare = 1;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);
        o.compare.range_end = pb_bytes("l", 1);
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);
        o.q.n_compare = 0;

        with_range(&o);
        o.range.limit = 3;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);
        o.range.max_mod_revision = 1;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);
        o.range.max_mod_revision = 0;
        o.range.count_only = true;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_OK);
        o.range.revision = s.revision - 1;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);

        o.q.n_success = 1;
        o.op[0].request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        o.op[0].request_delete_range = &o.del;
        CHECK_EQ(at_the_door(&s, &o.q), STATE_E_TXN_TOO_LARGE);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        CHECK_EQ(s.kv.n_keys, 0);

        /* Old values that are too many for an answer are not all looked at. */
        for (unsigned i = 0; i < 120; i++) {
                key[LONG_KEY - 1] = (uint8_t) i;
                CHECK_EQ(apply(&s, CMD_PUT, &p.base), STATE_OK);
        }
        key[LONG_KEY - 1] = 0;
        o.del.prev_kv = true;
        CHECK_EQ(state_admit(&s, &c, &o.del, &left, &a), STATE_E_DELETE_TOO_LARGE);
        CHECK(a.answer > STATE_DELETE_BYTES_MAX && a.answer < 18000000);
        state_fini(&s);
}

/* What the txn itself puts is sorted with what was there. */
TEST(a_txn_compares_what_it_puts)
{
        enum { PUTS = 100, LEN = 10000 };
        static uint8_t value[LEN];
        Pb__RequestOp op[PUTS + 1], *ops[PUTS + 1];
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__PutRequest puts[PUTS];
        char keys[PUTS][8];
        struct state s;

        state_init(&s);
        fill(&s, 200);
        range.key = pb_bytes("k", 1);
        range.range_end = pb_bytes("l", 1);
        range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        range.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        range.keys_only = true;
        for (unsigned i = 0; i <= PUTS; i++) {
                pb__request_op__init(&op[i]);
                ops[i] = &op[i];
                if (i == PUTS)
                        break;
                snprintf(keys[i], sizeof(keys[i]), "k%u", i);
                pb__put_request__init(&puts[i]);
                puts[i].key = pb_bytes(keys[i], strlen(keys[i]));
                op[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                op[i].request_put = &puts[i];
        }
        op[PUTS].request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op[PUTS].request_range = &range;
        q.success = ops;
        q.n_success = PUTS + 1;
        CHECK_EQ(at_the_door(&s, &q), STATE_OK);
        for (unsigned i = 0; i < PUTS; i++)
                puts[i].value = pb_bytes(value, LEN);
        CHECK_EQ(at_the_door(&s, &q), STATE_E_TXN_TOO_LARGE);
        range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__KEY;
        CHECK_EQ(at_the_door(&s, &q), STATE_OK);
        state_fini(&s);
}

TEST(a_txn_looks_at_so_many_keys)
{
        const char *all = "l", *most = "k009990"; /* and the look for where they begin */
        struct state s;
        struct one o;
        int64_t was;

        state_init(&s);
        fill(&s, STATE_TXN_STEPS_MAX + 1);
        was = s.revision;
        one(&o, all);
        o.q.compare = o.compares;
        o.q.n_compare = 1;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        one(&o, all);
        with_range(&o);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        one(&o, all);
        o.op[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        o.op[1].request_delete_range = &o.del;
        o.q.n_success = 2;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        CHECK_EQ(s.revision, was);

        one(&o, most);
        o.q.compare = o.compares;
        o.q.n_compare = 1;
        o.q.n_success = 0;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        one(&o, all); /* a few of many, or their number, is not many */
        with_range(&o);
        o.range.limit = 10;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        o.range.limit = 0;
        o.range.count_only = true;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        CHECK_EQ(s.revision, was + 2);
        state_fini(&s);
}

/* A range over more keys than a txn may look at, all of them dead. */
static void with_dead_keys(struct state *s, struct one *o)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;

        state_init(s);
        fill(s, STATE_TXN_STEPS_MAX + 1);
        del.key = pb_bytes("k", 1);
        del.range_end = pb_bytes("l", 1);
        CHECK_EQ(apply(s, CMD_DELETE_RANGE, &del.base), STATE_OK);
        one(o, "l");
        with_range(o);
}

/* Keys that were deleted and are kept for their history cost nothing now, and count then. */
TEST(a_txn_that_looks_back_looks_at_what_changed_since)
{
        struct state s;
        struct one o;

        with_dead_keys(&s, &o);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        o.range.revision = 5;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        state_fini(&s);
}

/* The cost of a read of the past must not depend on changes of other keys: a txn that looked
 * back at one key was refused after 3,330 puts of others. */
TEST(a_txn_looks_back_at_one_key)
{
        const unsigned most = 2 * STATE_TXN_STEPS_MAX; /* changes of it since */
        struct state s;
        struct one o;

        state_init(&s);
        put(&s, "k", 1, 0);
        for (unsigned i = 0; i < 20000; i++)
                put(&s, "other", 0, 0);
        one(&o, "");
        with_range(&o);
        o.range.revision = 2;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        for (unsigned i = 0; i < most - 200; i++)
                put(&s, "k", 0, 0);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        o.range.revision = s.revision - 100;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        /* There is an end to it, for the chain of its versions is walked. */
        for (unsigned i = 0; i < 200; i++)
                put(&s, "k", 0, 0);
        o.range.revision = 2;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        kv_compact(&s.kv, s.revision);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_COMPACTED);
        state_fini(&s);
}

/* The newest revision is an old one as soon as the txn has written: then the dead keys that
 * cost nothing before are looked at, each. A million of them held the loop for 250 ms. */
TEST(a_txn_that_has_written_looks_back)
{
        struct state s;
        struct one o;

        with_dead_keys(&s, &o);
        o.range.revision = s.revision;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        o.range.revision = 0;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        o.range.revision = s.revision; /* nothing is written */
        o.ops[0] = &o.op[1];
        o.q.n_success = 1;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        state_fini(&s);
}

TEST(a_txn_answers_so_many_bytes)
{
        struct state s;
        struct one o;

        state_init(&s);
        for (unsigned i = 0; i < 17; i++) {
                char key[8];

                snprintf(key, sizeof(key), "k%02u", i);
                put(&s, key, 1 << 20, 0);
        }
        one(&o, "l");
        with_range(&o);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_E_TXN_TOO_LARGE);
        o.range.keys_only = true;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        one(&o, "k09");
        with_range(&o);
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        one(&o, "l"); /* the newest of all: a lock's question */
        with_range(&o);
        o.range.limit = 1;
        o.range.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        o.range.sort_target = PB__RANGE_REQUEST__SORT_TARGET__CREATE;
        CHECK_EQ(apply(&s, CMD_TXN, &o.q.base), STATE_OK);
        state_fini(&s);
}

/* As deep as etcd's own limit of operations lets it. */
TEST(a_txn_nests_as_deep_as_its_operations_last)
{
        cleanup_(arena_fini) struct arena a = {0};
        Pb__TxnRequest *q = NULL;
        struct state s;

        for (unsigned depth = 0; depth < 129; depth++) {
                Pb__TxnRequest *out = arena_alloc(&a, sizeof(*out));
                Pb__RequestOp *op = arena_alloc(&a, sizeof(*op));

                pb__txn_request__init(out);
                pb__request_op__init(op);
                if (depth == 0) {
                        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                        op->request_put = arena_alloc(&a, sizeof(*op->request_put));
                        pb__put_request__init(op->request_put);
                        op->request_put->key = pb_bytes("deep", 4);
                } else {
                        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
                        op->request_txn = q;
                }
                out->success = arena_alloc(&a, sizeof(Pb__RequestOp *));
                out->success[0] = op;
                out->n_success = 1;
                q = out;
                CHECK_EQ(state_check_txn(q, 128),
                         depth < 128 ? STATE_OK : STATE_E_TXN_TOO_LARGE);
        }
        state_init(&s);
        CHECK_EQ(apply(&s, CMD_TXN, &q->base), STATE_OK);
        CHECK(kv_find(&s.kv, "deep", 4));
        state_fini(&s);
}

/* Operations of all branches together: nested ones, a few in each, are many. */
TEST(a_txn_has_so_many_operations_in_all)
{
        Pb__PutRequest put_q = PB__PUT_REQUEST__INIT;
        Pb__RequestOp leaf = PB__REQUEST_OP__INIT, branch = PB__REQUEST_OP__INIT, *ops[64];
        Pb__TxnRequest inner = PB__TXN_REQUEST__INIT, q = PB__TXN_REQUEST__INIT;
        Pb__RequestOp *leaves[5] = {&leaf, &leaf, &leaf, &leaf, &leaf};

        put_q.key = pb_bytes("k", 1);
        leaf.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        leaf.request_put = &put_q;
        branch.request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
        branch.request_txn = &inner;
        inner.success = leaves;
        for (size_t i = 0; i < 64; i++)
                ops[i] = &branch;
        q.success = ops;
        q.n_success = 64;
        inner.n_success = 5; /* 64 + 320 = 3 * 128 */
        CHECK_EQ(state_check_txn(&q, 128), STATE_E_TXN_DUPLICATE);
        q.n_success = 63;
        inner.n_success = 5;
        q.failure = ops;
        q.n_failure = 2;
        CHECK_EQ(state_check_txn(&q, 128), STATE_E_TXN_TOO_LARGE);
}

TEST(a_lease_holds_so_many_keys)
{
        Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct lease *l;
        struct state s;

        state_init(&s);
        g.id = 1;
        g.ttl_ms = 1000;
        CHECK_EQ(apply(&s, CMD_GRANT, &g.base), STATE_OK);
        put(&s, "a", 1, 1);
        l = leases_find(&s.leases, 1);
        l->n_keys += STATE_LEASE_KEYS_MAX - 1; /* as if there were so many */
        q.key = pb_bytes("b", 1);
        q.lease = 1;
        CHECK_EQ(apply(&s, CMD_PUT, &q.base), STATE_E_LEASE_KEYS);
        put(&s, "a", 1, 1); /* hangs there already */
        l->n_keys -= STATE_LEASE_KEYS_MAX - 1;
        state_fini(&s);
}

/* Thousands of leases with many keys each end in several entries, one soon after the other. */
TEST(an_expiry_takes_so_many_keys_along)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct lease_time late = {10 * NSEC_PER_SEC};
        struct state s;

        state_init(&s);
        for (int64_t id = 1; id <= 4; id++) {
                Pb__LeaseGrantRequest g = PB__LEASE_GRANT_REQUEST__INIT;

                g.id = id;
                g.ttl_ms = 1000;
                CHECK_EQ(apply(&s, CMD_GRANT, &g.base), STATE_OK);
                leases_find(&s.leases, id)->n_keys = STATE_EXPIRE_KEYS / 2; /* as if */
        }
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, NSEC_PER_SEC), 100, &body), 2);
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, NSEC_PER_SEC), 100, &body), 2);
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, NSEC_PER_SEC), 100, &body), 0);
        state_fini(&s);
}

/* Live keys, found past dead ones: as a walk over all finds them. */
TEST(a_walk_over_live_keys_finds_all_of_them)
{
        struct state s;

        state_init(&s);
        for (unsigned i = 0; i < 3000; i++) {
                Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
                struct kv_key *live, *k;
                struct kv_span span;
                char from[8], to[8];

                snprintf(from, sizeof(from), "%03u", (unsigned) rnd(0, 300));
                snprintf(to, sizeof(to), "%03u", (unsigned) rnd(0, 300));
                del.key = pb_bytes(from, 3);
                if (rnd(0, 5) == 0)
                        del.range_end = pb_bytes(to, 3);
                if (rnd(0, 3) == 0)
                        (void) apply(&s, CMD_DELETE_RANGE, &del.base);
                else
                        put(&s, from, 1, 0);
                span = kv_span(&del.key, &del.range_end);
                live = kv_live_first(&s.kv, &span);
                for (k = kv_span_first(&s.kv, &span); k; k = kv_span_next(&span, k)) {
                        if (!kv_live(k))
                                continue;
                        CHECK(k == live);
                        live = kv_live_next(&span, live);
                }
                CHECK(!live);
                CHECK(s.kv.n_all >= s.kv.n_keys);
        }
        state_fini(&s);
}
