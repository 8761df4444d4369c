#include "session/evidence.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/probe.h"

#define MINUTE (60 * NSEC_PER_SEC)
#define PPM INT64_C(1000000)
#define RETRY_SHARE 16 /* of the TTL: the longest interval between attempts (session.c) */

/* The recommendation is one of these. A place that is given away only after minutes is of no
 * use: a stall that even the last of them does not bridge is a loss, which no TTL should
 * bridge. */
static const nsec_t choices[] = {1, 2, 3, 5, 10, 15, 20, 30, 60};
#define LONGEST (60 * NSEC_PER_SEC)
#define TTL_MOST (86400 * NSEC_PER_SEC)

/* ---- recording ---- */

uint32_t evidence_minute_at(struct boot_time now)
{
        return (uint32_t) (now.ns / MINUTE) + 1;
}

static struct evidence_minute *minute_at(struct evidence *e, struct boot_time now)
{
        uint32_t number = evidence_minute_at(now);
        struct evidence_minute *m = &e->minutes[number % EVIDENCE_MINUTES];

        if (m->minute != number)
                *m = (struct evidence_minute){.minute = number};
        return m;
}

static uint32_t usec(nsec_t t)
{
        return (uint32_t) min_of(max_of(t, INT64_C(0)) / NSEC_PER_USEC, (int64_t) UINT32_MAX);
}

static void raise(uint32_t *most, nsec_t t)
{
        *most = max_of(*most, usec(t));
}

void evidence_renewed(struct evidence *e, const struct session_renewal *r)
{
        struct evidence_minute *m = minute_at(e, r->acknowledged);
        nsec_t round_trip = boot_diff(r->acknowledged, r->sent);

        m->renewals++;
        m->round_trips_us += usec(round_trip);
        raise(&m->round_trip_max_us, round_trip);
        raise(&m->stall_max_us, boot_diff(r->acknowledged, r->due));
        raise(&m->gap_max_us, boot_diff(r->acknowledged, r->before));
}

void evidence_jeopardy(struct evidence *e, struct boot_time now)
{
        minute_at(e, now)->jeopardies++;
}

void evidence_moved(struct evidence *e, struct boot_time now)
{
        minute_at(e, now)->moves++;
}

void evidence_late(struct evidence *e, nsec_t late, struct boot_time now)
{
        raise(&minute_at(e, now)->late_max_us, late);
}

void evidence_lost(struct evidence *e, struct boot_time due, struct boot_time now)
{
        minute_at(e, now)->losses++;
        e->silent = true;
        e->due = due;
        e->lost_at = now;
}

void evidence_heard(struct evidence *e, struct boot_time heard_at)
{
        if (!e->silent || boot_before(heard_at, e->lost_at))
                return;
        e->silent = false;
        raise(&minute_at(e, heard_at)->stall_max_us, boot_diff(heard_at, e->due));
}

/* ---- for a later life ---- */

static bool write_minute(const struct evidence_minute *m, char line[static EVIDENCE_LINE + 1])
{
        int n;

        if (m->minute == 0)
                return false;
        n = snprintf(
                line, EVIDENCE_LINE,
                "%" PRIu32 " n=%" PRIu32 " trips=%" PRIu64 " trip=%" PRIu32 " late=%" PRIu32
                " stall=%" PRIu32 " gap=%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " ;",
                m->minute, m->renewals, m->round_trips_us, m->round_trip_max_us, m->late_max_us,
                m->stall_max_us, m->gap_max_us, m->jeopardies, m->losses, m->moves);
        if (n < 0 || n >= EVIDENCE_LINE)
                return false;
        memset(line + n, ' ', (size_t) (EVIDENCE_LINE - 1 - n));
        line[EVIDENCE_LINE - 1] = '\n';
        line[EVIDENCE_LINE] = '\0';
        return true;
}

bool evidence_write(const struct evidence *e, size_t i, char line[static EVIDENCE_LINE + 1])
{
        return write_minute(&e->minutes[i], line);
}

int evidence_read(struct evidence *e, const char *line, struct boot_time now)
{
        char same[EVIDENCE_LINE + 1];
        uint32_t current = evidence_minute_at(now);
        struct evidence_minute m;
        int end = 0;

        memset(&m, 0, sizeof(m)); /* the padding between its members, too */
        if (sscanf(line,
                   "%" SCNu32 " n=%" SCNu32 " trips=%" SCNu64 " trip=%" SCNu32 " late=%" SCNu32
                   " stall=%" SCNu32 " gap=%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " ;%n",
                   &m.minute, &m.renewals, &m.round_trips_us, &m.round_trip_max_us,
                   &m.late_max_us, &m.stall_max_us, &m.gap_max_us, &m.jeopardies, &m.losses,
                   &m.moves, &end) != 10 ||
            end == 0 || m.minute == 0 || m.minute > current ||
            current - m.minute >= EVIDENCE_MINUTES)
                return -EBADMSG;
        /* scanf(3) accepts numbers that we never write. A sum greater than its parts allow is
         * invalid, too. */
        if (!write_minute(&m, same) || strncmp(same, line, (size_t) end) != 0 ||
            m.round_trips_us > (uint64_t) m.renewals * m.round_trip_max_us)
                return -EBADMSG;
        e->minutes[m.minute % EVIDENCE_MINUTES] = m;
        return 0;
}

/* ---- advice ---- */

