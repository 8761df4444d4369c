#include "session/damping.h"
#include "session/degraded.h"
#include "session/session.h"
#include "test.h"

#define T(ms) ((struct boot_time){(ms) *NSEC_PER_MSEC})
#define TTL (10 * NSEC_PER_SEC)

static struct session held_since(int64_t ms)
{
        struct session_config cfg = {
                .ttl = TTL, .drift_ppm = 1000, .retry = 50 * NSEC_PER_MSEC};
        struct session s;

        session_init(&s, &cfg);
        CHECK_EQ(session_next_action(&s, T(ms)), SESSION_GRANT);
        session_granted(&s, 7, TTL, T(ms));
        CHECK_EQ(session_next_action(&s, T(ms)), SESSION_REGISTER);
        session_registered(&s);
        CHECK_EQ(s.state, SESSION_HELD);
        return s;
}

/* I3: counted from when the request was sent, less the drift; whatever comes later, not before
 * an answer. A36. */
TEST(the_deadline_counts_from_the_send_time)
{
        struct session s = held_since(1000);

        CHECK(session_deadline(&s).ns < T(11000 - 9).ns);
        CHECK(session_deadline(&s).ns > T(11000 - 11).ns);
        CHECK(session_holds(&s, T(10980)));
        CHECK(session_holds(&s, (struct boot_time){session_deadline(&s).ns - 1}));
        CHECK(!session_holds(&s, session_deadline(&s)));
        session_renewed(&s, 7, TTL, T(3000));
        session_renewed(&s, 7, TTL,
                        T(2000)); /* an older answer that comes late takes nothing away */
        CHECK(session_holds(&s, T(12980)));
        session_renewed(&s, 8, TTL, T(9000)); /* another lease's */
        CHECK(!session_holds(&s, T(12995)));
}

/* The core may answer less than it granted; from that renewal on, the lease lasts only so long.
 * A larger TTL in an answer is not believed. */
TEST(the_lowest_ttl_that_was_answered_counts)
{
        struct session s = held_since(0);

        session_renewed(&s, 7, TTL / 2, T(1000));
        CHECK(session_holds(&s, T(5990)));
        CHECK(!session_holds(&s, T(6000)));
        CHECK_EQ(session_wakeup(&s).ns, T(3500).ns);
        session_renewed(&s, 7, 4 * TTL, T(2000));
        CHECK(!session_holds(&s, T(7000)));
}

/* A place that is lost as soon as it is won, again and again, is asked for less and less often;
 * one that was renewed is asked for at once. */
TEST(who_loses_at_once_asks_less_often)
{
        struct session_config cfg = {
                .ttl = TTL, .drift_ppm = 1000, .retry = 50 * NSEC_PER_MSEC};
        struct boot_time now = T(0);
        unsigned grants = 0;
        struct session s;

        session_init(&s, &cfg);
        while (boot_before(now, T(60000))) {
                enum session_action a = session_next_action(&s, now);

                if (a == SESSION_GRANT) {
                        session_granted(&s, ++grants, TTL, now);
                } else if (a == SESSION_REGISTER) {
                        if (grants % 2 == 0)
                                session_registered(&s);
                        session_gone(&s, grants);
                } else if (a == SESSION_TELL_LOST) {
                        session_loss_announced(&s);
                } else {
                        CHECK_EQ(a, SESSION_WAIT);
                        CHECK(boot_before(now, session_wakeup(&s)));
                        now = session_wakeup(&s);
                }
        }
        CHECK(grants > 10);
        CHECK(grants < 30);
        s = held_since(0);
        s.in_vain = grants; /* up to here: the renewal that is acknowledged ends that */
        session_renewed(&s, 7, TTL, T(5000));
        session_gone(&s, 7);
        CHECK_EQ(session_next_action(&s, T(6000)), SESSION_TELL_LOST);
        session_loss_announced(&s);
        CHECK_EQ(session_next_action(&s, T(6000)), SESSION_GRANT);
}

/* However long its lease will last: after an outage a host without a place is in the cluster
 * again as soon as any other. */
