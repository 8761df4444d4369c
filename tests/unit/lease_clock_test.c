#include "consensus/lease_clock.h"
#include "test.h"

#define MS NSEC_PER_MSEC
#define BEAT (50 * MS)

static struct boot_time at_ms(int64_t ms)
{
        return (struct boot_time){1000 * NSEC_PER_SEC + ms * MS};
}

static struct lease_clock leader(int64_t known_ms)
{
        struct lease_clock c;

        lease_clock_init(&c, BEAT, 50 * MS);
        lease_clock_learn(&c, 1, (struct lease_time){known_ms * MS}, at_ms(0));
        lease_clock_start(&c, 2, at_ms(0));
        return c;
}

/* While beacons are answered, lease time runs like the leader's clock, after the moment that
 * clients take to try again. */
TEST(lease_time_runs_while_the_core_is_well)
{
        struct lease_clock c = leader(7000);

        for (int64_t t = 0; t <= 1000; t += 50)
                lease_clock_confirm(&c, at_ms(t));
        CHECK_EQ(lease_clock_read(&c, at_ms(1000)).ns, 7950 * MS);
        CHECK_EQ(lease_clock_read(&c, at_ms(1030)).ns, 7980 * MS);
        CHECK(lease_clock_healthy(&c, at_ms(1100)));
        CHECK_EQ(lease_clock_when(&c, (struct lease_time){8050 * MS}, at_ms(1000)).ns,
                 at_ms(1100).ns);
}

/* I1: the time between two beacons that are too far apart does not count, and neither does a
 * retry. */
TEST(lease_time_stands_still_in_an_outage)
{
        struct lease_clock c = leader(0);

        lease_clock_confirm(&c, at_ms(100));
        CHECK_EQ(lease_clock_read(&c, at_ms(100)).ns, 50 * MS);
        CHECK(!lease_clock_healthy(&c, at_ms(2000)));
        CHECK_EQ(lease_clock_read(&c, at_ms(2000)).ns, 50 * MS);
        lease_clock_confirm(&c, at_ms(2000));
        CHECK_EQ(lease_clock_read(&c, at_ms(2049)).ns, 50 * MS);
        lease_clock_confirm(&c, at_ms(2100));
        CHECK_EQ(lease_clock_read(&c, at_ms(2100)).ns, 100 * MS);
        CHECK_EQ(c.outages, 1900 * MS);
}

/* A beacon that waited somewhere counts from when it was sent, and an older one not at all. */
TEST(late_answers_do_not_turn_lease_time_back)
{
        struct lease_clock c = leader(0);

        lease_clock_confirm(&c, at_ms(150));
        lease_clock_confirm(&c, at_ms(100));
        CHECK_EQ(lease_clock_read(&c, at_ms(150)).ns, 100 * MS);
}

/* I2, A7: each leader continues from the highest beacon that a majority received, and never
 * refills; what was received twice counts once. A8; A13: one number is set, no lease is
 * touched. */
TEST(a_new_leader_continues_where_the_old_one_was)
{
        struct lease_clock a = leader(0), b;

        for (int64_t t = 0; t <= 1000; t += 50)
                lease_clock_confirm(&a, at_ms(t));
        lease_clock_init(&b, BEAT, 50 * MS);
        lease_clock_learn(&b, 2, a.known, at_ms(1001));
        lease_clock_learn(&b, 2, (struct lease_time){500 * MS}, at_ms(1002));
        lease_clock_learn(&b, 2, a.known, at_ms(1900));
        lease_clock_start(&b, 3, at_ms(2000));
        CHECK_EQ(lease_clock_read(&b, at_ms(2000)).ns, 950 * MS);
        CHECK_EQ(lease_clock_read(&b, at_ms(2150)).ns, 1050 * MS);
}

/* I3: lease time that was given out stands, even if an outage began before; and a beacon of a
 * leader that was never confirmed does not outlive the next leader's. */
TEST(lease_time_that_was_given_out_stands)
{
        struct lease_clock c = leader(0), other;

        CHECK_EQ(lease_clock_give(&c, at_ms(150)).ns, 100 * MS);
        lease_clock_confirm(&c, at_ms(3000));
        CHECK_EQ(lease_clock_read(&c, at_ms(3000)).ns, 100 * MS);

        lease_clock_init(&other, BEAT, 50 * MS);
        lease_clock_learn(&other, 2, (struct lease_time){500 * MS}, at_ms(0));
        lease_clock_learn(&other, 3, (struct lease_time){450 * MS}, at_ms(1));
        lease_clock_learn(&other, 2, (struct lease_time){600 * MS}, at_ms(2));
        lease_clock_start(&other, 4, at_ms(3));
        CHECK_EQ(lease_clock_read(&other, at_ms(3)).ns, 450 * MS);
}

/* Lease time never runs faster than the leader's own clock, whatever is confirmed when (I3). */
TEST(lease_time_is_never_ahead)
{
        struct lease_clock c = leader(0);
        int64_t now = 0, sent[64], n = 0;

        for (int i = 0; i < 2000; i++) {
                now += (int64_t) rnd(0, 90);
                if (n < 64 && rnd(0, 3) > 0)
                        sent[n++] = now;
                if (n > 0 && rnd(0, 2) == 0)
                        lease_clock_confirm(&c, at_ms(sent[rnd(0, (uint64_t) n - 1)]));
                if (rnd(0, 20) == 0)
                        n = 0;
                CHECK(lease_clock_read(&c, at_ms(now)).ns <= now * MS);
        }
}
