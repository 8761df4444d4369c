/* Range reads, with all of etcd's options. */
#include "state/scan.h"

enum state_outcome state_check_range(const Pb__RangeRequest *q)
{
        if (q->key.len == 0)
                return STATE_E_KEY_MISSING;
        if (q->sort_order < PB__RANGE_REQUEST__SORT_ORDER__NONE ||
            q->sort_order > PB__RANGE_REQUEST__SORT_ORDER__DESCEND ||
            q->sort_target < PB__RANGE_REQUEST__SORT_TARGET__KEY ||
            q->sort_target > PB__RANGE_REQUEST__SORT_TARGET__VALUE)
                return STATE_E_SORT;
        return STATE_OK;
}

/* Makes room for one more item, by doubling the array. */
static int reserve(struct arena *a, Pb__RangeResponse *out, size_t *cap)
{
        Pb__KeyValue **kvs;

        if (out->n_kvs < *cap)
                return 0;
        *cap = max_of(2 * *cap, (size_t) 16);
        kvs = arena_alloc(a, *cap * sizeof(*kvs));
        if (!kvs)
                return -ENOMEM;
        if (out->n_kvs > 0)
                memcpy(kvs, out->kvs, out->n_kvs * sizeof(*kvs));
        out->kvs = kvs;
        return 0;
}

static int add(struct arena *a, const Pb__RangeRequest *q, const struct kv_version *v,
               Pb__RangeResponse *out, size_t *cap)
{
        Pb__KeyValue *kv = arena_alloc(a, sizeof(*kv));

        if (!kv || reserve(a, out, cap) < 0)
                return -ENOMEM;
        kv_fill(v, kv);
        if (q->keys_only)
                kv->value = (ProtobufCBinaryData){0};
        out->kvs[out->n_kvs++] = kv;
        return 0;
}

enum state_outcome state_range(const struct state *s, const Pb__RangeRequest *q,
                               struct arena *a, Pb__RangeResponse *out, struct budget *left,
                               bool *ret_nomem)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        enum state_outcome o = scan_begin(&sc, s, q, INT64_MAX);
        int64_t steps = INT64_MAX;
        const struct kv_version *v;
        size_t cap = 0;
        int r;

        *ret_nomem = false;
        if (o != STATE_OK)
                return o;
        do {
                r = scan_next(&sc, &steps, &v);
                if (r == 0 && v)
                        r = add(a, q, v, out, &cap);
        } while (r == 0 && v);
        budget_charge(left, (size_t) (INT64_MAX - steps) / BUDGET_READ_STEPS);
        *ret_nomem = r < 0;
        out->count = sc.count;
        out->more = sc.more;
        return STATE_OK;
}