TEST(who_has_no_place_asks_every_few_seconds)
{
        struct session_config cfg = {
                .ttl = 360 * TTL, .drift_ppm = 1000, .retry = 50 * NSEC_PER_MSEC};
        struct boot_time now = T(0);
        struct session s;

        session_init(&s, &cfg);
        for (unsigned i = 0; i < 30; i++) {
                CHECK_EQ(session_next_action(&s, now), SESSION_GRANT);
                session_failed(&s, now);
                CHECK(boot_diff(session_wakeup(&s), now) <= 5 * NSEC_PER_SEC);
                now = session_wakeup(&s);
        }
        session_granted(&s, 7, cfg.ttl, now);
        for (unsigned i = 0; i < 30; i++) {
                CHECK_EQ(session_next_action(&s, now), SESSION_REGISTER);
                session_failed(&s, now);
                CHECK(boot_diff(session_wakeup(&s), now) <= 5 * NSEC_PER_SEC);
                now = session_wakeup(&s);
        }
}

/* A host that may have stood still renews at once, and believes only an answer to that;
 * meanwhile it keeps what it holds. */
TEST(who_is_in_doubt_renews_at_once)
{
        struct session s = held_since(0);

        session_doubt(&s, T(1000));
        CHECK(session_wakeup(&s).ns <= T(1000).ns);
        CHECK_EQ(session_next_action(&s, T(1000)), SESSION_RENEW);
        session_sent(&s, T(1000));
        CHECK_EQ(session_next_action(&s, T(1000)), SESSION_WAIT);
        CHECK(session_holds(&s, T(1000)));
        session_renewed(&s, 7, TTL, T(900)); /* on its way before we stood still */
        CHECK_EQ(session_next_action(&s, T(1001)), SESSION_RENEW);
        session_sent(&s, T(1001));
        session_doubt(&s, T(1002)); /* again: the one under way may be too old as well */
        CHECK_EQ(session_next_action(&s, T(1002)), SESSION_WAIT);
        session_renewed(&s, 7, TTL, T(1001));
        CHECK_EQ(session_next_action(&s, T(1003)), SESSION_RENEW);
        session_sent(&s, T(1003));
        session_renewed(&s, 7, TTL, T(1003));
        CHECK_EQ(session_next_action(&s, T(1004)), SESSION_WAIT);
        CHECK_EQ(session_wakeup(&s).ns, T(6003).ns);
        session_doubt(&s, T(2000));
        CHECK_EQ(session_next_action(&s, T(2000)), SESSION_RENEW);
        session_gone(&s, 7);
        CHECK(!session_holds(&s, T(2001)));
        CHECK_EQ(session_next_action(&s, T(2001)), SESSION_TELL_LOST);
        session_loss_announced(&s);
        session_doubt(&s, T(2002)); /* of nothing */
        CHECK_EQ(session_next_action(&s, T(2002)), SESSION_GRANT);
}

/* It has lease 7, asked for at 0. */
static struct session registering(void)
{
        struct session s;

        session_init(&s, &(struct session_config){.ttl = TTL, .retry = 50 * NSEC_PER_MSEC});
        CHECK_EQ(session_next_action(&s, T(0)), SESSION_GRANT);
        session_granted(&s, 7, TTL, T(0));
        CHECK_EQ(session_next_action(&s, T(1)), SESSION_REGISTER);
        return s;
}

/* What was granted to it before may have ended by now, although its clock says that it is new.
 */
TEST(who_is_in_doubt_registers_no_earlier_lease)
{
        struct session s = registering();

        session_doubt(&s, T(2));
        session_failed(&s, T(3));
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_GRANT);
        session_doubt(&s, T(101));
        session_granted(&s, 8, TTL, T(100));
        CHECK_EQ(session_next_action(&s, T(200)), SESSION_GRANT);
        session_granted(&s, 9, TTL, T(200));
        CHECK_EQ(session_next_action(&s, T(201)), SESSION_REGISTER);
        session_registered(&s);
        CHECK_EQ(session_next_action(&s, T(202)), SESSION_WAIT);
}

/* Its key may be in the core when its host stands still. */
TEST(who_is_in_doubt_while_it_registers_renews_at_once)
{
        struct session s = registering();

        session_doubt(&s, T(2));
        session_registered(&s);
        CHECK_EQ(session_next_action(&s, T(3)), SESSION_RENEW);
}

