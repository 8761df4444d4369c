#include "member/switchover.h"

#include <inttypes.h>

#include "member/json.h"

#define WITHIN_MAX_MS INT64_C(86400000)

static const struct json_text texts[] = {
        JSON_TEXT(struct switchover, "to", to),
        JSON_TEXT(struct switchover, "from", from),
        JSON_TEXT(struct switchover, "by", by),
        JSON_TEXT(struct switchover, "key", key),
        JSON_TEXT(struct switchover, "holder", holder),
};

void switchover_write(const struct switchover *s, struct buf *out)
{
        struct json_object *o = json_object_new_object();

        if (o) {
                json_put_texts(o, texts, ARRAY_SIZE(texts), s);
                json_object_object_add(o, "created", json_object_new_int64(s->created));
                json_object_object_add(o, "within_ms", json_object_new_int64(s->within_ms));
        }
        json_finish(o, out);
}

static int64_t number(struct json_object *o, const char *key)
{
        struct json_object *v;

        return json_object_object_get_ex(o, key, &v) && json_object_is_type(v, json_type_int)
                       ? json_object_get_int64(v)
                       : 0;
}

int switchover_read(struct switchover *s, const void *p, size_t len)
{
        struct json_object *o;
        int r = json_begin(p, len, &o);

        if (r < 0)
                return r;
        *s = (struct switchover){0};
        json_get_texts(o, texts, ARRAY_SIZE(texts), s);
        s->created = number(o, "created");
        s->within_ms = min_of(number(o, "within_ms"), WITHIN_MAX_MS);
        json_object_put(o);
        return *s->key && s->created > 0 && s->within_ms > 0 ? 0 : -EBADMSG;
}

void switchover_key(const char *name, struct buf *out)
{
        buf_printf(out, "%s.switchover", name);
}

void switchover_range(const char *name, struct buf *from, struct buf *to)
{
        buf_printf(from, "%s/", name);
        buf_printf(to, "%s%c", name, '/' + 1);
}

static bool is_target(const struct switchover *s, const struct switchover_at *at)
{
        return strlen(s->key) == at->len && memcmp(s->key, at->key, at->len) == 0 &&
               s->created == at->created;
}

/* Whether the keys of @s and @own belong to the same lock, by their names up to the last
 * slash. */
static bool is_of_the_lock_of(const struct switchover *s, const struct switchover_at *own)
{
        const char *slash = memrchr(own->key, '/', own->len);
        size_t n = slash ? (size_t) (slash - (const char *) own->key) + 1 : 0;

        return strlen(s->key) > n && memcmp(s->key, own->key, n) == 0;
}

enum switchover_part switchover_judge(const struct switchover *s,
                                      const struct switchover_at *own)
{
        if (is_target(s, own))
                return SWITCHOVER_TARGET;
        /* A waiter's key is newer than the holder's. */
        if (s->created <= own->created || !is_of_the_lock_of(s, own))
                return SWITCHOVER_NOT_OURS;
        if (strlen(s->holder) == own->len && memcmp(s->holder, own->key, own->len) == 0)
                return SWITCHOVER_ACCEPTED;
        return SWITCHOVER_ASKED;
}

/* ---- transactions ---- */

static struct switchover_at target_of(const struct switchover *s)
{
        return (struct switchover_at){
                .key = s->key, .len = strlen(s->key), .created = s->created};
}

