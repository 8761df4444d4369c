/* loop/clock.c: a clock that neither a slew nor a suspend falsifies, made of three clocks, each
 * of which one of the two falsifies. */
#include <math.h>

#include "loop/clock.h"
#include "test.h"

#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

/* A host: its oscillator, which is right, what slews the date, and what interrupts a reader. */
static struct {
        nsec_t raw, asleep;
        double monotonic, rate;
        nsec_t most_between; /* passes between two of a reading's calls, at most */
        nsec_t now_after;    /* the last reading: the true time then */
} host;

static void pass(nsec_t t)
{
        host.raw += t;
        host.monotonic += (double) t * host.rate;
}

static void between(void)
{
        pass((nsec_t) rnd(20, 100));
        if (host.most_between > 0 && rnd(0, 3) == 0)
                pass((nsec_t) rnd(0, (uint64_t) host.most_between));
}

static void read_host(struct clock_reading *ret)
{
        ret->monotonic = (nsec_t) host.monotonic;
        between();
        ret->boot = (nsec_t) host.monotonic + host.asleep;
        between();
        ret->raw = host.raw;
        host.now_after = host.raw + host.asleep;
}

static struct boot_clock begin(double rate)
{
        memset(&host, 0, sizeof(host));
        host.raw = 1000 * SEC;
        host.monotonic = 990e9; /* slewed before us, and by more than sleep would explain */
        host.rate = rate;
        host.asleep = 77 * SEC;
        return (struct boot_clock){.read = read_host};
}

/* The clock's measure of a span of @t, read every @step. */
static nsec_t span(struct boot_clock *c, nsec_t t, nsec_t step)
{
        struct boot_time from = boot_clock_now(c), before = from, now = from;

        for (nsec_t gone = 0; gone < t; gone += step) {
                pass(step);
                now = boot_clock_now(c);
                CHECK(!boot_before(now, before));
                /* Never behind the truth by more than the reading took. */
                CHECK(llabs(now.ns - host.now_after) <= 10 * NSEC_PER_USEC);
                before = now;
        }
        return boot_diff(now, from);
}

TEST(a_slewed_clock_does_not_change_how_long_a_lease_is)
{
        static const double rates[] = {1, 0.9, 1.1, 0.92, 1.08, 1.0005};

        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
                struct boot_clock c = begin(rates[i]);
                nsec_t t = span(&c, 10 * SEC, 5 * MS), least = 10 * SEC;

                CHECK(t >= least && t <= least + least / 1000);
                CHECK(llabs(boot_clock_now(&c).ns - host.raw - host.asleep) < MS);
                CHECK(fabs(c.rate - rates[i]) < 1e-5);
        }
}

TEST(what_a_host_slept_counts_whole_and_once)
{
        struct boot_clock c = begin(0.92);
        nsec_t slept = 0, t;
        struct boot_time from = boot_clock_now(&c);

        for (unsigned i = 0; i < 1000; i++) {
                nsec_t s = (nsec_t) rnd(MS, 5 * SEC);

                pass((nsec_t) rnd(MS, SEC));
                host.asleep += s;
                slept += s;
                t = boot_diff(boot_clock_now(&c), from);
                CHECK(t >= slept);
                CHECK(llabs(boot_clock_now(&c).ns - host.now_after) <= 10 * NSEC_PER_USEC);
        }
}

TEST(a_glance_sees_no_sleep_and_is_never_ahead)
{
        struct boot_clock c = begin(1.02);
        struct boot_time before = boot_clock_now(&c), now;

        for (unsigned i = 0; i < 100; i++) {
                nsec_t slept = i % 10 == 0 ? (nsec_t) rnd(1, 60) * SEC : 0;

                pass((nsec_t) rnd(1, 10) * MS);
                host.asleep += slept;
                now = boot_clock_glance(&c, host.raw);
                CHECK(!boot_before(now, before) &&
                      now.ns <= host.raw + host.asleep + 10 * NSEC_PER_USEC);
                CHECK(slept > 0 || boot_diff(boot_clock_now(&c), now) < MS);
                before = boot_clock_now(&c);
                CHECK(boot_diff(before, now) >= slept);
        }
}

