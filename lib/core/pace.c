#include "core/pace.h"

#include "base/probe.h"
#include "wire/cmd.h"

#define BATCH_MAX 4096 /* a batch of this size is sent at once */
#define CROWD 64       /* clients that wait only for answers share a batch ... */
#define CROWD_PAUSE (5 * NSEC_PER_MSEC) /* ... unless none of them renews for this long */
#define WINDOW_MIN (2 * NSEC_PER_MSEC)
#define WINDOW_MAX (50 * NSEC_PER_MSEC)
/* How many batches may be sent at once without waiting for the window; one more is allowed
 * every WINDOW_MAX. With many clients this adds up to no more batches than the window makes. */
#define SOON_MAX 20

/* A lease is renewed ahead by this part of its TTL, but by no more than AHEAD_MAX; and not at
 * all by less than AHEAD_MIN, which would be over when the entry is written. */
#define AHEAD_PART 1000
#define AHEAD_MIN (5 * NSEC_PER_MSEC)
#define AHEAD_MAX (50 * NSEC_PER_MSEC)

static_assert(AHEAD_MAX / NSEC_PER_MSEC <= CMD_AGE_MAX, "it has to fit into the command");

void renew_pace_init(struct renew_pace *p, unsigned part)
{
        *p = (struct renew_pace){.part = part > 0 ? part : AHEAD_PART};
        renew_pace_forget(p);
}

/* ---- what needs no batch ---- */

/* The log counts in milliseconds. */
nsec_t renew_pace_ahead(const struct renew_pace *p, nsec_t ttl)
{
        nsec_t ahead = ttl / NSEC_PER_MSEC / p->part * NSEC_PER_MSEC;

        return ahead < AHEAD_MIN ? 0 : min_of(ahead, AHEAD_MAX);
}

/* Some of the lead passes while the leader is asked. If the others are far away, all of it
 * does, and the renewal would wait for nothing; from time to time one tries again. More lead
 * than there can be only shows that this replica has not heard lease time for a while; then the
 * renewal must not wait either. */
bool renew_pace_is_covered(struct renew_pace *p, struct renew_term t)
{
        nsec_t ahead = renew_pace_ahead(p, t.ttl), lead = t.left - t.ttl;

        if (ahead == 0 || lead <= ahead / 8 || lead > ahead)
                return false;
        if (lead <= p->used) {
                PROBE("a renewal gets an entry because a confirmation would take too long");
                p->used -= p->used / 128;
                return false;
        }
        return true;
}

/* It rises faster than it falls. */
void renew_pace_confirmed(struct renew_pace *p, nsec_t used)
{
        nsec_t more = min_of(max_of(used, (nsec_t) 0), 2 * AHEAD_MAX) - p->used;

        p->used += more > 0 ? more / 2 : more / 8;
}

/* ---- what waits for a batch ---- */

/* A client that renews a lease right after the last renewal does not pace itself: it waits only
 * for the answer. */
static bool is_early(struct renew_term t)
{
        return t.left > t.ttl - t.ttl / 8;
}

static bool few_come(const struct renew_pace *p, struct boot_time now)
{
        return boot_diff(p->soon_full, now) <= (SOON_MAX - 1) * WINDOW_MAX;
}

static nsec_t window(nsec_t ttl)
{
        return max_of(WINDOW_MIN, min_of(ttl / 50, WINDOW_MAX));
}

bool renew_pace_arrived(struct renew_pace *p, struct renew_term t, struct boot_time now)
{
        bool ahead = t.left > t.ttl - renew_pace_ahead(p, t.ttl);

        p->n++;
        p->n_early += is_early(t) && !ahead;
        p->some_next = p->some_next || is_early(t) || few_come(p, now);
        p->some_late = p->some_late || t.left < t.ttl / 4;
        p->window_end = boot_min(p->window_end, boot_add(p->sent_at, window(t.ttl)));
        p->looked_at = now;
        return ahead;
}

void renew_pace_forget(struct renew_pace *p)
{
        p->n = p->n_early = 0;
        p->some_late = p->some_next = false;
        p->window_end = BOOT_TIME_NEVER;
}

size_t renew_pace_sent(struct renew_pace *p, struct boot_time now)
{
        size_t n_early = p->n_early;

        renew_pace_forget(p);
        p->sent_at = now;
        /* Every batch counts, including one that waited. */
        p->soon_full = boot_min(boot_add(boot_max(p->soon_full, now), WINDOW_MAX),
                                boot_add(now, SOON_MAX * WINDOW_MAX));
        return n_early;
}

void renew_pace_under_way(struct renew_pace *p)
{
        p->n_under_way++;
}

void renew_pace_answered(struct renew_pace *p, size_t n_early, struct boot_time now)
{
        p->n_under_way--;
        p->n_crowd = max_of(n_early + p->n_early, p->n_crowd - p->n_crowd / 4);
        p->looked_at = now;
}

/* Most clients that renew as soon as they are answered have not come back yet. Those that
 * return first gain nothing by a batch of their own, and all others would have to wait for
 * it. */
static bool crowd_is_away(const struct renew_pace *p)
{
        return p->n_crowd >= CROWD && p->n_early < p->n_crowd - p->n_crowd / 8;
}

struct boot_time renew_pace_next(const struct renew_pace *p)
{
        if (p->n == 0)
                return BOOT_TIME_NEVER;
        if (p->some_late || p->n >= BATCH_MAX)
                return p->looked_at;
        if (!p->some_next || p->n_under_way > 0)
                return p->window_end;
        return boot_min(p->window_end,
                        boot_add(p->looked_at, crowd_is_away(p) ? CROWD_PAUSE : 0));
}