/* A31; A50: on other replicas; A51: in time for several attempts. */
TEST(it_renews_at_half_time_then_more_often_and_gives_up_by_itself)
{
        struct session s = held_since(0);
        unsigned n = 0, all = 0;
        struct boot_time now = T(0);

        CHECK_EQ(session_wakeup(&s).ns, T(5000).ns);
        while (s.state != SESSION_LOST) {
                enum session_action a;

                now = boot_max(session_wakeup(&s), now);
                while ((a = session_next_action(&s, now)) != SESSION_WAIT &&
                       a != SESSION_TELL_LOST) {
                        CHECK(a == SESSION_RENEW || a == SESSION_RENEW_ALL);
                        CHECK(now.ns >= T(5000).ns);
                        CHECK_EQ(a == SESSION_RENEW_ALL, now.ns >= T(8750).ns);
                        n++;
                        all += a == SESSION_RENEW_ALL;
                        session_sent(&s, now);
                }
        }
        CHECK(n >= 6 && n < 100 && all >= 1);
        CHECK(now.ns >= T(9980).ns && now.ns < T(10000).ns);
        CHECK(!session_holds(&s, now));
        CHECK_EQ(s.lease, 0);
        session_loss_announced(&s);
        CHECK_EQ(session_next_action(&s, now), SESSION_GRANT);
}

/* A32: an answer in jeopardy ends it; only the core's answer, or the deadline, ends the
 * place. */
TEST(jeopardy_is_not_loss)
{
        struct session s = held_since(0);

        CHECK_EQ(session_next_action(&s, T(8800)), SESSION_RENEW_ALL);
        CHECK_EQ(s.state, SESSION_JEOPARDY);
        session_sent(&s, T(8800));
        CHECK(session_holds(&s, T(8900)));
        session_renewed(&s, 7, TTL, T(8800));
        CHECK_EQ(s.state, SESSION_HELD);
        session_gone(&s, 7);
        CHECK_EQ(s.state, SESSION_LOST);
        CHECK(!session_holds(&s, T(8901)));
}

/* A host that slept wakes up knowing. A29. */
TEST(after_a_jump_of_the_clock_nothing_is_held)
{
        struct session s = held_since(0);

        CHECK(!session_holds(&s, T(3600000)));
        CHECK_EQ(session_next_action(&s, T(3600000)), SESSION_TELL_LOST);
}

/* A restarted holder continues with what it had: the same deadline, and a renewal at once. */
TEST(a_later_life_continues_with_the_same_lease)
{
        struct session before = held_since(1000), s;
        struct session_place p;

        session_init(&s, &before.cfg);
        CHECK(!session_place(&s, &p)); /* joining: nothing to go on with */
        CHECK(session_place(&before, &p));
        session_resume(&s, &p, T(1400));
        CHECK_EQ(session_deadline(&s).ns, session_deadline(&before).ns);
        CHECK(session_holds(&s, T(1500)));
        CHECK_EQ(session_wakeup(&s).ns, T(1000).ns);
        CHECK_EQ(session_next_action(&s, T(1500)), SESSION_RENEW);
        CHECK_EQ(s.state, SESSION_HELD);
        session_sent(&s, T(1500));
        CHECK_EQ(session_next_action(&s, T(1500)), SESSION_WAIT);
        session_renewed(&s, 7, TTL, T(1500));
        CHECK_EQ(session_wakeup(&s).ns, T(6500).ns);

        session_init(&s, &before.cfg);
        session_resume(&s, &p, T(10990)); /* too late */
        CHECK(!session_holds(&s, T(10995)));
        CHECK_EQ(session_next_action(&s, T(10995)), SESSION_TELL_LOST);
        session_loss_announced(&s);
        CHECK(!session_place(&s, &p));
        CHECK_EQ(session_next_action(&s, T(10995)), SESSION_GRANT);

        session_leave(&before);
        CHECK(!session_place(&before, &p)); /* a holder that leaves has nothing to continue
                                             * with */
}

/* Its settings may be broken or different by now: an agent that was started with a margin of 10
 * % leaves a guard, or a next run, that knows only of 0.1 %, and must not believe for longer. A
 * deadline of another clock is not believed, either. */
TEST(a_later_life_believes_no_longer_than_the_one_before)
{
        struct session before = held_since(1000), s;
        struct session_config cfg = before.cfg;
        struct session_place p;

        cfg.drift_ppm = 100000;
        session_init(&before, &cfg);
        CHECK_EQ(session_next_action(&before, T(1000)), SESSION_GRANT);
        session_granted(&before, 7, TTL, T(1000));
        session_registered(&before);
        CHECK(session_place(&before, &p));
        cfg.drift_ppm = 1000;
        session_init(&s, &cfg);
        session_resume(&s, &p, T(2000));
        CHECK_EQ(session_deadline(&s).ns, session_deadline(&before).ns);
        CHECK(!session_holds(&s, T(10000)));
        session_gone(&s, 7);
        CHECK_EQ(session_next_action(&s, T(2001)), SESSION_TELL_LOST);
        session_loss_announced(&s);
        CHECK_EQ(session_next_action(&s, T(2001)), SESSION_GRANT);
        session_granted(&s, 8, TTL, T(2001));
        session_registered(&s);
        CHECK(session_holds(&s, T(11990))); /* the next one is by the settings */

        session_init(&s, &cfg);
        session_resume(&s, &p, T(999));
        CHECK(!session_holds(&s, T(999)));
        CHECK_EQ(session_next_action(&s, T(999)), SESSION_TELL_LOST);
}

