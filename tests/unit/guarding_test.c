/* The guard's decisions (session/guarding.h), at instants counted from the deadline. */
#include "session/guarding.h"
#include "test.h"

#define MS NSEC_PER_MSEC
#define TTL (4000 * MS)
#define LEAD (1000 * MS) /* so that everything stands still for the last 125 ms */
#define EXTEND_EACH (1000 * MS)

static const struct fencing_config cfg = {.lead = LEAD};
static const struct boot_time deadline = {1000 * NSEC_PER_SEC};

static struct guarding guarding;
static struct guarding_sight sight;
static struct boot_time again;

/* An agent that lives and holds its place, behind an open gate. */
static void begin(void)
{
        guarding_init(&guarding, EXTEND_EACH);
        guarding.thawed = true;
        sight = (struct guarding_sight){
                .gate = GUARDING_OPEN,
                .agent_lives = true,
                .known = true,
                .place = {.deadline = deadline, .ttl = TTL},
        };
}

static unsigned at(nsec_t since_deadline)
{
        struct boot_time now = boot_add(deadline, since_deadline);

        sight.place.held = sight.known && boot_before(now, sight.place.deadline);
        return guarding_next(&guarding, &sight, &cfg, now, &again);
}

static nsec_t sleeps_until(void)
{
        return boot_diff(again, deadline);
}

TEST(a_guard_sleeps_until_everything_has_to_stand_still)
{
        begin();
        CHECK_EQ(at(-3000 * MS), GUARDING_SPARE);
        CHECK_EQ(guarding.state, GUARDING_WATCHING);
        CHECK_EQ(sleeps_until(), -125 * MS);
        CHECK_EQ(at(-126 * MS), GUARDING_SPARE);
        CHECK_EQ(at(-125 * MS), GUARDING_FREEZE);
        CHECK_EQ(guarding.state, GUARDING_FROZEN);
        CHECK_EQ(sleeps_until(), -105 * MS); /* a unit that starts meanwhile is frozen, too */
        CHECK_EQ(at(-105 * MS), GUARDING_FREEZE);
        sight.place.deadline = boot_add(deadline, 2000 * MS); /* renewed */
        CHECK_EQ(at(-50 * MS), GUARDING_RELEASE | GUARDING_SPARE);
        CHECK_EQ(guarding.state, GUARDING_WATCHING);
        CHECK_EQ(sleeps_until(), 1875 * MS);
}

TEST(a_guard_takes_over_from_an_agent_that_hangs)
{
        begin();
        CHECK_EQ(at(-10 * MS), GUARDING_FREEZE);
        CHECK_EQ(at(199 * MS), GUARDING_FREEZE);
        CHECK_EQ(guarding.state, GUARDING_FROZEN);
        CHECK_EQ(at(200 * MS), GUARDING_FREEZE | GUARDING_RUN);
        CHECK_EQ(guarding.state, GUARDING_ACTING);
        sight.gate = GUARDING_STOPPING;
        CHECK_EQ(at(220 * MS), GUARDING_RUN);
        guarding_down(&guarding);
        sight.gate = GUARDING_CLOSED;
        CHECK_EQ(at(300 * MS), GUARDING_SPARE);
        CHECK_EQ(guarding.state, GUARDING_ASLEEP);
        CHECK_EQ(again.ns, BOOT_TIME_NEVER.ns);
}

TEST(a_guard_acts_as_soon_as_no_agent_lives)
{
        begin();
        sight.agent_lives = false;
        CHECK_EQ(at(-3000 * MS), GUARDING_RUN); /* whose fence waits for the deadline */
        CHECK_EQ(guarding.state, GUARDING_ACTING);
        CHECK_EQ(sleeps_until(), -2900 * MS);
        sight.known = false; /* and nothing is held */
        CHECK_EQ(at(-2900 * MS), GUARDING_RUN);
        CHECK_EQ(again.ns, BOOT_TIME_NEVER.ns); /* it is the fence that knows */
}

TEST(an_agent_that_returns_decides_if_it_holds_the_place_and_has_opened_the_gate)
{
        begin();
        sight.agent_lives = false;
        CHECK_EQ(at(-3000 * MS), GUARDING_RUN);
        sight.agent_lives = true;
        sight.gate = GUARDING_STOPPING;
        CHECK_EQ(at(-2000 * MS), GUARDING_RUN);
        sight.gate = GUARDING_OPEN;
        CHECK_EQ(at(-1900 * MS), GUARDING_RELEASE | GUARDING_SPARE);
        CHECK_EQ(guarding.state, GUARDING_WATCHING);
        sight.agent_lives = false;
        CHECK_EQ(at(10 * MS), GUARDING_RUN);
        sight.agent_lives = true;
        CHECK_EQ(at(20 * MS), GUARDING_RUN);
}

