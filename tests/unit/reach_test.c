/* When an endpoint is connected to, and when it counts as gone. */
#include "member/reach.h"
#include "test.h"

static struct {
        struct reach reach;
        unsigned connects, closes, pings, downs, silents;
        uint64_t pongs;
        bool greeting;
} rig;

static void on_connect(struct reach *r)
{
        (void) r;
        rig.connects++;
}

static bool is_greeting(const struct reach *r)
{
        (void) r;
        return rig.greeting;
}

static void on_close(struct reach *r)
{
        (void) r;
        rig.closes++;
}

static int on_ping(struct reach *r)
{
        (void) r;
        rig.pings++;
        return 0;
}

static uint64_t pongs(const struct reach *r)
{
        (void) r;
        return rig.pongs;
}

static void on_down(struct reach *r, bool was_up, const char *why)
{
        (void) r;
        (void) was_up;
        (void) why;
        rig.downs++;
}

static void on_silent(struct reach *r)
{
        (void) r;
        rig.silents++;
}

static const struct reach_ops ops = {.connect = on_connect,
                                     .is_greeting = is_greeting,
                                     .close = on_close,
                                     .ping = on_ping,
                                     .pongs = pongs,
                                     .down = on_down,
                                     .silent = on_silent};

static struct boot_time ms(int64_t n)
{
        return (struct boot_time){n * NSEC_PER_MSEC};
}

static void begin(void)
{
        memset(&rig, 0, sizeof(rig));
        reach_init(&rig.reach, &ops);
}

TEST(reach_waits_longer_after_each_failure)
{
        static const int64_t waits[] = {20, 40, 80, 160, 320, 640, 1000, 1000};
        int64_t at = 5000;

        begin();
        reach_run(&rig.reach, ms(at)); /* not wanted by the owner */
        CHECK_EQ(rig.connects, 0U);
        reach_want(&rig.reach, ms(at));
        for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
                CHECK_EQ(rig.connects, i + 1);
                reach_failed(&rig.reach, ms(at), "refused");
                CHECK_EQ(rig.downs, i + 1);
                reach_want(&rig.reach, ms(at));
                CHECK_EQ(rig.reach.when.ns, ms(at + waits[i]).ns);
                reach_run(&rig.reach, ms(at + waits[i] - 1));
                CHECK_EQ(rig.connects, i + 1);
                at += waits[i];
                reach_run(&rig.reach, ms(at));
        }
        /* A connection that was up only for a moment does not reset the delay; a longer one
         * does. */
        reach_up(&rig.reach, ms(at));
        reach_failed(&rig.reach, ms(at + 999), "closed");
        CHECK_EQ(rig.reach.when.ns, ms(at + 1999).ns);
        reach_run(&rig.reach, ms(at + 1999));
        reach_want(&rig.reach, ms(at + 1999));
        reach_up(&rig.reach, ms(at + 1999));
        reach_failed(&rig.reach, ms(at + 2999), "closed");
        CHECK_EQ(rig.reach.when.ns, ms(at + 3019).ns);
}

/* Who is about to lose its place does not wait for a second, but not for nothing either. */
TEST(reach_hurries)
{
        int64_t at = 5000;

        begin();
        reach_want(&rig.reach, ms(at));
        for (unsigned i = 0; i < 8; i++, at += 60) {
                CHECK_EQ(rig.connects, i + 1);
                reach_failed(&rig.reach, ms(at + 1), "refused");
                reach_hurry(&rig.reach, ms(at + 1), 60 * NSEC_PER_MSEC);
                CHECK_EQ(rig.connects, i + 1);
                CHECK(rig.reach.when.ns <= ms(at + 60).ns);
                reach_run(&rig.reach, ms(at + 60));
        }
        reach_failed(&rig.reach, ms(at + 1), "refused"); /* and waits for a second */
        reach_hurry(&rig.reach, ms(at + 200), 60 * NSEC_PER_MSEC);
        CHECK_EQ(rig.connects, 10U);
        reach_up(&rig.reach, ms(at + 201));
        reach_hurry(&rig.reach, ms(at + 300), 0);
        CHECK_EQ(rig.connects, 10U);
        CHECK_EQ(rig.closes, 9U);
}

TEST(reach_hurries_where_an_attempt_hangs)
{
        begin();
        reach_want(&rig.reach, ms(1000));
        reach_hurry(&rig.reach, ms(1249), 125 * NSEC_PER_MSEC);
        CHECK_EQ(rig.connects, 1U);
        reach_hurry(&rig.reach, ms(1250), 125 * NSEC_PER_MSEC);
        CHECK_EQ(rig.connects, 2U);
        CHECK_EQ(rig.closes, 1U);
        CHECK_EQ(rig.downs, 0U);
        CHECK_EQ(rig.reach.when.ns, ms(2250).ns);
        rig.greeting = true; /* it is connected, and takes its time for TLS */
        reach_hurry(&rig.reach, ms(2000), 125 * NSEC_PER_MSEC);
        CHECK_EQ(rig.connects, 2U);
}

TEST(reach_gives_a_connection_a_second_and_tls_five_more)
{
        begin();
        reach_want(&rig.reach, ms(1000));
        reach_run(&rig.reach, ms(1999));
        CHECK_EQ(rig.downs, 0U);
        rig.greeting = true;
        reach_run(&rig.reach, ms(2000));
        CHECK_EQ(rig.downs, 0U);
        reach_run(&rig.reach, ms(6999));
        CHECK_EQ(rig.downs, 0U);
        reach_run(&rig.reach, ms(7000));
        CHECK_EQ(rig.downs, 1U);
        CHECK_EQ(rig.closes, 1U);
}