TEST(leaving_gives_back_or_lets_expire)
{
        struct session s = held_since(0);

        session_leave(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_REVOKE);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_WAIT);
        session_left(&s);
        CHECK_EQ(s.state, SESSION_LEFT);

        s = held_since(0);
        session_leave(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_REVOKE);
        CHECK_EQ(session_next_action(&s, T(1200)), SESSION_WAIT); /* nobody answered */
        CHECK_EQ(s.state, SESSION_LEFT);

        /* No connection yet, as after a restart: the next one is asked. */
        s = held_since(0);
        session_leave(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_REVOKE);
        session_failed(&s, T(100));
        CHECK_EQ(s.state, SESSION_LEAVING);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_WAIT);
        CHECK(boot_before(T(100), session_wakeup(&s)));
        session_hurry(&s, T(105)); /* there is one */
        CHECK_EQ(session_next_action(&s, T(105)), SESSION_REVOKE);
        session_failed(&s, T(110));
        CHECK_EQ(session_next_action(&s, session_wakeup(&s)), SESSION_REVOKE);
        CHECK_EQ(session_next_action(&s, T(1099)), SESSION_WAIT);
        CHECK_EQ(session_wakeup(&s).ns, T(1100).ns); /* in all as long as one that hangs */
        CHECK_EQ(session_next_action(&s, T(1100)), SESSION_WAIT);
        CHECK_EQ(s.state, SESSION_LEFT);
}

TEST(who_has_left_may_join_again)
{
        struct session s = held_since(0);

        session_join(&s); /* not while it holds */
        CHECK_EQ(s.lease, 7);
        session_leave(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_REVOKE);
        session_left(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_WAIT);
        session_join(&s);
        session_left(&s); /* an answer that comes late is of the life before */
        CHECK_EQ(session_next_action(&s, T(3600000)), SESSION_GRANT);
        CHECK_EQ(s.cfg.drift_ppm, 1000);
}

/* A host that was suspended has not rested, and what it counts goes on. */
TEST(a_leave_and_a_join_end_no_rest_and_no_count)
{
        struct session s = held_since(0);

        session_sent(&s, T(50));
        session_suppress(&s, T(5000));
        session_leave(&s);
        CHECK_EQ(session_next_action(&s, T(100)), SESSION_REVOKE);
        session_left(&s);
        session_join(&s);
        CHECK_EQ(session_next_action(&s, T(4999)), SESSION_WAIT);
        CHECK_EQ(session_wakeup(&s).ns, T(5000).ns);
        CHECK_EQ(session_next_action(&s, T(5000)), SESSION_GRANT);
        CHECK_EQ(s.n_sent, 1);
}

TEST(a_lease_that_ages_while_it_is_registered_is_not_used)
{
        struct session_config cfg = {
                .ttl = TTL, .drift_ppm = 1000, .retry = 50 * NSEC_PER_MSEC};
        struct session s;

        session_init(&s, &cfg);
        CHECK_EQ(session_next_action(&s, T(0)), SESSION_GRANT);
        session_granted(&s, 7, TTL, T(0));
        CHECK_EQ(session_next_action(&s, T(1)), SESSION_REGISTER);
        CHECK_EQ(session_next_action(&s, T(11000)), SESSION_GRANT);
        session_registered(&s); /* of the old one: too late */
        CHECK_EQ(s.state, SESSION_JOINING);
}

static bool reads(struct degraded *d, double memory, nsec_t lag, nsec_t at)
{
        static const struct degraded_config cfg = {60, 0, 100 * NSEC_PER_MSEC};
        struct degraded_reading r = {.cpu = 99, .memory = memory, .io = -1, .lag = lag};

        return degraded_update(d, &cfg, &r, (struct boot_time){at});
}

