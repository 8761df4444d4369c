/* The commands of cache leases (cached.h), and the checks that commands that change keys have
 * to make. */
#include "state/internal.h"

static void change(struct state *s, const ProtobufCBinaryData *key,
                   const ProtobufCBinaryData *range_end, struct cached_wait *wait)
{
        struct kv_span span = kv_span(key, range_end);

        cached_change(&s->cached, &span, s->time, wait);
}

/* Iterates over the cached ranges rather than over the lease's keys, which may be many more. */
static void end_lease(struct state *s, const struct lease *l, struct cached_wait *wait)
{
        for (size_t i = s->cached.n; i > 0; i--) {
                const struct kv_span *span = &s->cached.ranges[i - 1]->keys.span;
                const struct kv_key *k = lease_key_from(l, span->from);

                if (k && kv_span_has(span, k->bytes, k->len))
                        cached_touch(&s->cached, i - 1, s->time, wait);
        }
}

enum state_outcome state_awaits_caches(struct state *s, enum cmd_type type, const void *m,
                                       struct state_admission *a, struct cached_wait *wait)
{
        static const ProtobufCBinaryData none;
        const Pb__PutRequest *put = m;
        const Pb__DeleteRangeRequest *del = m;

        if (s->cached.n == 0)
                return STATE_OK;
        switch (type) {
        case CMD_PUT:
                change(s, &put->key, &none, wait);
                break;
        case CMD_DELETE_RANGE:
                change(s, &del->key, &del->range_end, wait);
                break;
        case CMD_TXN:
                state_txn_awaits_caches(s, m, a, wait);
                break;
        case CMD_REVOKE:
                end_lease(s, a->lease, wait);
                break;
        default:
                break;
        }
        return wait->serial != 0 ? STATE_E_CACHED : STATE_OK;
}

/* Lowers *@until to the time until which nothing in @span changes by itself: a lease must end
 * on time, so a key that is attached to it is promised no longer than until its deadline. */
static void steady_until(const struct state *s, const struct kv_span *span,
                         struct lease_time *until, struct budget *left)
{
        for (struct kv_key *k = kv_live_first(&s->kv, span); k; k = kv_live_next(span, k)) {
                struct lease_time end;

                budget_charge(left, 1);
                if (!k->lease)
                        continue;
                end = deadlines_get(&s->deadlines, k->lease->slot);
                if (lease_time_before(end, *until))
                        *until = end;
        }
}

/* The reply names the range, and the cache term that was given; 0: none. */
int state_cache(struct state *s, const Pb__CacheTerm *q, struct state_reply *reply,
                struct budget *left)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        struct lease_time until = lease_time_add(s->time, q->term_ms * NSEC_PER_MSEC);
        Pb__CacheTerm given = PB__CACHE_TERM__INIT;
        struct cached_range *range;
        int r;

        steady_until(s, &span, &until, left);
        if (lease_time_diff(until, s->time) >= CACHED_TERM_MIN_MS * NSEC_PER_MSEC &&
            !cached_is_awaited(&s->cached, &span, s->time)) {
                r = cached_promise(&s->cached, &span, q->issuer, s->time, until, &range);
                if (r == -ENOSPC)
                        reply->outcome = STATE_E_CACHE_FULL;
                if (r < 0)
                        return r == -ENOSPC ? 0 : r;
                given.term_ms = lease_time_diff(until, s->time) / NSEC_PER_MSEC;
                given.serial = range->serial;
        }
        if (reply->out)
                pb_append(reply->out, &given.base);
        return 0;
}

void state_uncache(struct state *s, struct view body, struct state_reply *reply)
{
        uint64_t serial, issuer, until;

        if (cmd_uncache_read(body, &serial, &issuer, &until) < 0 || until > INT64_MAX)
                reply->outcome = STATE_E_MALFORMED;
        else
                cached_return(&s->cached, serial, issuer, (struct lease_time){(nsec_t) until});
}
