/* What a renewal waits for: each row of the table in core/pace.h. */
#include "core/pace.h"
#include "test.h"

#define MS NSEC_PER_MSEC

static struct renew_pace pace;
static struct boot_time now;

/* As if nothing had been sent for long, so that few come. */
static void begin(void)
{
        now.ns = 1000 * NSEC_PER_SEC;
        renew_pace_init(&pace, 0);
}

static void pass(nsec_t t)
{
        now = boot_add(now, t);
}

static size_t send(void)
{
        size_t n_early = renew_pace_sent(&pace, now);

        renew_pace_under_way(&pace);
        return n_early;
}

static bool arrive(nsec_t ttl, nsec_t left)
{
        return renew_pace_arrived(&pace, (struct renew_term){ttl, left}, now);
}

/* Half of the term is over, as with agents. */
static void pace_themselves(size_t n)
{
        while (n-- > 0)
                CHECK(!arrive(10000 * MS, 5000 * MS));
}

/* Clients have paced themselves for a second, each as fast as the window lets it. */
static void begin_busy(void)
{
        begin();
        for (int i = 0; i < 40; i++) {
                pace_themselves(1);
                send();
                renew_pace_answered(&pace, 0, now);
                pass(10 * MS);
        }
}

static void check_next_in(nsec_t t)
{
        CHECK_EQ(renew_pace_next(&pace).ns, boot_add(now, t).ns);
}

static void check_due(void)
{
        CHECK(!boot_before(now, renew_pace_next(&pace)));
}

static void check_nothing_waits(void)
{
        CHECK_EQ(renew_pace_next(&pace).ns, BOOT_TIME_NEVER.ns);
}

TEST(nothing_is_sent_for_nobody)
{
        begin();
        check_nothing_waits();
        pace_themselves(3);
        CHECK_EQ(send(), 0U);
        check_nothing_waits();
        renew_pace_answered(&pace, 0, now);
        check_nothing_waits();
}

TEST(few_wait_only_for_the_batch_under_way)
{
        begin();
        pace_themselves(1);
        check_due();
        send();
        pass(MS);
        pace_themselves(1);
        check_next_in(49 * MS); /* if it takes that long */
        pass(2 * MS);
        renew_pace_answered(&pace, 0, now);
        check_due();
}

TEST(many_wait_for_the_end_of_the_window)
{
        begin_busy();
        pace_themselves(1);
        check_next_in(40 * MS);
        pass(5 * MS);
        pace_themselves(100);
        check_next_in(35 * MS);
}

TEST(a_window_is_a_fiftieth_of_the_ttl_within_limits)
{
        static const nsec_t ttl_and_window[][2] = {
                {NSEC_PER_SEC, 20 * MS},
                {2 * NSEC_PER_SEC, 40 * MS},
                {10 * NSEC_PER_SEC, 50 * MS},
                {3600 * NSEC_PER_SEC, 50 * MS},
                {50 * MS, 2 * MS},
        };

        for (size_t i = 0; i < ARRAY_SIZE(ttl_and_window); i++) {
                nsec_t ttl = ttl_and_window[i][0];

                begin_busy();
                pass(-10 * MS); /* the last batch goes just now */
                CHECK(!arrive(ttl, ttl / 2));
                check_next_in(ttl_and_window[i][1]);
        }
        /* The shortest one counts. */
        pace_themselves(1);
        check_next_in(2 * MS);
}

TEST(after_a_second_of_peace_twenty_batches_go_at_once)
{
        begin_busy();
        pass(NSEC_PER_SEC);
        for (int i = 0; i < 20; i++) {
                pace_themselves(1);
                check_due();
                send();
                renew_pace_answered(&pace, 0, now);
        }
        pace_themselves(1);
        check_next_in(50 * MS);
}

TEST(the_last_quarter_of_a_term_waits_for_nothing)
{
        begin_busy();
        send(); /* which is under way */
        pace_themselves(1);
        check_next_in(50 * MS);
        CHECK(!arrive(8000 * MS, 2000 * MS));
        check_next_in(50 * MS);
        CHECK(!arrive(8000 * MS, 2000 * MS - 1));
        check_due();
        pass(MS);
        pace_themselves(1);
        check_due();
}

TEST(a_full_batch_waits_for_nothing)
{
        begin_busy();
        send();
        pace_themselves(4095);
        check_next_in(50 * MS);
        pace_themselves(1);
        check_due();
}