TEST(what_slows_a_host_down)
{
        static const char text[] = "some avg10=1.50 avg60=2.00 avg300=3.00 total=4\n"
                                   "full avg10=71.25 avg60=0.00 avg300=0.00 total=0\n";
        struct degraded d = {0};

        CHECK(pressure_parse(text, "full") > 71.2 && pressure_parse(text, "full") < 71.3);
        CHECK(pressure_parse(text, "some") > 1.4 && pressure_parse(text, "some") < 1.6);
        CHECK(pressure_parse("", "full") < 0 && pressure_parse("full", "full") < 0);
        CHECK(pressure_parse("full avg10=x", "full") < 0);
        CHECK(pressure_parse("full avg10=900", "full") < 0);

        CHECK(!reads(&d, 59, 0, 0));
        CHECK(reads(&d, 71, 0, NSEC_PER_SEC));
        CHECK_EQ(strcmp(d.why, "memory pressure 71 %"), 0);
        CHECK(!reads(&d, 90, 0, 2 * NSEC_PER_SEC));  /* no news */
        CHECK(!reads(&d, 40, 0, 30 * NSEC_PER_SEC)); /* better, not well */
        CHECK(!reads(&d, 80, 0, 35 * NSEC_PER_SEC));
        CHECK(!reads(&d, 10, 0, 40 * NSEC_PER_SEC)); /* well, for 5 s */
        CHECK(reads(&d, 10, 0, 46 * NSEC_PER_SEC));
        CHECK_EQ(*d.why, 0);
        CHECK(reads(&d, 0, 340 * NSEC_PER_MSEC, 50 * NSEC_PER_SEC));
        CHECK_EQ(strcmp(d.why, "the agent ran 340 ms late"), 0);
        CHECK(reads(&d, 0, 0, 61 * NSEC_PER_SEC));
}

/* A busy host is not a degraded one, unless the settings say so. */
TEST(a_busy_host_is_degraded_only_where_it_is_asked_for)
{
        struct degraded_config cfg = {60, 80, 100 * NSEC_PER_MSEC};
        const struct degraded_reading busy = {.cpu = 85, .memory = 0, .io = 0};
        const struct degraded_reading well = {.cpu = 30, .memory = 0, .io = 0};
        struct degraded d = {0};

        CHECK(degraded_update(&d, &cfg, &busy, T(0)));
        CHECK_EQ(strcmp(d.why, "cpu pressure 85 %"), 0);
        CHECK(degraded_update(&d, &cfg, &well, T(11000)));
        CHECK(degraded_update(&d, &cfg, &busy, T(12000)));
        cfg.cpu_percent = 0; /* set so by a reload */
        CHECK(degraded_update(&d, &cfg, &busy, T(23000)));
        CHECK_EQ(*d.why, 0);
        CHECK(!degraded_update(&d, &cfg, &busy, T(24000)));
}

TEST(who_flaps_stays_out)
{
        struct damping_config cfg = {3, 60 * NSEC_PER_SEC, 600 * NSEC_PER_SEC};
        struct damping d = {0};

        CHECK(!damping_lost(&d, &cfg, T(1000)));
        CHECK(!damping_lost(&d, &cfg, T(2000)));
        CHECK(!damping_lost(&d, &cfg, T(62500))); /* the first two are long ago */
        CHECK(!damping_lost(&d, &cfg, T(63000)));
        CHECK(damping_lost(&d, &cfg, T(64000)));
        CHECK_EQ(d.until.ns, T(664000).ns);
        CHECK(!damping_lost(&d, &cfg, T(665000)));
        damping_forgive(&d);
        CHECK(d.n == 0 && d.until.ns == 0);
        cfg.limit = 0;
        for (int i = 0; i < 100; i++)
                CHECK(!damping_lost(&d, &cfg, T(700000)));
        cfg.limit = 100; /* more than are kept: all of them */
        for (int i = 1; i < DAMPING_LIMIT_MAX; i++)
                CHECK(!damping_lost(&d, &cfg, T(700000)));
        CHECK(damping_lost(&d, &cfg, T(700000)));
}

TEST(who_rests_does_not_join)
{
        struct session s;

        session_init(&s, &(struct session_config){TTL, 1000, 50 * NSEC_PER_MSEC});
        session_suppress(&s, T(5000));
        CHECK_EQ(session_next_action(&s, T(0)), SESSION_WAIT);
        CHECK_EQ(session_wakeup(&s).ns, T(5000).ns);
        session_hurry(&s, T(1000));
        CHECK_EQ(session_next_action(&s, T(4999)), SESSION_WAIT);
        CHECK_EQ(session_next_action(&s, T(5000)), SESSION_GRANT);
}
