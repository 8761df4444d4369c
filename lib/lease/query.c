/* Reads: ranges with every option that etcd has. */
#include "lease/state.h"

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

static bool wanted(const Pb__RangeRequest *q, const struct kv_version *v)
{
        return (q->min_mod_revision == 0 || v->mod_revision >= q->min_mod_revision) &&
               (q->max_mod_revision == 0 || v->mod_revision <= q->max_mod_revision) &&
               (q->min_create_revision == 0 || v->create_revision >= q->min_create_revision) &&
               (q->max_create_revision == 0 || v->create_revision <= q->max_create_revision);
}

static int cmp_i64(int64_t a, int64_t b)
{
        return a < b ? -1 : a > b;
}

static int by_target(const void *a, const void *b, void *arg)
{
        const struct kv_version *x = *(const struct kv_version *const *) a,
                                *y = *(const struct kv_version *const *) b;
        const Pb__RangeRequest *q = arg;
        int c = 0;

        switch (q->sort_target) {
        case PB__RANGE_REQUEST__SORT_TARGET__VERSION:
                c = cmp_i64(x->version, y->version);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__CREATE:
                c = cmp_i64(x->create_revision, y->create_revision);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__MOD:
                c = cmp_i64(x->mod_revision, y->mod_revision);
                break;
        case PB__RANGE_REQUEST__SORT_TARGET__VALUE:
                c = bytes_cmp(x->value, x->value_len, y->value, y->value_len);
                break;
        default:
                c = bytes_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len);
                break;
        }
        if (q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND)
                c = -c;
        /* Equal ones stay in the order of their keys. */
        return c != 0 ? c : bytes_cmp(x->key->bytes, x->key->len, y->key->bytes, y->key->len);
}

enum state_outcome state_range(const struct state *s, const Pb__RangeRequest *q,
                               struct arena *a, Pb__RangeResponse *out, bool *ret_nomem)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        cleanup_(freep) const struct kv_version **found = NULL;
        bool sorted = q->sort_target != PB__RANGE_REQUEST__SORT_TARGET__KEY ||
                      q->sort_order == PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        bool filtered = q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
                        q->max_create_revision;
        size_t n = 0, cap = 0, limit = q->limit > 0 ? (size_t) q->limit : SIZE_MAX;
        /* With a target and no order, etcd sorts what the limit has left. */
        bool all = filtered || (sorted && q->sort_order != PB__RANGE_REQUEST__SORT_ORDER__NONE);
        size_t keep = all || limit == SIZE_MAX ? SIZE_MAX : limit + 1;
        bool counted;

        *ret_nomem = false;
        if (q->revision > s->revision)
                return STATE_E_FUTURE;
        if (q->revision > 0 && q->revision < s->kv.compacted)
                return STATE_E_COMPACTED;

        /* How many there are now, the tree knows; how many there were, only a walk tells. */
        counted = kv_is_newest(&s->kv, q->revision);
        if (counted)
                out->count = (int64_t) kv_span_count(&s->kv, &span);
        if (counted && q->count_only)
                return STATE_OK;
        for (struct kv_key *k = counted ? kv_live_first(&s->kv, &span)
                                        : kv_span_first(&s->kv, &span);
             k && !(counted && n >= keep);
             k = counted ? kv_live_next(&span, k) : kv_span_next(&span, k)) {
                const struct kv_version *v = kv_at(k, q->revision);

                if (!v)
                        continue;
                if (!counted)
                        out->count++;
                if (q->count_only || n >= keep || !wanted(q, v))
                        continue;
                if (array_reserve(&found, &cap, n + 1, sizeof(*found)) < 0)
                        goto nomem;
                found[n++] = v;
        }
        if (q->count_only || n == 0)
                return STATE_OK;
        if (sorted)
                qsort_r(found, n, sizeof(*found), by_target, (void *) (uintptr_t) q);
        if (n > limit) {
                n = limit;
                out->more = true;
        }
        out->kvs = arena_alloc(a, n * sizeof(*out->kvs));
        if (!out->kvs)
                goto nomem;
        for (size_t i = 0; i < n; i++) {
                out->kvs[i] = arena_alloc(a, sizeof(**out->kvs));
                if (!out->kvs[i])
                        goto nomem;
                kv_fill(found[i], out->kvs[i]);
                if (q->keys_only)
                        out->kvs[i]->value = (ProtobufCBinaryData){0};
        }
        out->n_kvs = n;
        return STATE_OK;
nomem:
        *ret_nomem = true;
        return STATE_OK;
}