nsec_t advice_bridges(const struct advice_terms *t, nsec_t ttl)
{
        nsec_t drift = ttl / PPM * t->drift_ppm + ttl % PPM * t->drift_ppm / PPM + 1;

        return ttl - ttl / 2 - max_of(ttl / RETRY_SHARE, t->retry) - drift -
               fencing_lead(&t->fencing, ttl);
}

static bool is_of_the_day(const struct evidence_minute *m, uint32_t current)
{
        return m->minute != 0 && m->minute <= current && current - m->minute < EVIDENCE_MINUTES;
}

/* If the place was lost and the core has not answered since, the stall is still going on. */
static nsec_t running_stall(const struct evidence *e, struct boot_time now)
{
        return e->silent ? boot_diff(now, e->due) : 0;
}

/* The number of minutes with a stall that is longer than @bridges once multiplied by @times. */
static uint32_t longer_than(const struct evidence *e, nsec_t bridges, nsec_t times,
                            struct boot_time now)
{
        uint32_t n = running_stall(e, now) * times > bridges, current = evidence_minute_at(now);

        for (size_t i = 0; i < EVIDENCE_MINUTES; i++) {
                const struct evidence_minute *m = &e->minutes[i];

                n += is_of_the_day(m, current) &&
                     m->stall_max_us * NSEC_PER_USEC * times > bridges;
        }
        return n;
}

static void add_up(const struct evidence *e, struct boot_time now, struct advice *a)
{
        uint32_t current = evidence_minute_at(now), oldest = current;
        uint64_t round_trips_us = 0;

        a->stall_max = running_stall(e, now);
        for (size_t i = 0; i < EVIDENCE_MINUTES; i++) {
                const struct evidence_minute *m = &e->minutes[i];

                if (!is_of_the_day(m, current))
                        continue;
                a->renewals += m->renewals;
                a->minutes += m->renewals > 0;
                oldest = min_of(oldest, m->minute);
                round_trips_us += m->round_trips_us;
                a->round_trip_max =
                        max_of(a->round_trip_max, m->round_trip_max_us * NSEC_PER_USEC);
                a->late_max = max_of(a->late_max, m->late_max_us * NSEC_PER_USEC);
                a->stall_max = max_of(a->stall_max, m->stall_max_us * NSEC_PER_USEC);
                a->gap_max = max_of(a->gap_max, m->gap_max_us * NSEC_PER_USEC);
                a->jeopardies += m->jeopardies;
                a->losses += m->losses;
                a->moves += m->moves;
        }
        a->span = (current - oldest + 1) * MINUTE;
        if (a->renewals > 0)
                a->round_trip = (nsec_t) (round_trips_us / a->renewals) * NSEC_PER_USEC;
        a->enough =
                a->minutes >= EVIDENCE_MINUTES_LEAST && a->renewals >= EVIDENCE_RENEWALS_LEAST;
        PROBE_IF(a->enough, "an hour of renewals is enough to advise on a TTL");
}

/* The shortest TTL, in whole milliseconds, that bridges @stall. A longer TTL bridges more. */
static nsec_t shortest(const struct advice_terms *t, nsec_t stall)
{
        nsec_t low = 0, high = TTL_MOST / NSEC_PER_MSEC;

        if (advice_bridges(t, TTL_MOST) < stall)
                return 0;
        while (high - low > 1) {
                nsec_t mid = (low + high) / 2;

                if (advice_bridges(t, mid * NSEC_PER_MSEC) >= stall)
                        high = mid;
                else
                        low = mid;
        }
        return high * NSEC_PER_MSEC;
}

/* Recommends the shortest TTL that does as well as the longest choice, both for the stalls that
 * were recorded and for stalls twice as long, and that bridges a failover of the core even if
 * none was recorded. */
static nsec_t recommend(const struct evidence *e, const struct advice_terms *t,
                        struct boot_time now)
{
        nsec_t longest = advice_bridges(t, LONGEST);
        uint32_t once = longer_than(e, longest, 1, now),
                 twice = longer_than(e, longest, 2, now);

        for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
                nsec_t ttl = choices[i] * NSEC_PER_SEC, bridges = advice_bridges(t, ttl);

                if (bridges >= EVIDENCE_FAILOVER && longer_than(e, bridges, 1, now) == once &&
                    longer_than(e, bridges, 2, now) == twice)
                        return ttl;
        }
        return LONGEST;
}

static void add_ttl(const struct evidence *e, const struct advice_terms *t, nsec_t ttl,
                    struct boot_time now, struct advice *a)
{
        struct advice_ttl *row = &a->ttls[a->n_ttls++];

        row->ttl = ttl;
        row->bridges = advice_bridges(t, ttl);
        row->too_long = longer_than(e, row->bridges, 1, now);
}

void evidence_advise(const struct evidence *e, const struct advice_terms *t,
                     struct boot_time now, struct advice *ret)
{
        bool in_use = false;

        *ret = (struct advice){0};
        add_up(e, now, ret);
        ret->least = shortest(t, ret->stall_max);
        if (ret->enough)
                ret->recommended = recommend(e, t, now);
        /* Insert the TTL in use at its place among the choices. */
        for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
                nsec_t ttl = choices[i] * NSEC_PER_SEC;

                if (!in_use && t->ttl <= ttl) {
                        in_use = true;
                        if (t->ttl < ttl)
                                add_ttl(e, t, t->ttl, now, ret);
                }
                add_ttl(e, t, ttl, now, ret);
        }
        if (!in_use)
                add_ttl(e, t, t->ttl, now, ret);
}
