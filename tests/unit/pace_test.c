/* What a renewal waits for: each row of the table in core/renew_pace.h. */
#include "core/renew_pace.h"
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

        renew_pace_proposed(&pace);
        return n_early;
}

static void answer(size_t n_early)
{
        renew_pace_answered(&pace, now);
        renew_pace_crowd(&pace, n_early);
}

static bool arrive(nsec_t ttl, nsec_t left)
{
        return renew_pace_arrived(&pace, (struct renew_left){ttl, left}, now);
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
                answer(send());
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

TEST(nothing_is_sent_without_a_receiver)
{
        begin();
        check_nothing_waits();
        pace_themselves(3);
        CHECK_EQ(send(), 0U);
        check_nothing_waits();
        answer(0);
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
        answer(0);
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
                answer(send());
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

TEST(more_than_any_surplus_is_left_where_lease_time_is_stale)
{
        begin_busy();
        send();
        CHECK(arrive(20000 * MS, 20050 * MS));
        CHECK(!arrive(4000 * MS, 4050 * MS)); /* too short to be renewed ahead, so by nothing */
        check_next_in(50 * MS);
        CHECK(!arrive(20000 * MS, 20050 * MS + 1));
        check_due();
}

TEST(the_4096th_waits_for_nothing)
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
        answer(1);
        check_due();
}

TEST(a_crowd_shares_a_batch_when_most_are_back)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(8000 * MS, 7990 * MS));
        CHECK_EQ(send(), 80U);
        pass(MS);
        answer(80);
        for (int i = 0; i < 69; i++) {
                CHECK(!arrive(8000 * MS, 7990 * MS));
                check_next_in(5 * MS); /* if no other one comes back */
                pass(MS / 100);
        }
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_due();
}

TEST(a_crowd_stays_one_while_a_lease_is_renewed_ahead_beside_it)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(4000 * MS, 3999 * MS));
        CHECK(arrive(20000 * MS, 19999 * MS));
        CHECK_EQ(send(), 80U);
        renew_pace_proposed(&pace);
        pass(MS);
        answer(80);
        renew_pace_answered(&pace, now); /* the command of the other lease */
        CHECK(!arrive(4000 * MS, 3999 * MS));
        check_next_in(5 * MS);
}

TEST(a_crowd_that_does_not_return_is_not_waited_for_longer_if_others_come)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(8000 * MS, 7990 * MS));
        answer(send());
        pass(MS);
        CHECK(!arrive(8000 * MS, 7990 * MS));
        pass(4 * MS);
        pace_themselves(1);
        check_next_in(MS);
}

TEST(a_crowd_that_has_gone_is_forgotten)
{
        begin_busy();
        for (int i = 0; i < 80; i++)
                CHECK(!arrive(8000 * MS, 7990 * MS));
        answer(send());
        pass(MS);
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_next_in(5 * MS);
        answer(send()); /* 80 - 20 are less than a crowd */
        CHECK(!arrive(8000 * MS, 7990 * MS));
        check_due();
}

TEST(those_that_are_asked_again_wait_as_if_they_had_just_come)
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
        CHECK(!renew_pace_ask(&pace, (struct renew_left){ttl, ttl}));
        CHECK(!renew_pace_ask(&pace, (struct renew_left){ttl, ttl + 20 * MS / 8}));
        CHECK(renew_pace_ask(&pace, (struct renew_left){ttl, ttl + 20 * MS / 8 + 1}));
        CHECK(renew_pace_ask(&pace, (struct renew_left){ttl, ttl + 20 * MS}));
        CHECK(!renew_pace_ask(&pace, (struct renew_left){ttl, ttl + 20 * MS + 1}));
        CHECK(!renew_pace_ask(&pace, (struct renew_left){4000 * MS, 4003 * MS}));
}

TEST(after_slow_confirmations_one_is_asked_for_now_and_then)
{
        static const struct renew_left t = {20000 * MS, 20015 * MS};
        unsigned tries = 0;

        begin();
        renew_pace_took(&pace, 10 * NSEC_PER_SEC); /* counts as 100 ms, and half of that */
        CHECK_EQ(pace.took, 50 * MS);
        while (!renew_pace_ask(&pace, t))
                tries++;
        CHECK(tries > 100 && tries < 200);
        for (int i = 0; i < 1000; i++) /* one at a time */
                CHECK(!renew_pace_ask(&pace, t));
        renew_pace_settled(&pace, 1);
        CHECK(renew_pace_ask(&pace, t));
        renew_pace_settled(&pace, 1);
        renew_pace_took(&pace, -MS); /* by a clock that was behind */
        CHECK(pace.took > 13 * MS && pace.took < 15 * MS);
        CHECK(renew_pace_ask(&pace, t));
}

/* Two asked while confirmations were quick. The answer to one of them ended the trial of a
 * third one, so that a fourth tried beside it. */
TEST(one_asks_at_a_time_also_after_confirmations_have_become_slow)
{
        static const struct renew_left t = {20000 * MS, 20015 * MS};

        begin();
        CHECK(renew_pace_ask(&pace, t));
        CHECK(renew_pace_ask(&pace, t));
        renew_pace_took(&pace, 28 * MS);
        renew_pace_settled(&pace, 1);
        CHECK(!renew_pace_ask(&pace, t));
        renew_pace_settled(&pace, 1);
        CHECK(renew_pace_ask(&pace, t));
        CHECK(!renew_pace_ask(&pace, t));
}

TEST(quick_confirmations_are_asked_for_by_all)
{
        static const struct renew_left t = {20000 * MS, 20015 * MS};

        begin();
        renew_pace_took(&pace, 2 * MS);
        for (int i = 0; i < 100; i++)
                CHECK(renew_pace_ask(&pace, t));
}