TEST(early_ones_go_at_the_pace_of_the_disk)
{
        begin_busy();
        CHECK(!arrive(8000 * MS, 7000 * MS));
        check_next_in(40 * MS);
        CHECK(!arrive(8000 * MS, 7000 * MS + 1));
        check_due();
        CHECK_EQ(send(), 1U);
        pass(3 * MS);
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_next_in(47 * MS);
        renew_pace_answered(&pace, 1, now);
        check_due();
}

TEST(a_crowd_shares_a_batch_when_most_are_back)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(8000 * MS, 7990 * MS));
        CHECK_EQ(send(), 80U);
        pass(MS);
        renew_pace_answered(&pace, 80, now);
        for (int i = 0; i < 69; i++) {
                CHECK(!arrive(8000 * MS, 7990 * MS));
                check_next_in(5 * MS); /* if no other one comes back */
                pass(MS / 100);
        }
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_due();
}

TEST(a_crowd_that_has_gone_is_forgotten)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(8000 * MS, 7990 * MS));
        renew_pace_answered(&pace, send(), now);
        pass(MS);
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_next_in(5 * MS);
        renew_pace_answered(&pace, send(), now); /* 80 - 20 are less than a crowd */
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_due();
}

TEST(those_that_are_asked_anew_wait_as_if_they_had_just_come)
{
        begin_busy();
        pace_themselves(4096);
        check_due();
        renew_pace_forget(&pace);
        check_nothing_waits();
        pace_themselves(1);
        check_next_in(40 * MS);
}

/* ---- renewed ahead ---- */

TEST(a_lease_is_renewed_ahead_by_a_thousandth_of_its_ttl)
{
        begin();
        CHECK_EQ(renew_pace_ahead(&pace, 4999 * MS), 0);
        CHECK_EQ(renew_pace_ahead(&pace, 5000 * MS), 5 * MS);
        CHECK_EQ(renew_pace_ahead(&pace, 20999 * MS), 20 * MS);
        CHECK_EQ(renew_pace_ahead(&pace, 3600 * NSEC_PER_SEC), 50 * MS);
        renew_pace_init(&pace, 20);
        CHECK_EQ(renew_pace_ahead(&pace, 200 * MS), 10 * MS);
}

TEST(who_renews_again_within_that_part_is_renewed_ahead)
{
        begin();
        CHECK(!arrive(20000 * MS, 19980 * MS));
        CHECK(arrive(20000 * MS, 19980 * MS + 1));
        CHECK(!arrive(4000 * MS, 3999 * MS)); /* too short for that */
        CHECK_EQ(send(), 2U);                 /* the other two, which are early */
}

TEST(a_lead_that_outlasts_a_confirmation_needs_no_entry)
{
        static const nsec_t ttl = 20000 * MS;

        begin();
        CHECK(!renew_pace_is_covered(&pace, (struct renew_term){ttl, ttl}));
        CHECK(!renew_pace_is_covered(&pace, (struct renew_term){ttl, ttl + 20 * MS / 8}));
        CHECK(renew_pace_is_covered(&pace, (struct renew_term){ttl, ttl + 20 * MS / 8 + 1}));
        CHECK(renew_pace_is_covered(&pace, (struct renew_term){ttl, ttl + 20 * MS}));
        CHECK(!renew_pace_is_covered(&pace, (struct renew_term){ttl, ttl + 20 * MS + 1}));
        CHECK(!renew_pace_is_covered(&pace, (struct renew_term){4000 * MS, 4003 * MS}));
}

TEST(after_slow_confirmations_one_is_asked_for_now_and_then)
{
        static const struct renew_term t = {20000 * MS, 20015 * MS};
        unsigned tries = 0;

        begin();
        renew_pace_confirmed(&pace, 10 * NSEC_PER_SEC); /* counts as 100 ms, and half of that */
        CHECK_EQ(pace.used, 50 * MS);
        while (!renew_pace_is_covered(&pace, t))
                tries++;
        CHECK(tries > 100 && tries < 200);
        renew_pace_confirmed(&pace, -MS); /* by a clock that was behind */
        CHECK(pace.used > 13 * MS && pace.used < 15 * MS);
        CHECK(renew_pace_is_covered(&pace, t));
}
