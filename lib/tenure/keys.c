/* Keys: get, put and delete; and the keys that a call has read. */
#include "tenure/calls.h"

int range_of(struct tenure *t, const void *key, size_t key_len, const void *end, size_t end_len,
             bool prefix, uint8_t *room, ProtobufCBinaryData *ret, ProtobufCBinaryData *ret_end)
{
        static const uint8_t all[1] = {0};
        size_t n = key_len;

        if (prefix && end)
                return tenure_fail(t, -EINVAL, "a range has a prefix or an end, not both");
        if (key_len == 0 && !prefix && !end)
                return tenure_fail(t, -EINVAL,
                                   "a key has at least one byte; for all keys, use an empty "
                                   "prefix");
        *ret = key_len > 0 ? pb_bytes(key, key_len) : pb_bytes(all, 1);
        *ret_end = pb_bytes(end, end ? end_len : 0);
        if (!prefix)
                return 0;
        if (n > 0)
                memcpy(room, key, n);
        while (n > 0 && room[n - 1] == 0xff) /* no key after the range begins with it */
                n--;
        if (n > 0)
                room[n - 1]++;
        *ret_end = n > 0 ? pb_bytes(room, n) : pb_bytes(all, 1);
        return 0;
}

int range_copy(struct tenure *t, const void *key, size_t key_len, const void *end,
               size_t end_len, bool prefix, struct buf *ret, struct buf *ret_end)
{
        cleanup_(freep) uint8_t *room = malloc(key_len + 1);
        ProtobufCBinaryData k, e;
        int r;

        if (!room)
                return tenure_fail(t, -ENOMEM, "out of memory");
        r = range_of(t, key, key_len, end, end_len, prefix, room, &k, &e);
        if (r < 0)
                return r;
        buf_add(ret, k.data, k.len);
        buf_add(ret_end, e.data, e.len);
        if (buf_error(ret) < 0 || buf_error(ret_end) < 0)
                return tenure_fail(t, -ENOMEM, "out of memory");
        return 0;
}

int lease_of(struct tenure *t, int64_t lease, int64_t *ret)
{
        if (lease == TENURE_LEASE_OURS)
                lease = tenure_lease(t);
        else if (lease < 0)
                return tenure_fail(t, -EINVAL, "a lease's id is positive");
        else {
                *ret = lease;
                return 0;
        }
        if (lease == 0)
                return tenure_fail(t, -ESTALE, "this tie holds no lease now");
        *ret = lease;
        return 0;
}

/* ---- keys that were read ---- */

struct tenure_kv kv_of(const Pb__KeyValue *kv)
{
        return (struct tenure_kv){.key = kv->key.data,
                                  .value = kv->value.data,
                                  .key_len = kv->key.len,
                                  .value_len = kv->value.len,
                                  .create_revision = kv->create_revision,
                                  .mod_revision = kv->mod_revision,
                                  .version = kv->version,
                                  .lease = kv->lease};
}

size_t kv_bytes(const Pb__KeyValue *kv)
{
        return kv->key.len + kv->value.len + 2;
}

int found_new(struct tenure_call *c, size_t n)
{
        c->found = calloc(max_of(n, (size_t) 1), sizeof(*c->found));
        if (!c->found)
                return -ENOMEM;
        c->n_found = n;
        return 0;
}

static char *copy(char *at, const void **p, size_t n)
{
        if (n > 0)
                memcpy(at, *p, n);
        at[n] = '\0';
        *p = at;
        return at + n + 1;
}

int found_copy(struct found *f, Pb__KeyValue *const *kvs, size_t n)
{
        size_t bytes = n * sizeof(*f->kvs);
        char *at;

        if (n == 0)
                return 0;
        for (size_t k = 0; k < n; k++)
                bytes += kv_bytes(kvs[k]);
        f->kvs = malloc(bytes);
        if (!f->kvs)
                return -ENOMEM;
        at = (char *) (f->kvs + n);
        for (size_t k = 0; k < n; k++) {
                f->kvs[k] = kv_of(kvs[k]);
                at = copy(at, &f->kvs[k].key, f->kvs[k].key_len);
                at = copy(at, &f->kvs[k].value, f->kvs[k].value_len);
        }
        f->n = n;
        return 0;
}

int found_kvs(struct tenure_call *c, size_t i, Pb__KeyValue *const *kvs, size_t n)
{
        return found_copy(&c->found[i], kvs, n);
}

/* ---- get ---- */

static int read_range(struct tenure_call *c, const void *answer)
{
        const Pb__RangeResponse *p = answer;
        int r = found_new(c, 1);

        if (r < 0)
                return r;
        c->found[0].count = p->count;
        return found_kvs(c, 0, p->kvs, p->n_kvs);
}

static int read_whole_range(struct tenure_call *c, const void *answer)
{
        return member_range_is_sane(answer) ? read_range(c, answer) : -EBADMSG;
}

const struct call_kind kind_range = {"/etcdserverpb.KV/Range", &pb__range_response__descriptor,
                                     read_whole_range};
