/* The commands of cache leases (cached.h), and the checks that commands that change keys have
 * to make. */
#include "state/internal.h"
#include "state/permit.h"

enum state_outcome state_awaits_caches(struct state *s, const ProtobufCBinaryData *key,
                                       const ProtobufCBinaryData *end,
                                       struct state_reply *reply)
{
        struct kv_span span = kv_span(key, end);

        cached_change(&s->cached, &span, s->time, &reply->wait);
        return reply->wait.serial != 0 ? STATE_E_CACHED : STATE_OK;
}

/* Iterates over the cached ranges rather than over the lease's keys, which may be many more. */
enum state_outcome state_revoke_awaits_caches(struct state *s, const struct lease *l,
                                              struct state_reply *reply)
{
        for (size_t i = s->cached.n; i > 0; i--) {
                const struct kv_span *span = &s->cached.ranges[i - 1]->keys.span;
                const struct kv_key *k = lease_key_from(l, span->from);

                if (k && kv_span_has(span, k->bytes, k->len))
                        cached_touch(&s->cached, i - 1, s->time, &reply->wait);
        }
        return reply->wait.serial != 0 ? STATE_E_CACHED : STATE_OK;
}

enum state_outcome state_check_cache(const Pb__CacheTerm *q)
{
        if (q->key.len == 0)
                return STATE_E_KEY_MISSING;
        return q->key.len + q->range_end.len > CACHED_SPAN_MAX ? STATE_E_CACHE_TOO_LARGE
                                                               : STATE_OK;
}

/* Lowers *@until to the time until which nothing in @span changes by itself: a lease must end
 * on time, so a key that is attached to it is promised no longer than until its deadline. */
static enum state_outcome steady_until(struct state *s, const struct kv_span *span,
                                       struct lease_time *until, size_t *left)
{
        size_t n = 0;

        for (struct kv_key *k = kv_live_first(&s->kv, span); k; k = kv_live_next(span, k)) {
                struct lease_time end;

                if (++n > CACHED_KEYS_MAX)
                        return STATE_E_CACHE_TOO_LARGE;
                if (!k->lease)
                        continue;
                end = deadlines_get(&s->deadlines, k->lease->slot);
                if (lease_time_before(end, *until))
                        *until = end;
        }
        *left -= min_of(*left, n);
        return STATE_OK;
}

/* The reply names the range, and the cache term that was given; 0: none. */
int state_cache(struct state *s, const struct cmd_user *who, const Pb__CacheTerm *q,
                struct state_reply *reply, size_t *left)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        struct lease_time until;
        Pb__CacheTerm given = PB__CACHE_TERM__INIT;
        struct cached_range *range;
        int r;

        reply->outcome = state_check_cache(q);
        if (reply->outcome == STATE_OK)
                reply->outcome = permit_range(s, who, &q->key, &q->range_end, PERMIT_READ);
        if (reply->outcome == STATE_OK &&
            (q->term_ms < CACHED_TERM_MIN_MS || q->term_ms > CACHED_TERM_MAX_MS))
                reply->outcome = STATE_E_MALFORMED;
        if (reply->outcome != STATE_OK)
                return 0;
        until = lease_time_add(s->time, q->term_ms * NSEC_PER_MSEC);
        reply->outcome = steady_until(s, &span, &until, left);
        if (reply->outcome != STATE_OK)
                return 0;
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
