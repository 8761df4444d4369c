#include "core/renew_pace.h"

#include "base/probe.h"
#include "wire/cmd.h"

#define MANY 4096 /* this many waiting renewals are sent at once */
#define CROWD 64
#define CROWD_PAUSE                                                                          \
        (5 * NSEC_PER_MSEC) /* after this time without an early renewal, the rest of a crowd \
                             * has gone */
#define WINDOW_MIN (2 * NSEC_PER_MSEC)
#define WINDOW_MAX (50 * NSEC_PER_MSEC)
/* How many sends need not wait for the batch window; one more may follow every WINDOW_MAX. With
 * many clients there are no more sends than with the batch window alone. */
#define FEW_MAX 20

/* A lease is renewed ahead by TTL / AHEAD_DIVISOR, but by AHEAD_MAX at most; and not at all if
 * that is less than AHEAD_MIN, which would have passed by the time the entry is written. */
#define AHEAD_DIVISOR 1000
#define AHEAD_MIN (5 * NSEC_PER_MSEC)
#define AHEAD_MAX (50 * NSEC_PER_MSEC)

static_assert(AHEAD_MAX / NSEC_PER_MSEC <= CMD_AGE_MAX, "it has to fit into the command");

void renew_pace_init(struct renew_pace *p, unsigned ahead_divisor)
{
        *p = (struct renew_pace){.ahead_divisor =
                                         ahead_divisor > 0 ? ahead_divisor : AHEAD_DIVISOR};
        renew_pace_forget(p);
}

/* ---- which renewals ask for a confirmation ---- */

/* The log counts in milliseconds. */
nsec_t renew_pace_ahead(const struct renew_pace *p, nsec_t ttl)
{
        nsec_t ahead = ttl / NSEC_PER_MSEC / p->ahead_divisor * NSEC_PER_MSEC;

        return ahead < AHEAD_MIN ? 0 : min_of(ahead, AHEAD_MAX);
}

/* Part of the surplus passes while the leader confirms. If the other replicas are far away, all
 * of it does, and the renewal has waited in vain. So while confirmations are slow, one renewal
 * at a time tries again, now and then. */
bool renew_pace_ask(struct renew_pace *p, struct renew_left t)
{
        nsec_t ahead = renew_pace_ahead(p, t.ttl), surplus = t.left - t.ttl;
        bool another_tries = p->took > ahead / 2 && p->n_asked > 0;

        if (ahead == 0 || surplus <= ahead / 8 || surplus > ahead)
                return false;
        if (another_tries || surplus <= p->took) {
                PROBE("a renewal gets an entry because a confirmation would take too long");
                p->took -= another_tries ? 0 : p->took / 128;
                return false;
        }
        p->n_asked++;
        return true;
}

bool renew_pace_joins(struct renew_pace *p, struct renew_left t)
{
        bool joins = t.left - t.ttl < renew_pace_ahead(p, t.ttl) / 2;

        p->n_asked -= joins;
        return joins;
}

void renew_pace_settled(struct renew_pace *p, size_t n)
{
        p->n_asked -= n;
}

void renew_pace_took(struct renew_pace *p, nsec_t took)
{
        nsec_t more = min_of(max_of(took, (nsec_t) 0), 2 * AHEAD_MAX) - p->took;

        p->took += more > 0 ? more / 2 : more / 8;
}

/* ---- which renewals are sent, and when ---- */

/* More time is left than is possible: lease time is stale here. */
static bool is_stale(struct renew_left t)
{
        return t.left > t.ttl + AHEAD_MAX;
}

static bool is_ahead(const struct renew_pace *p, struct renew_left t)
{
        nsec_t ahead = renew_pace_ahead(p, t.ttl);

        return ahead > 0 && t.left > t.ttl - ahead && !is_stale(t);
}

static bool is_early(struct renew_left t)
{
        return t.left > t.ttl - t.ttl / 8 && !is_stale(t);
}

static bool is_late(struct renew_left t)
{
        return t.left < t.ttl / 4 || is_stale(t);
}

static bool few_come(const struct renew_pace *p, struct boot_time now)
{
        return boot_diff(p->full_at, now) <= (FEW_MAX - 1) * WINDOW_MAX;
}

static nsec_t window(nsec_t ttl)
{
        return max_of(WINDOW_MIN, min_of(ttl / 50, WINDOW_MAX));
}

bool renew_pace_arrived(struct renew_pace *p, struct renew_left t, struct boot_time now)
{
        bool ahead = is_ahead(p, t);
        enum renew_wait wait = RENEW_WAITS_FOR_WINDOW;

        p->n++;
        if (is_late(t) || p->n >= MANY)
                wait = RENEW_WAITS_FOR_NOTHING;
        else if (is_early(t) || few_come(p, now))
                wait = RENEW_WAITS_FOR_COMMAND;
        p->wait = max_of(p->wait, wait);
        p->n_early += is_early(t) && !ahead;
        if (is_early(t))
                p->early_at = now;
        p->window_end = boot_min(p->window_end, boot_add(p->sent_at, window(t.ttl)));
        return ahead;
}

void renew_pace_forget(struct renew_pace *p)
{
        p->n = p->n_early = 0;
        p->wait = RENEW_WAITS_FOR_WINDOW;
        p->window_end = BOOT_TIME_NEVER;
}

size_t renew_pace_sent(struct renew_pace *p, struct boot_time now)
{
        size_t n_early = p->n_early;

        renew_pace_forget(p);
        p->sent_at = now;
        p->full_at = boot_min(boot_add(boot_max(p->full_at, now), WINDOW_MAX),
                              boot_add(now, FEW_MAX * WINDOW_MAX));
        return n_early;
}

void renew_pace_proposed(struct renew_pace *p)
{
        p->n_under_way++;
}

void renew_pace_answered(struct renew_pace *p, struct boot_time now)
{
        p->n_under_way--;
        p->early_at = now;
}

/* Part of the crowd may have returned already. Each send forgets a quarter of the old crowd. */
void renew_pace_crowd(struct renew_pace *p, size_t n_early)
{
        p->n_crowd = max_of(n_early + p->n_early, p->n_crowd - p->n_crowd / 4);
}

/* The first renewals of a crowd would gain nothing from a command of their own, and all others
 * would have to wait for that command. */
static bool crowd_is_away(const struct renew_pace *p)
{
        return p->n_crowd >= CROWD && p->n_early < p->n_crowd - p->n_crowd / 8;
}

struct boot_time renew_pace_next(const struct renew_pace *p)
{
        static const struct boot_time at_once = {0};

        if (p->n == 0)
                return BOOT_TIME_NEVER;
        if (p->wait == RENEW_WAITS_FOR_NOTHING)
                return at_once;
        if (p->wait == RENEW_WAITS_FOR_WINDOW || p->n_under_way > 0)
                return p->window_end;
        return crowd_is_away(p) ? boot_min(p->window_end, boot_add(p->early_at, CROWD_PAUSE))
                                : at_once;
}
