#include "state/cached.h"

#include "base/hash.h"
#include "base/probe.h"
#include "state/charge.h"
#include "state/snapshot.h"

/* A client retries a change that was refused. For this long nobody gets a new cache lease,
 * which would prolong the wait. */
#define AWAITED_FOR NSEC_PER_SEC
#define RESTS_FOR (10 * NSEC_PER_SEC)

CHARGES(struct cached_range, CHARGE_CACHED);

static void remove_at(struct cached *c, size_t i)
{
        struct cached_range *r = c->ranges[i];

        if (!kv_span_is_empty(&r->keys.span))
                span_index_remove(&c->index, &r->keys);
        c->bytes -= CHARGE_CACHED + r->keys.span.from.len + r->keys.span.end.len;
        free(r);
        memmove(c->ranges + i, c->ranges + i + 1, (--c->n - i) * sizeof(*c->ranges));
}

void cached_fini(struct cached *c)
{
        while (c->n > 0)
                remove_at(c, c->n - 1);
        free(c->ranges);
        *c = (struct cached){0};
}

struct cached_range *cached_find(const struct cached *c, uint64_t serial)
{
        for (size_t i = 0; i < c->n; i++)
                if (c->ranges[i]->serial == serial)
                        return c->ranges[i];
        return NULL;
}

static struct lease_time last_end(const struct cached_range *r)
{
        struct lease_time end = {0};

        for (size_t i = 0; i < r->n_issuers; i++)
                end = lease_time_max(end, r->issuers[i].until);
        return end;
}

bool cached_is_live(const struct cached_range *r, struct lease_time now)
{
        return lease_time_before(now, last_end(r));
}

struct lease_time cached_until(const struct cached_range *r, uint64_t issuer)
{
        for (size_t i = 0; i < r->n_issuers; i++)
                if (r->issuers[i].id == issuer)
                        return r->issuers[i].until;
        return (struct lease_time){0};
}

/* Whether a change waited and the last cache term ended by time, or is going to: some holder
 * did not return it. */
static bool is_overdue(const struct cached_range *r)
{
        return r->awaited && lease_time_before(r->awaited_at, last_end(r));
}

/* Includes a change that its client may have given up, for example because it cannot wait for
 * the end of a cache term: its next attempt would be refused in the same way. */
static bool holds_back(const struct cached_range *r, struct lease_time now)
{
        return lease_time_before(now, r->rests_until) ||
               (is_overdue(r) &&
                lease_time_before(now, lease_time_add(last_end(r), RESTS_FOR))) ||
               (r->awaited && lease_time_diff(now, r->awaited_at) < AWAITED_FOR);
}

bool cached_is_awaited(const struct cached *c, const struct kv_span *span,
                       struct lease_time now)
{
        for (size_t i = 0; i < c->n; i++)
                if (kv_spans_overlap(&c->ranges[i]->keys.span, span) &&
                    holds_back(c->ranges[i], now))
                        return true;
        return false;
}

static bool is_same(const struct kv_span *a, const struct kv_span *b)
{
        return a->single == b->single && a->to_end == b->to_end &&
               bytes_cmp(a->from.p, a->from.len, b->from.p, b->from.len) == 0 &&
               bytes_cmp(a->end.p, a->end.len, b->end.p, b->end.len) == 0;
}

static bool is_needed(const struct cached_range *r, struct lease_time now)
{
        return cached_is_live(r, now) || holds_back(r, now);
}

bool cached_has(const struct cached *c, const struct kv_span *span, struct lease_time now,
                size_t *ret_n)
{
        bool has = false;

        *ret_n = 0;
        for (size_t i = 0; i < c->n; i++)
                if (is_needed(c->ranges[i], now)) {
                        has = has || is_same(&c->ranges[i]->keys.span, span);
                        ++*ret_n;
                }
        return has;
}

static void sweep(struct cached *c, struct lease_time now)
{
        for (size_t i = c->n; i > 0; i--)
                if (!is_needed(c->ranges[i - 1], now))
                        remove_at(c, i - 1);
}

