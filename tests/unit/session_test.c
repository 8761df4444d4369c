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
        CHECK(!session_holds(&s, T(10995)));
        session_renewed(&s, 7, T(3000));
        session_renewed(&s, 7,
                        T(2000)); /* an older answer that comes late takes nothing away */
        CHECK(session_holds(&s, T(12980)));
        session_renewed(&s, 8, T(9000)); /* another lease's */
        CHECK(!session_holds(&s, T(12995)));
}

/* A31; A50: on other replicas; A51: in time for several attempts. */
TEST(it_renews_at_half_time_then_more_and_more_and_lets_go_by_itself)
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
        session_told_lost(&s);
        CHECK_EQ(session_next_action(&s, now), SESSION_GRANT);
}

/* A32: an answer in jeopardy brings it back; only the core's word, or the deadline, ends it. */
TEST(jeopardy_is_not_loss)
{
        struct session s = held_since(0);

        CHECK_EQ(session_next_action(&s, T(8800)), SESSION_RENEW_ALL);
        CHECK_EQ(s.state, SESSION_JEOPARDY);
        session_sent(&s, T(8800));
        CHECK(session_holds(&s, T(8900)));
        session_renewed(&s, 7, T(8800));
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

/* A restarted holder goes on with what it had: the same deadline, and a renewal at once. */
TEST(a_later_life_goes_on_with_the_same_lease)
{
        struct session before = held_since(1000), s;
        struct session_place p;

        session_init(&s, &before.cfg);
        CHECK(!session_place(&s, &p)); /* joining: nothing to go on with */
        CHECK(session_place(&before, &p));
        session_resume(&s, &p);
        CHECK_EQ(session_deadline(&s).ns, session_deadline(&before).ns);
        CHECK(session_holds(&s, T(1500)));
        CHECK_EQ(session_wakeup(&s).ns, T(1000).ns);
        CHECK_EQ(session_next_action(&s, T(1500)), SESSION_RENEW);
        CHECK_EQ(s.state, SESSION_HELD);
        session_sent(&s, T(1500));
        CHECK_EQ(session_next_action(&s, T(1500)), SESSION_WAIT);
        session_renewed(&s, 7, T(1500));
        CHECK_EQ(session_wakeup(&s).ns, T(6500).ns);

        session_init(&s, &before.cfg);
        session_resume(&s, &p); /* too late */
        CHECK(!session_holds(&s, T(10995)));
        CHECK_EQ(session_next_action(&s, T(10995)), SESSION_TELL_LOST);
        session_told_lost(&s);
        CHECK(!session_place(&s, &p));
        CHECK_EQ(session_next_action(&s, T(10995)), SESSION_GRANT);

        session_leave(&before);
        CHECK(!session_place(&before, &p)); /* who leaves, leaves nothing to go on with */
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
        CHECK_EQ(session_next_action(&s, T(3600000)), SESSION_GRANT);
        CHECK_EQ(s.cfg.drift_ppm, 1000);
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