TEST(who_is_interrupted_while_reading_takes_it_for_no_sleep)
{
        struct boot_clock c = begin(1.08);

        host.most_between = 40 * MS;
        for (unsigned i = 0; i < 20000; i++) {
                struct boot_time now;

                pass((nsec_t) rnd(0, 10 * MS));
                now = boot_clock_now(&c);
                /* All of the readings may have been interrupted; then it is late, not early,
                 * and the next one mends that. */
                CHECK(now.ns >= host.now_after - 10 * NSEC_PER_USEC);
                CHECK(now.ns <= host.now_after + 40 * MS);
        }
        host.most_between = 0;
        boot_clock_now(&c);
        CHECK_EQ(c.asleep / (10 * NSEC_PER_USEC), 77 * SEC / (10 * NSEC_PER_USEC));
        CHECK(fabs(c.rate - 1.08) < 1e-3);
}

/* A timer on CLOCK_BOOTTIME fires when it should, whatever that clock's rate, once the rate is
 * known; and by the tenth at most beside it when it changes meanwhile. */
TEST(a_timer_follows_the_rate_of_the_clock_it_is_on)
{
        static const double rates[] = {1, 0.9, 1.1, 0.92, 1.08};

        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
                struct boot_clock c = begin(rates[i]);
                struct boot_time when;
                struct timespec ts;
                nsec_t left, at;

                span(&c, SEC, 10 * MS);
                when = boot_add(boot_clock_now(&c), 5 * SEC);
                ts = boot_clock_timer(&c, when);
                at = (nsec_t) ts.tv_sec * SEC + ts.tv_nsec;
                left = (nsec_t) (((double) (at - host.asleep) - host.monotonic) / host.rate);
                pass(left);
                CHECK(boot_clock_now(&c).ns >= when.ns);
                CHECK(boot_clock_now(&c).ns <= when.ns + MS);
        }
}

TEST(a_timer_of_long_ago_is_due_and_one_of_never_is_not)
{
        struct boot_clock c = begin(1);
        struct timespec ts = boot_clock_timer(&c, (struct boot_time){0});

        CHECK_EQ(ts.tv_sec, 0);
        CHECK_EQ(ts.tv_nsec, 1);
        ts = boot_clock_timer(&c, BOOT_TIME_NEVER);
        CHECK(ts.tv_sec > INT64_C(200) * 365 * 86400);
        CHECK_EQ(boot_clock_usec(&c, (struct boot_time){0}), 0);
}

/* Whoever reads CLOCK_BOOTTIME for a deadline of ours sees it pass no later than we do. */
TEST(a_deadline_is_reported_on_the_safe_side)
{
        static const double rates[] = {1, 0.9, 1.1};

        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
                struct boot_clock c = begin(rates[i]);
                struct boot_time when;
                int64_t usec;

                span(&c, SEC, 10 * MS);
                when = boot_add(boot_clock_now(&c), 8 * SEC);
                usec = boot_clock_usec(&c, when);
                pass(8 * SEC);
                CHECK((nsec_t) host.monotonic + host.asleep >= usec * NSEC_PER_USEC - MS / 10);
                CHECK(boot_clock_now(&c).ns >= when.ns);
        }
}

/* Never true once it has passed, at any rate and after any sleep; and mostly by one clock. */
TEST(instants_ahead_are_mostly_computed_by_one_clock)
{
        static const double rates[] = {0.9, 0.95, 1, 1.08, 1.1};

        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
                struct boot_clock c = begin(rates[i]);
                struct boot_ahead a = {0};
                struct boot_time t = boot_add(boot_clock_now(&c), 10 * SEC);
                unsigned cheap = 0, n = 0, late = 0;

                for (unsigned k = 0; k < 100000; k++) {
                        nsec_t truth = host.raw + host.asleep, read;
                        bool ahead;

                        host.now_after = 0;
                        ahead = boot_clock_is_ahead(&c, &a, t,
                                                    (nsec_t) host.monotonic + host.asleep);
                        read = host.now_after;
                        CHECK(!ahead || truth < t.ns + 10 * NSEC_PER_USEC);
                        CHECK(ahead || truth > t.ns - 10 * NSEC_PER_USEC);
                        n += ahead;
                        cheap += ahead && read == 0;
                        late += !ahead;
                        pass((nsec_t) rnd(0, 2 * MS));
                        if (rnd(0, 2000) == 0)
                                host.asleep += (nsec_t) rnd(MS, 20 * SEC);
                        if (!ahead || rnd(0, 3000) == 0)
                                t = boot_add(boot_clock_now(&c), (nsec_t) rnd(1, 10) * SEC);
                }
                CHECK(late > 5 && cheap > n / 10 * 9);
        }
}