static uint64_t span_hash(const struct kv_span *s)
{
        uint64_t h = hash_add(HASH_START, &s->from.len, sizeof(s->from.len));

        h = hash_add(h, s->from.p, s->from.len);
        return hash_end(hash_add(h, s->end.p, s->end.len));
}

bool cached_is_crowded(const struct cached *c, const struct kv_span *span,
                       struct lease_time now)
{
        uint64_t hash = span_hash(span);

        for (size_t i = 0; i < CACHED_CROWDS_MAX; i++)
                if (c->crowds[i].span == hash && lease_time_before(now, c->crowds[i].until))
                        return true;
        return false;
}

/* The first of several waiting changes has been applied. */
static void note_crowd(struct cached *c, const struct cached_range *r, struct lease_time now)
{
        if (r->n_refused < 2)
                return;
        c->crowds[c->next_crowd] = (struct cached_crowd){span_hash(&r->keys.span),
                                                         lease_time_add(now, AWAITED_FOR)};
        c->next_crowd = (c->next_crowd + 1) % CACHED_CROWDS_MAX;
}

static int add_range(struct cached *c, const struct kv_span *span, struct cached_range **ret)
{
        struct cached_range *r;

        if (array_reserve(&c->ranges, &c->cap, c->n + 1, sizeof(*c->ranges)) < 0)
                return -ENOMEM;
        r = calloc(1, sizeof(*r) + span->from.len + span->end.len);
        if (!r)
                return -ENOMEM;
        r->keys.span = (struct kv_span){.from = {r->bytes, span->from.len},
                                        .end = {r->bytes + span->from.len, span->end.len},
                                        .single = span->single,
                                        .to_end = span->to_end};
        if (span->from.len > 0)
                memcpy(r->bytes, span->from.p, span->from.len);
        if (span->end.len > 0)
                memcpy(r->bytes + span->from.len, span->end.p, span->end.len);
        c->ranges[c->n++] = r;
        if (!kv_span_is_empty(span))
                span_index_add(&c->index, &r->keys);
        c->bytes += CHARGE_CACHED + span->from.len + span->end.len;
        *ret = r;
        return 0;
}

static int promise(struct cached_range *r, uint64_t issuer, struct lease_time now,
                   struct lease_time until)
{
        size_t n = 0;

        for (size_t i = 0; i < r->n_issuers; i++)
                if (r->issuers[i].id == issuer) {
                        r->issuers[i].until = lease_time_max(r->issuers[i].until, until);
                        return 0;
                }
        for (size_t i = 0; i < r->n_issuers; i++)
                if (lease_time_before(now, r->issuers[i].until))
                        r->issuers[n++] = r->issuers[i];
        r->n_issuers = n;
        if (n == CACHED_ISSUERS_MAX)
                return -ENOSPC;
        r->issuers[r->n_issuers++] = (struct cached_issuer){issuer, until};
        return 0;
}

int cached_promise(struct cached *c, const struct kv_span *span, uint64_t issuer,
                   struct lease_time now, struct lease_time until, struct cached_range **ret)
{
        struct cached_range *r = NULL;
        int k;

        for (size_t i = 0; i < c->n && !r; i++)
                if (is_same(&c->ranges[i]->keys.span, span))
                        r = c->ranges[i];
        if (!r) {
                if (c->n == CACHED_RANGES_MAX)
                        sweep(c, now);
                if (c->n == CACHED_RANGES_MAX)
                        return -ENOSPC;
                k = add_range(c, span, &r);
                if (k < 0)
                        return k;
                r->serial = ++c->last_serial;
        }
        r->awaited = false; /* otherwise no cache lease would ever be given again */
        k = promise(r, issuer, now, until);
        *ret = r;
        return k;
}

void cached_return(struct cached *c, uint64_t serial, uint64_t issuer, struct lease_time until)
{
        struct cached_range *r = cached_find(c, serial);

        for (size_t i = 0; r && i < r->n_issuers; i++)
                if (r->issuers[i].id == issuer && r->issuers[i].until.ns == until.ns) {
                        r->issuers[i] = r->issuers[--r->n_issuers];
                        c->n_returned++;
                        return;
                }
}