static void compare_created(Pb__Compare *c, const struct switchover_at *at)
{
        pb__compare__init(c);
        c->key = pb_bytes(at->key, at->len);
        c->target = PB__COMPARE__COMPARE_TARGET__CREATE;
        c->target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        c->create_revision = at->created;
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

static void compare_modified(Pb__Compare *c, const struct buf *key, int64_t mod)
{
        pb__compare__init(c);
        c->key = pb_bytes(buf_head(key), buf_len(key));
        c->target = PB__COMPARE__COMPARE_TARGET__MOD;
        c->target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c->mod_revision = mod;
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

static void delete_op(Pb__RequestOp *op, Pb__DeleteRangeRequest *d, ProtobufCBinaryData key)
{
        pb__request_op__init(op);
        pb__delete_range_request__init(d);
        d->key = key;
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op->request_delete_range = d;
}

static void get_op(Pb__RequestOp *op, Pb__RangeRequest *g, ProtobufCBinaryData key)
{
        pb__request_op__init(op);
        pb__range_request__init(g);
        g->key = key;
        g->keys_only = true;
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op->request_range = g;
}

/* The create revision of the key that the other branch of the Txn has read; 0: there is no
 * key. */
static int looked_at(const Pb__TxnResponse *p, int64_t *ret)
{
        const Pb__RangeResponse *r;

        if (p->n_responses != 1 ||
            p->responses[0]->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return -EBADMSG;
        r = p->responses[0]->response_range;
        *ret = r->n_kvs > 0 ? r->kvs[0]->create_revision : 0;
        return 0;
}

static void put_op(Pb__RequestOp *op, Pb__PutRequest *p, const struct buf *key,
                   const struct buf *value, int64_t lease)
{
        pb__request_op__init(op);
        pb__put_request__init(p);
        p->key = pb_bytes(buf_head(key), buf_len(key));
        p->value = pb_bytes(buf_head(value), buf_len(value));
        p->lease = lease;
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op->request_put = p;
}

void switchover_ask(const char *name, const struct switchover *s,
                    const struct switchover_at *holder, int64_t lease, struct buf *out)
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        struct switchover_at target = target_of(s);
        Pb__Compare c[3], *cs[] = {&c[0], &c[1], &c[2]};
        Pb__RequestOp op, *ops[] = {&op};
        Pb__PutRequest put;

        switchover_key(name, &key);
        switchover_write(s, &value);
        if (buf_error(&key) < 0 || buf_error(&value) < 0) {
                out->failed = true;
                return;
        }
        compare_modified(&c[0], &key, 0);
        compare_created(&c[1], holder);
        compare_created(&c[2], &target);
        put_op(&op, &put, &key, &value, lease);
        q.compare = cs;
        q.n_compare = ARRAY_SIZE(c);
        q.success = ops;
        q.n_success = 1;
        pb_append(out, &q.base);
}

void switchover_push(const char *name, const struct switchover *s,
                     const struct switchover_at *own, const struct switchover_at *between,
                     size_t n, bool last, int64_t mod, int64_t lease, struct buf *out)
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__Compare c[3 + SWITCHOVER_PUSH_MAX], *cs[ARRAY_SIZE(c)];
        Pb__RequestOp op[1 + SWITCHOVER_PUSH_MAX], *ops[ARRAY_SIZE(op)];
        Pb__DeleteRangeRequest d[SWITCHOVER_PUSH_MAX];
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        struct switchover_at target = target_of(s);
        struct switchover accepted = *s;
        Pb__RequestOp no, *no_ops[] = {&no};
        Pb__RangeRequest get;
        Pb__PutRequest put;

        assert(n <= SWITCHOVER_PUSH_MAX && own->len < sizeof(accepted.holder));
        memcpy(accepted.holder, own->key, own->len);
        accepted.holder[own->len] = '\0';
        switchover_key(name, &key);
        switchover_write(&accepted, &value);
        if (buf_error(&key) < 0 || buf_error(&value) < 0) {
                out->failed = true;
                return;
        }
        compare_modified(&c[0], &key, mod);
        compare_created(&c[1], own);
        compare_created(&c[2], &target);
        /* A key that was deleted meanwhile and created again after the target's is not
         * deleted. */
        for (size_t i = 0; i < n; i++) {
                compare_created(&c[3 + i], &between[i]);
                c[3 + i].create_revision = s->created;
                c[3 + i].result = PB__COMPARE__COMPARE_RESULT__LESS;
                delete_op(&op[i], &d[i], c[3 + i].key);
        }
        if (last)
                put_op(&op[n], &put, &key, &value, lease);
        for (size_t i = 0; i < ARRAY_SIZE(c); i++)
                cs[i] = &c[i];
        for (size_t i = 0; i < ARRAY_SIZE(op); i++)
                ops[i] = &op[i];
        q.compare = cs;
        q.n_compare = 3 + n;
        q.success = ops;
        q.n_success = n + last;
        get_op(&no, &get, c[2].key);
        q.failure = no_ops;
        q.n_failure = 1;
        pb_append(out, &q.base);
}

int switchover_pushed(const Pb__TxnResponse *p, const struct switchover *s)
{
        int64_t created;
        int r;

        if (p->succeeded)
                return 0;
        r = looked_at(p, &created);
        if (r < 0)
                return r;
        return created == s->created ? -ECANCELED : -ESRCH;
}

void switchover_hand_over(const struct switchover *s, const struct switchover_at *own,
                          struct buf *out)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        struct switchover_at target = target_of(s);
        Pb__Compare c[2], *cs[] = {&c[0], &c[1]};
        Pb__RequestOp yes, no, *yes_ops[] = {&yes}, *no_ops[] = {&no};
        Pb__RangeRequest get;
        Pb__DeleteRangeRequest d;

        compare_created(&c[0], own);
        compare_created(&c[1], &target);
        delete_op(&yes, &d, c[0].key);
        get_op(&no, &get, c[0].key);
        q.compare = cs;
        q.n_compare = ARRAY_SIZE(c);
        q.success = yes_ops;
        q.failure = no_ops;
        q.n_success = q.n_failure = 1;
        pb_append(out, &q.base);
}

int switchover_ended(const Pb__TxnResponse *p, const struct switchover_at *own,
                     enum switchover_end *ret)
{
        int64_t created;
        int r;

        if (p->succeeded) {
                *ret = SWITCHOVER_DONE;
                return 0;
        }
        r = looked_at(p, &created);
        if (r == 0)
                *ret = created == own->created ? SWITCHOVER_KEPT : SWITCHOVER_LOST;
        return r;
}

void switchover_withdraw(const char *name, int64_t mod, struct buf *out)
{
        cleanup_(buf_fini) struct buf key = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__RequestOp op, *ops[] = {&op};
        Pb__DeleteRangeRequest d;

        switchover_key(name, &key);
        if (buf_error(&key) < 0) {
                out->failed = true;
                return;
        }
        compare_modified(&c, &key, mod);
        delete_op(&op, &d, c.key);
        q.compare = cs;
        q.success = ops;
        q.n_compare = q.n_success = 1;
        pb_append(out, &q.base);
}
