#include "session/evidence.h"
#include "test.h"

#define T(ms) ((struct boot_time){(ms) *NSEC_PER_MSEC})
#define S(s) T((s) *1000)
#define MS(t) ((t) / NSEC_PER_MSEC)
#define RETRY (50 * NSEC_PER_MSEC)
#define HOUR_MS INT64_C(3600000)

static const struct advice_terms plain = {
        .ttl = 10 * NSEC_PER_SEC, .retry = RETRY, .drift_ppm = 1000};

static struct session held(nsec_t ttl)
{
        struct session_config cfg = {.ttl = ttl, .drift_ppm = 1000, .retry = RETRY};
        struct session s;

        session_init(&s, &cfg);
        CHECK_EQ(session_next_action(&s, T(0)), SESSION_GRANT);
        session_granted(&s, 7, ttl, T(0));
        CHECK_EQ(session_next_action(&s, T(0)), SESSION_REGISTER);
        session_registered(&s);
        return s;
}

/* One renewal, due at @due_ms, that took @stall_ms; of a TTL of 10 s. */
static void record(struct evidence *e, int64_t due_ms, int64_t stall_ms)
{
        struct session_renewal r = {.before = T(due_ms - 5000),
                                    .due = T(due_ms),
                                    .sent = T(due_ms),
                                    .acknowledged = T(due_ms + stall_ms)};

        evidence_renewed(e, &r);
}

/* Renewals that took 2 ms each, every 5 s, up to then. */
static void record_calm(struct evidence *e, int64_t from_ms, int64_t to_ms)
{
        for (int64_t ms = from_ms; ms < to_ms; ms += 5000)
                record(e, ms, 2);
}

static struct advice advise(const struct evidence *e, int64_t now_ms)
{
        struct advice a;

        evidence_advise(e, &plain, T(now_ms), &a);
        return a;
}

static const struct advice_ttl *ttl_of(const struct advice *a, int64_t ms)
{
        for (size_t i = 0; i < a->n_ttls; i++)
                if (MS(a->ttls[i].ttl) == ms)
                        return &a->ttls[i];
        return NULL;
}

/* The session's requests are not answered in [@from, @from + @lasts). Does it hold? */
static bool holds_through(nsec_t ttl, struct boot_time from, nsec_t lasts, struct evidence *e)
{
        struct boot_time to = boot_add(from, lasts), now = T(0);
        struct session s = held(ttl);

        while (boot_before(now, boot_add(to, 2 * ttl))) {
                enum session_action a = session_next_action(&s, now);
                bool out = !boot_before(now, from) && boot_before(now, to);

                if (a == SESSION_TELL_LOST)
                        return false;
                if (a == SESSION_WAIT) {
                        now = boot_max(session_wakeup(&s), boot_add(now, 1));
                        continue;
                }
                session_sent(&s, now);
                if (out)
                        continue;
                if (e) {
                        struct session_renewal r = session_renewal(&s, now, now);

                        evidence_renewed(e, &r);
                }
                session_renewed(&s, 7, ttl, now);
        }
        return true;
}

/* What a TTL is said to bridge it bridges, whenever it begins; and a fourteenth of the TTL more
 * is too much, if it begins when a renewal is due. */
TEST(a_ttl_bridges_what_the_advice_promises)
{
        for (unsigned i = 0; i < 300; i++) {
                nsec_t ttl = (nsec_t) rnd(200, 60000) * NSEC_PER_MSEC;
                nsec_t bridges = advice_bridges(&plain, ttl);
                struct boot_time from = {(nsec_t) rnd(0, (uint64_t) ttl)};

                CHECK(bridges > 0);
                CHECK(holds_through(ttl, from, bridges, NULL));
                CHECK(holds_through(ttl, (struct boot_time){ttl / 2}, bridges, NULL));
                CHECK(!holds_through(ttl, (struct boot_time){ttl / 2}, ttl / 2, NULL));
        }
}