void cached_touch(struct cached *c, size_t i, struct lease_time now, struct cached_wait *wait)
{
        struct cached_range *r = c->ranges[i];
        struct lease_time end = last_end(r);

        if (!lease_time_before(now, end)) {
                note_crowd(c, r, now);
                r->n_refused = 0;
                if (is_overdue(r)) { /* a holder that did not return its cache term is still
                                        caching the range */
                        PROBE("a range rests because a holder kept it to the end");
                        r->rests_until = lease_time_add(end, RESTS_FOR);
                        r->serial = ++c->last_serial;
                }
                r->awaited = false;
                r->n_issuers = 0;
                if (!holds_back(r, now))
                        remove_at(c, i);
                return;
        }
        r->awaited = true;
        r->awaited_at = now;
        r->n_refused++;
        c->n_awaited++;
        if (wait->serial == 0 || lease_time_before(wait->until, end))
                *wait = (struct cached_wait){r->serial, end};
}

static void note_touched(struct span_entry *e, void *n)
{
        container_of(e, struct cached_range, keys)->touched = true;
        (*(size_t *) n)++;
}

/* Ranges are touched in the order in which they were made, which the state depends on (I4). */
void cached_change(struct cached *c, const struct kv_span *span, struct lease_time now,
                   struct cached_wait *wait)
{
        size_t n = 0;

        if (span->single) {
                span_index_each(&c->index, span->from, note_touched, &n);
                if (n == 0)
                        return;
        }
        for (size_t i = c->n; i > 0; i--) {
                struct cached_range *r = c->ranges[i - 1];

                if (span->single ? !r->touched : !kv_spans_overlap(&r->keys.span, span))
                        continue;
                r->touched = false;
                cached_touch(c, i - 1, now, wait);
        }
}

/* ---- snapshots ---- */

enum { SINGLE = 1, TO_END = 2, AWAITED = 4 };

void cached_save(const struct cached *c, struct buf *out)
{
        snapshot_save_cached(&c->last_serial, out);
        buf_add_u64(out, c->n);
        for (size_t i = 0; i < c->n; i++) {
                const struct cached_range *r = c->ranges[i];
                const struct kv_span *span = &r->keys.span;

                snapshot_save_range(
                        &(struct saved_range){
                                .serial = r->serial,
                                .flags = (uint8_t) ((span->single ? SINGLE : 0) |
                                                    (span->to_end ? TO_END : 0) |
                                                    (r->awaited ? AWAITED : 0)),
                                .key = span->from,
                                .range_end = span->end,
                                .awaited_at = r->awaited_at,
                                .rests_until = r->rests_until,
                                .n_issuers = r->n_issuers,
                        },
                        out);
                for (size_t k = 0; k < r->n_issuers; k++)
                        snapshot_save_issuer(&r->issuers[k], out);
        }
}

int cached_load_range(struct cached *c, struct snapshot_in *in)
{
        struct saved_range is;
        struct cached_range *r;
        struct kv_span span;
        int k = snapshot_load_range(in, &is);

        if (k < 0)
                return k;
        if (is.serial > c->last_serial || cached_find(c, is.serial))
                return snapshot_wrong(in, "its serial is of another one");
        if (is.key.len + is.range_end.len > CACHED_SPAN_MAX)
                return snapshot_wrong(in, "its keys are too long");
        span = (struct kv_span){.from = is.key,
                                .end = is.range_end,
                                .single = is.flags & SINGLE,
                                .to_end = is.flags & TO_END};
        k = add_range(c, &span, &r);
        if (k < 0)
                return k;
        r->serial = is.serial;
        r->awaited = is.flags & AWAITED;
        r->awaited_at = is.awaited_at;
        r->rests_until = is.rests_until;
        for (; k == 0 && r->n_issuers < is.n_issuers; r->n_issuers += k == 0)
                k = snapshot_load_issuer(in, &r->issuers[r->n_issuers]);
        return k;
}
