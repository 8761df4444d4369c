/*
 * What a command looks at and answers, before any of it is done: a function of the state and
 * the command alone, so that every replica refuses the same ones.
 */
#include "lease/state.h"

#define PER_KEY 64 /* bytes of an answer beside key and value */

static bool take(size_t *left, size_t n)
{
        if (n > *left)
                return false;
        *left -= n;
        return true;
}

/* Versions and dead keys that a look at @revision may come by: all that changed since. */
static size_t since(const struct state *s, int64_t revision)
{
        return s->kv.n_all - s->kv.n_keys + s->kv.history_to -
               kv_history_seek(&s->kv, revision + 1);
}

/* Keys that a look at @span comes by; a single one costs its look even when it is not there. */
static size_t keys_in(const struct state *s, const struct kv_span *span)
{
        return span->single ? 1 : kv_span_count(&s->kv, span);
}

bool weigh_compare(const struct state *s, const Pb__Compare *q, struct budget *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);

        return take(&b->keys, keys_in(s, &span));
}

static size_t bytes_of(const struct kv_version *v)
{
        return PER_KEY + v->key->len + v->value_len;
}

bool weigh_delete(const struct state *s, const Pb__DeleteRangeRequest *q, struct budget *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);

        if (!take(&b->keys, keys_in(s, &span)))
                return false;
        if (!q->prev_kv)
                return true;
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k; k = kv_live_next(&span, k))
                if (!take(&b->bytes, bytes_of(k->newest)))
                        return false;
        return true;
}

size_t state_put_bytes(const struct state *s, const Pb__PutRequest *q)
{
        const struct kv_key *k =
                q->ignore_value ? kv_find(&s->kv, q->key.data, q->key.len) : NULL;

        return sizeof(struct kv_key) + q->key.len + sizeof(struct kv_version) + sizeof(void *) +
               (k ? k->newest->value_len : q->value.len);
}

bool weigh_put(const struct state *s, const Pb__PutRequest *q, struct budget *b)
{
        const struct kv_key *k = kv_find(&s->kv, q->key.data, q->key.len);

        b->put += state_put_bytes(s, q);
        return take(&b->keys, 1) && (!k || !kv_live(k) || take(&b->bytes, bytes_of(k->newest)));
}

/* As state_range() goes about it. With a limit on what is sorted, the largest ones count. */
bool weigh_range(const struct state *s, const Pb__RangeRequest *q, struct budget *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        bool newest = kv_is_newest(&s->kv, q->revision);
        bool all = q->sort_order != PB__RANGE_REQUEST__SORT_ORDER__NONE ||
                   q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
                   q->max_create_revision;
        size_t limit = q->limit > 0 ? (size_t) q->limit : SIZE_MAX, n = 0, sum = 0, largest = 0;
        size_t keys = keys_in(s, &span);

        b->n_ranges++;
        if (newest && q->count_only)
                return take(&b->keys, 1);
        if (newest && !all && limit < keys)
                keys = limit + 1;
        if (!take(&b->keys, newest ? keys : keys + since(s, q->revision)))
                return false;
        if (q->count_only)
                return true;
        for (struct kv_key *k = newest ? kv_live_first(&s->kv, &span)
                                       : kv_span_first(&s->kv, &span);
             k && (all || n < limit);
             k = newest ? kv_live_next(&span, k) : kv_span_next(&span, k)) {
                const struct kv_version *v = kv_at(k, q->revision);

                if (!v)
                        continue;
                n++;
                sum += q->keys_only ? PER_KEY + k->len : bytes_of(v);
                largest = max_of(largest, bytes_of(v));
        }
        return take(&b->bytes, limit < n ? min_of(sum, limit * largest) : sum);
}

bool weigh_end(struct budget *b)
{
        /* Any range may come by all that the same txn puts. */
        return b->n_ranges == 0 || b->put <= b->bytes / b->n_ranges;
}