/* The stall is the outage, as far as a renewal was due in it, and at most a retry longer. */
TEST(a_stall_is_what_the_session_waited_for)
{
        for (unsigned i = 0; i < 300; i++) {
                nsec_t ttl = (nsec_t) rnd(1000, 20000) * NSEC_PER_MSEC;
                nsec_t lasts = (nsec_t) rnd(1, (uint64_t) advice_bridges(&plain, ttl));
                nsec_t before = (nsec_t) rnd(0, (uint64_t) ttl / 2);
                struct evidence *e = calloc(1, sizeof(*e));
                struct boot_time from = {ttl / 2 - min_of(before, ttl / 2)};
                nsec_t seen = max_of(lasts - boot_diff((struct boot_time){ttl / 2}, from),
                                     INT64_C(0));
                struct advice a;

                CHECK(e);
                CHECK(holds_through(ttl, from, lasts, e));
                evidence_advise(e, &plain, S(600), &a);
                free(e);
                CHECK(a.stall_max >= seen - NSEC_PER_USEC);
                CHECK(a.stall_max <= seen + max_of(ttl / 16, RETRY));
                CHECK(a.gap_max >= seen + ttl / 2 - NSEC_PER_USEC);
        }
}

TEST(when_a_renewal_was_due)
{
        struct session s = held(10 * NSEC_PER_SEC);
        struct session_renewal r;

        session_sent(&s, T(5000));
        session_sent(&s, T(5050));
        r = session_renewal(&s, T(5050), T(5060));
        CHECK_EQ(r.before.ns, 0);
        CHECK_EQ(r.due.ns, T(5000).ns);
        /* Late, as we ran late ourselves. */
        s = held(10 * NSEC_PER_SEC);
        session_sent(&s, T(7000));
        CHECK_EQ(session_renewal(&s, T(7000), T(7001)).due.ns, T(5000).ns);
        /* Early, in doubt. */
        s = held(10 * NSEC_PER_SEC);
        session_sent(&s, T(1000));
        CHECK_EQ(session_renewal(&s, T(1000), T(1200)).due.ns, T(1000).ns);
        /* The answer to the first of two has come, and then the other's. */
        session_sent(&s, T(1100));
        session_renewed(&s, 7, 10 * NSEC_PER_SEC, T(1000));
        r = session_renewal(&s, T(1100), T(1201));
        CHECK_EQ(r.due.ns, T(1100).ns);
        CHECK_EQ(r.before.ns, T(1000).ns);
}

TEST(a_day_is_remembered_and_no_more)
{
        static struct evidence e;
        struct advice a;

        e = (struct evidence){0};
        record(&e, 1000, 3000);
        record_calm(&e, 60000, 24 * HOUR_MS - 60000);
        a = advise(&e, 24 * HOUR_MS - 60000);
        CHECK_EQ(MS(a.stall_max), 3000);
        CHECK_EQ(MS(a.gap_max), 8000);
        CHECK_EQ(a.minutes, 1439);
        CHECK_EQ(a.renewals, 1 + 12 * 1438);
        CHECK_EQ(MS(a.span), 24 * HOUR_MS);
        /* Its bucket is not used again yet, and is of yesterday. */
        a = advise(&e, 24 * HOUR_MS);
        CHECK_EQ(MS(a.stall_max), 2);
        CHECK_EQ(a.minutes, 1438);
        /* Nothing was measured for a day. */
        a = advise(&e, 49 * HOUR_MS);
        CHECK_EQ(a.renewals, 0);
        CHECK(!a.enough);
        CHECK_EQ(a.recommended, 0);
}

TEST(too_little_is_not_enough)
{
        static struct evidence e;
        struct advice a;

        e = (struct evidence){0};
        CHECK_EQ(advise(&e, 1000).renewals, 0);
        record_calm(&e, 5000, HOUR_MS - 60000); /* 59 minutes */
        a = advise(&e, HOUR_MS);
        CHECK(!a.enough);
        CHECK_EQ(a.recommended, 0);
        CHECK_EQ(MS(a.round_trip), 2);
        record_calm(&e, HOUR_MS - 60000, HOUR_MS);
        a = advise(&e, HOUR_MS);
        CHECK(a.enough);
        CHECK(a.recommended > 0);
        /* An hour of one renewal a minute is 60, and no 100. */
        e = (struct evidence){0};
        for (int64_t i = 0; i < 90; i++)
                record(&e, 60000 * i, 2);
        CHECK(!advise(&e, 2 * HOUR_MS).enough);
}