const struct call_kind kind_range_part = {"/etcdserverpb.KV/Range",
                                          &pb__range_response__descriptor, read_range};

int range_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                  Pb__RangeRequest *ret)
{
        Pb__RangeRequest p = PB__RANGE_REQUEST__INIT;
        int r = range_of(t, q->key, q->key_len, q->end, q->end_len, q->prefix, room, &p.key,
                         &p.range_end);

        if (r < 0)
                return r;
        if (q->revision < 0 || q->limit < 0)
                return tenure_fail(t, -EINVAL, "a revision and a limit are 0 or more");
        p.revision = q->revision;
        p.limit = q->limit;
        p.keys_only = q->keys_only;
        p.count_only = q->count_only;
        p.serializable = q->serializable;
        *ret = p;
        return 0;
}

int tenure_get(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret)
{
        cleanup_(freep) uint8_t *room = malloc(q->key_len + 1);
        Pb__RangeRequest p;
        struct tenure_call *c;
        int r;

        if (!room)
                return tenure_fail(t, -ENOMEM, "out of memory");
        r = range_request(t, q, room, &p);
        if (r == 0)
                r = call_new(t, q->count_only ? &kind_range_part : &kind_range, &c);
        if (r < 0)
                return r;
        pb_append(&c->request, &p.base);
        c->local = q->serializable;
        return call_begin(c, ret);
}

/* ---- put ---- */

static int read_put(struct tenure_call *c, const void *answer)
{
        (void) answer;
        return found_new(c, 1);
}

static const struct call_kind kind_put = {"/etcdserverpb.KV/Put", &pb__put_response__descriptor,
                                          read_put};

int put_request(struct tenure *t, const void *key, size_t key_len, const void *value,
                size_t value_len, int64_t lease, Pb__PutRequest *ret)
{
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        int r;

        if (key_len == 0)
                return tenure_fail(t, -EINVAL, "a key has at least one byte");
        p.key = pb_bytes(key, key_len);
        p.value = pb_bytes(value, value_len);
        r = lease_of(t, lease, &p.lease);
        if (r == 0)
                *ret = p;
        return r;
}

int tenure_put(struct tenure *t, const void *key, size_t key_len, const void *value,
               size_t value_len, int64_t lease, struct tenure_call **ret)
{
        Pb__PutRequest p;
        int r = put_request(t, key, key_len, value, value_len, lease, &p);

        return r < 0 ? r : call_ask(t, &kind_put, &p.base, true, ret);
}

int put_request_named(struct tenure *t, const void *key, size_t key_len, const void *value,
                      size_t value_len, const char *name, Pb__PutRequest *ret)
{
        int r = lease_name_check(t, name);

        if (r == 0)
                r = put_request(t, key, key_len, value, value_len, 0, ret);
        if (r < 0)
                return r;
        ret->lease = PB_LEASE_BY_NAME;
        ret->lease_name = pb_bytes(name, strlen(name));
        return 0;
}

int tenure_put_named(struct tenure *t, const void *key, size_t key_len, const void *value,
                     size_t value_len, const char *name, struct tenure_call **ret)
{
        Pb__PutRequest p;
        struct tenure_call *c;
        int r = put_request_named(t, key, key_len, value, value_len, name, &p);

        if (r == 0)
                r = call_new(t, &kind_put, &c);
        if (r < 0)
                return r;
        pb_append(&c->request, &p.base);
        c->changes = c->named = true;
        return call_begin(c, ret);
}

/* ---- delete ---- */

static int read_delete(struct tenure_call *c, const void *answer)
{
        const Pb__DeleteRangeResponse *p = answer;
        int r = found_new(c, 1);

        if (r == 0)
                c->found[0].count = p->deleted;
        return r;
}

static const struct call_kind kind_delete = {
        "/etcdserverpb.KV/DeleteRange", &pb__delete_range_response__descriptor, read_delete};

int delete_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                   Pb__DeleteRangeRequest *ret)
{
        Pb__DeleteRangeRequest p = PB__DELETE_RANGE_REQUEST__INIT;
        int r;

        if (q->revision != 0 || q->limit != 0 || q->keys_only || q->count_only ||
            q->serializable)
                return tenure_fail(t, -EINVAL,
                                   "a deletion takes a key, an end and a prefix; leave "
                                   "revision, limit and the like 0");
        r = range_of(t, q->key, q->key_len, q->end, q->end_len, q->prefix, room, &p.key,
                     &p.range_end);
        if (r == 0)
                *ret = p;
        return r;
}

int tenure_delete(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret)
{
        cleanup_(freep) uint8_t *room = malloc(q->key_len + 1);
        Pb__DeleteRangeRequest p;
        int r;

        if (!room)
                return tenure_fail(t, -ENOMEM, "out of memory");
        r = delete_request(t, q, room, &p);
        return r < 0 ? r : call_ask(t, &kind_delete, &p.base, true, ret);
}