/* A host without power does not answer: a PING every 5 s, and no answer by the next one. */
TEST(reach_gives_up_who_answers_no_ping)
{
        begin();
        reach_want(&rig.reach, ms(0));
        reach_up(&rig.reach, ms(0));
        reach_run(&rig.reach, ms(5000));
        CHECK_EQ(rig.pings, 1U);
        rig.pongs = 1;
        reach_heard(&rig.reach, ms(5001));
        reach_run(&rig.reach, ms(10000));
        CHECK_EQ(rig.pings, 2U);
        reach_run(&rig.reach, ms(15000));
        CHECK_EQ(rig.downs, 1U);
}

/* On a slow link the answer waits behind the data that was sent before it. */
TEST(reach_waits_for_the_answer_while_data_arrives)
{
        begin();
        reach_want(&rig.reach, ms(0));
        reach_up(&rig.reach, ms(0));
        reach_heard(&rig.reach, ms(4000));
        reach_run(&rig.reach, ms(5000));
        CHECK_EQ(rig.pings, 1U);
        for (int64_t now = 10000; now <= 60000; now += 5000) {
                reach_heard(&rig.reach, ms(now - 1));
                reach_run(&rig.reach, ms(now));
        }
        CHECK_EQ(rig.pings, 1U);
        CHECK_EQ(rig.downs, 0U);
        reach_run(&rig.reach, ms(65000));
        CHECK_EQ(rig.downs, 1U);
}

TEST(reach_calls_silent_who_answers_no_probe_in_time)
{
        begin();
        reach_probe(&rig.reach, ms(0), 250 * NSEC_PER_MSEC); /* it is not up */
        CHECK_EQ(rig.pings, 0U);
        reach_want(&rig.reach, ms(0));
        reach_up(&rig.reach, ms(0));
        reach_probe(&rig.reach, ms(1000), 250 * NSEC_PER_MSEC);
        CHECK_EQ(rig.pings, 1U);
        rig.pongs = 1;
        reach_heard(&rig.reach, ms(1249));
        reach_run(&rig.reach, ms(1250));
        CHECK(!rig.reach.silent);

        reach_probe(&rig.reach, ms(2000), 250 * NSEC_PER_MSEC);
        reach_run(&rig.reach, ms(2249));
        CHECK(!rig.reach.silent);
        reach_run(&rig.reach, ms(2250));
        CHECK(rig.reach.silent);
        CHECK_EQ(rig.silents, 1U);
        reach_heard(&rig.reach, ms(2300)); /* not the answer */
        CHECK(rig.reach.silent);
        rig.pongs = 2;
        reach_heard(&rig.reach, ms(2400));
        CHECK(!rig.reach.silent);
        CHECK_EQ(rig.downs, 0U);

        /* One that stays silent is given up. */
        reach_suspect(&rig.reach, ms(3000));
        CHECK_EQ(rig.silents, 2U);
        reach_run(&rig.reach, ms(8000));
        CHECK_EQ(rig.downs, 1U);
}

/* However much time there is for the answer to a probe: without one it is found silent no later
 * than without the probe. */
TEST(reach_gives_up_who_answers_no_patient_probe)
{
        begin();
        reach_want(&rig.reach, ms(0));
        reach_up(&rig.reach, ms(0));
        reach_probe(&rig.reach, ms(1000), 225 * NSEC_PER_SEC);
        CHECK_EQ(rig.pings, 1U);
        reach_run(&rig.reach, ms(6000));
        CHECK_EQ(rig.silents, 1U);
        reach_run(&rig.reach, ms(11000));
        CHECK_EQ(rig.downs, 1U);
}

TEST(reach_begins_at_once_when_the_network_is_back)
{
        begin();
        reach_again(&rig.reach, ms(0)); /* not wanted by the owner */
        CHECK_EQ(rig.connects, 0U);
        reach_want(&rig.reach, ms(0));
        reach_failed(&rig.reach, ms(0), "no route");
        reach_want(&rig.reach, ms(0));
        reach_again(&rig.reach, ms(1));
        CHECK_EQ(rig.connects, 2U);
        reach_up(&rig.reach, ms(2));
        reach_again(&rig.reach, ms(3));
        CHECK_EQ(rig.downs, 2U);
        CHECK_EQ(rig.connects, 3U);
        reach_up(&rig.reach, ms(4));
        reach_fail_soon(&rig.reach, ms(5), "its login has expired");
        CHECK_EQ(rig.downs, 2U);
        reach_run(&rig.reach, ms(5));
        CHECK_EQ(rig.downs, 3U);
}

TEST(reach_replaces_a_connection_that_leaves_at_once_if_it_has_lasted)
{
        begin();
        reach_want(&rig.reach, ms(0));
        reach_up(&rig.reach, ms(0));
        reach_leaves(&rig.reach, ms(1000));
        reach_run(&rig.reach, ms(1000));
        CHECK_EQ(rig.connects, 2U);
        /* A server that lets go of each new one is not asked without a pause. */
        for (int64_t at = 1000, wait = 20; wait < 1000; at += wait, wait *= 2) {
                reach_up(&rig.reach, ms(at));
                reach_leaves(&rig.reach, ms(at));
                CHECK_EQ(rig.reach.when.ns, ms(at + wait).ns);
                reach_run(&rig.reach, ms(at + wait));
        }
        CHECK_EQ(rig.downs + rig.closes, 0U);
}
