/* Writes that wait until cache terms end (state/cached.h), and the cache leases that this
 * replica gives. */
#include "base/probe.h"
#include "core/internal.h"

#define AGAIN (5 * NSEC_PER_MSEC)
#define CHECKED_AT_ONCE 2000 /* waiting commands, in one turn: at most 1 ms */

void core_write_waits(struct core *c, struct core_write *w, const struct cached_wait *wait)
{
        /* An estimate, because the entry may be old. A write that is proposed too early is
         * refused once more. */
        struct lease_time now = lease_time_max(c->state.time, core_lease_time(c));
        nsec_t left = max_of(lease_time_diff(wait->until, now), AGAIN);

        /* This command was not applied and never will be: the next attempt is another
         * command. */
        w->term = 0;
        w->waits_for = wait->serial;
        w->again_at = boot_add(c->now, left);
        TAILQ_INSERT_HEAD(&c->waiting, w, next_waiting); /* a check under way is beyond that */
        c->waiting_at = boot_min(c->waiting_at, w->again_at);
}

void core_write_waits_no_more(struct core *c, struct core_write *w)
{
        if (w->waits_for == 0)
                return;
        w->waits_for = 0;
        if (w == c->waiting_check)
                c->waiting_check = TAILQ_NEXT(w, next_waiting);
        TAILQ_REMOVE(&c->waiting, w, next_waiting);
}

static bool is_over(const struct core *c, const struct core_write *w)
{
        const struct cached_range *r;

        if (!boot_before(c->now, w->again_at))
                return true;
        r = cached_find(&c->state.cached, w->waits_for);
        return !r || !cached_is_live(r, c->state.time);
}

bool core_waiting_is_due(const struct core *c)
{
        return c->waiting_check ||
               (!TAILQ_EMPTY(&c->waiting) && c->state.cached.n_returned != c->waiting_returned);
}

void core_waiting_run(struct core *c)
{
        unsigned left = CHECKED_AT_ONCE;
        struct core_write *w;

        if (!core_waiting_is_due(c) && boot_before(c->now, c->waiting_at))
                return;
        if (!c->waiting_check) {
                c->waiting_returned = c->state.cached.n_returned;
                c->waiting_at = BOOT_TIME_NEVER;
                c->waiting_check = TAILQ_FIRST(&c->waiting);
        }
        for (; (w = c->waiting_check) && left > 0; left--)
                if (is_over(c, w)) {
                        core_write_waits_no_more(c, w);
                        core_writes_again(c, w->seq);
                } else {
                        c->waiting_check = TAILQ_NEXT(w, next_waiting);
                        c->waiting_at = boot_min(c->waiting_at, w->again_at);
                }
}

struct status core_cache(struct core *c, struct core_write *w, const struct cmd_user *user,
                         Pb__CacheTerm *q, nsec_t timeout)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct kv_span span = kv_span(&q->key, &q->range_end);
        struct budget left = BUDGET_ALL;
        struct state_admission a;
        struct status st;

        q->issuer = c->issuer;
        if (cached_is_crowded(&c->state.cached, &span, c->state.time)) {
                PROBE("a cache term is short because several writes have waited");
                q->term_ms = CACHED_TERM_MIN_MS;
        }
        st = core_admit(c, CMD_CACHE, user, q, &left, &a);
        if (st.code != RPC_OK)
                return st;
        pb_append(&body, &q->base);
        if (buf_error(&body) < 0)
                return status_nomem;
        return core_write(c, w, CMD_CACHE, user, body.data, buf_len(&body), timeout) < 0
                       ? status_too_many
                       : status_ok;
}

struct lease_time core_cached_until(const struct core *c, const struct cached_range *r)
{
        return cached_until(r, c->issuer);
}

void core_uncache(struct core *c, uint64_t serial)
{
        const struct cached_range *r = cached_find(&c->state.cached, serial);
        cleanup_(buf_fini) struct buf body = {0};

        if (!r)
                return;
        cmd_uncache(&body, serial, c->issuer, (uint64_t) core_cached_until(c, r).ns);
        if (buf_error(&body) == 0)
                (void) !core_propose_own(c, CMD_UNCACHE, &body);
}