/* It may be being written, or /run is full: the agent knows more. */
TEST(a_place_that_cannot_be_read_is_the_agents_while_one_lives)
{
        begin();
        sight.known = false;
        CHECK_EQ(at(1000 * MS), 0);
        CHECK_EQ(sleeps_until(), 1100 * MS);
        sight.agent_lives = false;
        CHECK_EQ(at(1100 * MS), GUARDING_RUN);
}

TEST(what_an_earlier_guard_left_frozen_is_thawed_once_while_there_is_time)
{
        begin();
        guarding.thawed = false;
        CHECK_EQ(at(-500 * MS), GUARDING_SPARE); /* the stop is near */
        sight.gate = GUARDING_STOPPING;
        CHECK_EQ(at(-2000 * MS), GUARDING_SPARE);
        sight.gate = GUARDING_OPEN;
        CHECK_EQ(at(-2000 * MS), GUARDING_THAW | GUARDING_SPARE);
        CHECK_EQ(at(-1900 * MS), GUARDING_THAW | GUARDING_SPARE); /* it failed */
        guarding_thawed(&guarding);
        CHECK_EQ(at(-1800 * MS), GUARDING_SPARE);
}

TEST(a_guard_that_is_to_end_does_once_nothing_is_left_to_guard)
{
        begin();
        sight.ending = true;
        CHECK_EQ(at(-3000 * MS), GUARDING_EXIT); /* the agent is not stopping */
        sight.gate = GUARDING_STOPPING;
        CHECK_EQ(at(-3000 * MS), GUARDING_SPARE | GUARDING_EXTEND);
        CHECK_EQ(sleeps_until(), -2000 * MS);
        CHECK_EQ(at(-2500 * MS), GUARDING_SPARE);
        sight.agent_lives = false;
        CHECK_EQ(at(-2000 * MS), GUARDING_RUN | GUARDING_EXTEND);
        CHECK_EQ(at(10 * MS), GUARDING_RUN); /* no time is asked for from the deadline on */
        sight.gate = GUARDING_CLOSED;
        CHECK_EQ(at(20 * MS), GUARDING_RELEASE | GUARDING_SPARE | GUARDING_EXIT);
}

TEST(a_guard_that_is_replaced_ends_while_the_place_is_held)
{
        begin();
        sight.ending = sight.restarting = true;
        sight.agent_lives = false;
        CHECK_EQ(at(-3000 * MS), GUARDING_EXIT);
        CHECK_EQ(at(10 * MS), GUARDING_RUN);
        /* The end of a guard thaws what it has frozen. */
        begin();
        CHECK_EQ(at(-50 * MS), GUARDING_FREEZE);
        sight.restarting = true;
        CHECK_EQ(at(-30 * MS), GUARDING_FREEZE);
}

/* Whatever it saw before: behind an open gate it sleeps past no instant at which everything has
 * to stand still, and does not end then. */
TEST(a_guard_is_awake_whenever_everything_has_to_stand_still)
{
        for (unsigned round = 0; round < 2000; round++) {
                nsec_t now = -4000 * MS, renewed = 0;

                begin();
                guarding.thawed = rnd(0, 1);
                while (now < 1000 * MS) {
                        unsigned acts;

                        sight.gate = rnd(0, 3) ? GUARDING_OPEN : GUARDING_STOPPING;
                        sight.agent_lives = rnd(0, 3);
                        sight.known = rnd(0, 7);
                        sight.restarting = rnd(0, 9) == 0;
                        sight.place.deadline = boot_add(deadline, renewed);
                        acts = at(now);
                        if (now >= renewed - 125 * MS && (sight.known || !sight.agent_lives)) {
                                CHECK(acts & (GUARDING_FREEZE | GUARDING_RUN) ||
                                      (acts & GUARDING_EXIT && now < renewed));
                        } else if (!(acts & (GUARDING_RUN | GUARDING_EXIT))) {
                                CHECK(sleeps_until() <=
                                      max_of(renewed - 125 * MS, now + 100 * MS));
                        }
                        now += (nsec_t) rnd(1, 300) * MS;
                        if (now < renewed && rnd(0, 9) == 0)
                                renewed = min_of(now + 2000 * MS, 500 * MS);
                }
        }
}
