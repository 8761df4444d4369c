/* Reads: ranges with every option that etcd has. */
#include "lease/scan.h"

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

enum state_outcome state_range(const struct state *s, const Pb__RangeRequest *q,
                               struct arena *a, Pb__RangeResponse *out, bool *ret_nomem)
{
        cleanup_(scan_fini) struct state_scan sc = {0};
        enum state_outcome o = scan_begin(&sc, s, q, INT64_MAX);
        int64_t steps = INT64_MAX;
        const struct kv_version *v;

        *ret_nomem = false;
        if (o != STATE_OK)
                return o;
        if (scan_more(&sc, &steps) < 0)
                goto nomem;
        out->kvs = arena_alloc(a, min_of(sc.n, sc.limit) * sizeof(*out->kvs));
        if (!out->kvs)
                goto nomem;
        while ((v = scan_next(&sc))) {
                Pb__KeyValue *kv = out->kvs[out->n_kvs] = arena_alloc(a, sizeof(*kv));

                if (!kv)
                        goto nomem;
                kv_fill(v, kv);
                if (q->keys_only)
                        kv->value = (ProtobufCBinaryData){0};
                out->n_kvs++;
        }
        out->count = sc.count;
        out->more = sc.more;
        return STATE_OK;
nomem:
        *ret_nomem = true;
        return STATE_OK;
}