/* Without trouble: a TTL that bridges a failover. With trouble: twice the longest stall,
 * however long ago it was. */
TEST(the_recommended_ttl_bridges_twice_of_what_there_was)
{
        static struct evidence e;
        struct advice a;

        e = (struct evidence){0};
        record_calm(&e, 0, 3 * HOUR_MS);
        a = advise(&e, 3 * HOUR_MS);
        CHECK_EQ(MS(a.recommended), 5000);
        CHECK(MS(a.least) < 200);
        CHECK_EQ(ttl_of(&a, 1000)->too_long, 0);
        record(&e, 2 * HOUR_MS, 1800);
        a = advise(&e, 3 * HOUR_MS);
        CHECK_EQ(MS(a.recommended), 10000); /* bridges 4.36 s; 5 s only 2.18 */
        CHECK_EQ(ttl_of(&a, 3000)->too_long, 1);
        CHECK_EQ(ttl_of(&a, 5000)->too_long, 0);
        CHECK(advice_bridges(&plain, a.least) >= a.stall_max);
        CHECK(advice_bridges(&plain, a.least - NSEC_PER_MSEC) < a.stall_max);
        record(&e, HOUR_MS, 5000);
        a = advise(&e, 3 * HOUR_MS);
        CHECK_EQ(MS(a.recommended), 30000);
        CHECK_EQ(ttl_of(&a, 3000)->too_long, 2);
        CHECK_EQ(ttl_of(&a, 10000)->too_long, 1);
        CHECK_EQ(ttl_of(&a, 15000)->too_long, 0);
}

/* An hour without a core is a loss, whatever the TTL; the rest still counts. */
TEST(an_outage_that_no_ttl_bridges_is_left_aside)
{
        static struct evidence e;
        struct advice a;

        e = (struct evidence){0};
        record_calm(&e, 0, 3 * HOUR_MS);
        record(&e, HOUR_MS, 1800);
        evidence_lost(&e, T(2 * HOUR_MS), T(2 * HOUR_MS + 5000));
        evidence_heard(&e, T(2 * HOUR_MS + 4000)); /* before it was lost */
        a = advise(&e, 2 * HOUR_MS + 20000);
        CHECK_EQ(MS(a.stall_max), 20000); /* and it continues */
        CHECK_EQ(a.losses, 1);
        evidence_heard(&e, T(3 * HOUR_MS));
        evidence_heard(&e, T(3 * HOUR_MS + 5000));
        a = advise(&e, 3 * HOUR_MS + 60000);
        CHECK_EQ(MS(a.stall_max), HOUR_MS);
        CHECK_EQ(MS(a.recommended), 10000);
        CHECK_EQ(ttl_of(&a, 60000)->too_long, 1);
        CHECK(a.least > 2 * 3600 * NSEC_PER_SEC);
        /* One that 60 s bridge has to be bridged. */
        record(&e, HOUR_MS * 5 / 2, 20000);
        CHECK_EQ(MS(advise(&e, 3 * HOUR_MS + 60000).recommended), 60000);
}

/* Bound units are stopped before the deadline, so a stall must have ended before that. */
TEST(the_fence_has_to_be_kept_away_too)
{
        struct advice_terms fenced = plain;
        static struct evidence e;
        struct advice a;

        fenced.fencing.lead = NSEC_PER_SEC;
        CHECK_EQ(advice_bridges(&plain, 10 * NSEC_PER_SEC) -
                         advice_bridges(&fenced, 10 * NSEC_PER_SEC),
                 NSEC_PER_SEC);
        CHECK_EQ(advice_bridges(&plain, 2 * NSEC_PER_SEC) -
                         advice_bridges(&fenced, 2 * NSEC_PER_SEC),
                 NSEC_PER_SEC / 2);
        e = (struct evidence){0};
        record_calm(&e, 0, 3 * HOUR_MS);
        evidence_advise(&e, &fenced, T(3 * HOUR_MS), &a);
        CHECK_EQ(MS(a.recommended), 10000);
}

/* In their order, and the one in use among them. */
TEST(the_ttl_in_use_is_in_the_table)
{
        static const int64_t in_use[] = {500, 1000, 4000, 10000, 60000, 90000};
        static struct evidence e;
        struct advice a;

        e = (struct evidence){0};
        for (size_t i = 0; i < ARRAY_SIZE(in_use); i++) {
                struct advice_terms t = plain;

                t.ttl = in_use[i] * NSEC_PER_MSEC;
                evidence_advise(&e, &t, S(1), &a);
                CHECK(a.n_ttls <= ADVICE_TTLS);
                CHECK(ttl_of(&a, in_use[i]));
                for (size_t k = 1; k < a.n_ttls; k++) {
                        CHECK(a.ttls[k].ttl > a.ttls[k - 1].ttl);
                        CHECK(a.ttls[k].bridges > a.ttls[k - 1].bridges);
                }
        }
}

TEST(what_is_kept_is_read_again)
{
        static struct evidence e, again;
        char line[EVIDENCE_LINE + 1];
        size_t n = 0;

        e = again = (struct evidence){0};
        for (unsigned i = 0; i < 500; i++) {
                int64_t at = (int64_t) rnd(1, 23 * HOUR_MS);

                record(&e, at, (int64_t) rnd(0, 100000000));
                evidence_late(&e, (nsec_t) rnd(0, INT64_MAX), T(at));
                evidence_jeopardy(&e, T(at));
                evidence_moved(&e, T(at));
        }
        evidence_lost(&e, S(1), S(2));
        for (size_t i = 0; i < EVIDENCE_MINUTES; i++)
                if (evidence_write(&e, i, line)) {
                        CHECK_EQ(strlen(line), EVIDENCE_LINE);
                        CHECK_EQ(line[EVIDENCE_LINE - 1], '\n');
                        /* A stall may end in a minute that is still to come for the reader. */
                        if (evidence_read(&again, line, S(86400)) == 0)
                                n++;
                        else
                                e.minutes[i] = (struct evidence_minute){0};
                }
        CHECK(n > 200);
        CHECK(memcmp(e.minutes, again.minutes, sizeof(e.minutes)) == 0);
        /* Whatever is not whole, or not of the day. */
        e = (struct evidence){0};
        record(&e, 60000, 5);
        CHECK(evidence_write(&e, 2, line));
        CHECK_EQ(evidence_read(&again, line, S(59)), -EBADMSG);
        CHECK_EQ(evidence_read(&again, line, S(86400 + 60)), -EBADMSG);
        CHECK_EQ(evidence_read(&again, line, S(86400 + 59)), 0);
        for (size_t cut = 0; cut < strcspn(line, ";"); cut++) {
                char part[EVIDENCE_LINE + 1];

                snprintf(part, sizeof(part), "%.*s", (int) cut, line);
                CHECK_EQ(evidence_read(&again, part, S(100)), -EBADMSG);
        }
        /* Nothing that could not have been written. */
        CHECK_EQ(evidence_read(&again, "5 n=2 trips=8 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                               S(300)),
                 0);
        static const char *const damaged[] = {
                "5 n=-2 trips=8 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                "5 n=2 trips=-8 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                "5 n=2 trips=8 trip=5 late=1 stall=1 gap=1 1 1 4294967297 ;",
                "5 n=+2 trips=8 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                "5 n=2 trips=11 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                "5 n=1 trips=18446744073709551615 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
                "5 n=0 trips=8 trip=5 late=1 stall=1 gap=1 1 1 1 ;",
        };
        for (size_t i = 0; i < ARRAY_SIZE(damaged); i++)
                CHECK_EQ(evidence_read(&again, damaged[i], S(300)), -EBADMSG);
        CHECK_EQ(evidence_read(&again, "0 n=1 trips=1 trip=1 late=1 stall=1 gap=1 1 1 1 ;",
                               S(9)),
                 -EBADMSG);
}
