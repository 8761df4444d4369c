#include "session/fencing.h"
#include "test.h"

#define T(ms) ((struct boot_time){(ms) *NSEC_PER_MSEC})
#define MS NSEC_PER_MSEC

static const struct fencing_config cfg = {.lead = 1000 * MS, .reboot = true};

/* TTL 4 s: the stop begins 1000 ms before the deadline, the kill 500 ms before, and 125 ms
 * before it everything is frozen. */
static struct fencing_place held_until(int64_t ms)
{
        return (struct fencing_place){.held = true, .deadline = T(ms), .ttl = 4000 * MS};
}

static const struct fencing_place nothing = {.ttl = 4000 * MS};

static struct fencing up(int64_t until)
{
        struct fencing_place p = held_until(until);
        struct fencing f;
        unsigned acts;

        fencing_init(&f, &cfg, false, false);
        CHECK(!fencing_is_down(&f));
        acts = fencing_next(&f, &nothing, T(0));
        CHECK_EQ(acts, FENCING_LOOK);
        fencing_saw(&f, FENCING_SAW_DOWN);
        CHECK(fencing_is_down(&f));
        CHECK_EQ(fencing_next(&f, &nothing, T(1)), 0);
        CHECK_EQ(fencing_next(&f, &p, T(2)), FENCING_THAW | FENCING_OPEN | FENCING_START);
        CHECK(!fencing_is_down(&f));
        return f;
}

/* All acts from @from to before @to, every millisecond; each look is answered by @s, and each
 * order to stop is accepted. */
static unsigned run(struct fencing *f, const struct fencing_place *p, int64_t from, int64_t to,
                    enum fencing_sight s)
{
        unsigned all = 0, acts;

        for (int64_t t = from; t < to; t++) {
                struct fencing_place at = *p;

                at.held = p->held && boot_before(T(t), p->deadline);
                acts = fencing_next(f, &at, T(t));
                if (acts & FENCING_LOOK)
                        fencing_saw(f, s);
                if (acts & FENCING_STOP)
                        fencing_accepted(f);
                all |= acts;
        }
        return all;
}

TEST(fencing_counts_back_from_the_deadline)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);

        run(&f, &p, 3, 100, FENCING_SAW_STARTED);
        CHECK_EQ(run(&f, &p, 100, 9000, FENCING_SAW_NOTHING), 0);
        CHECK_EQ(fencing_wakeup(&f, &p, T(100)).ns, T(9000).ns);
        CHECK_EQ(run(&f, &p, 9000, 9001, FENCING_SAW_UP),
                 FENCING_CLOSE | FENCING_STOP | FENCING_LOOK);
        CHECK_EQ(run(&f, &p, 9001, 9500, FENCING_SAW_UP), FENCING_STOP | FENCING_LOOK);
        CHECK(run(&f, &p, 9500, 9501, FENCING_SAW_UP) & FENCING_KILL);
        CHECK(!(run(&f, &p, 9501, 9875, FENCING_SAW_UP) & (FENCING_KILL | FENCING_FREEZE)));
        CHECK(run(&f, &p, 9875, 9876, FENCING_SAW_UP) & FENCING_FREEZE);
        CHECK(!(run(&f, &p, 9876, 10000, FENCING_SAW_UP) & (FENCING_KILL | FENCING_ALARM)));
        CHECK_EQ(run(&f, &p, 10000, 10001, FENCING_SAW_UP) &
                         (FENCING_FREEZE | FENCING_KILL | FENCING_ALARM | FENCING_REBOOT),
                 FENCING_FREEZE | FENCING_KILL | FENCING_ALARM | FENCING_REBOOT);
        /* Reported once, killed until it is down. A helper that hung when it was asked for the
         * reboot, and was started again, is asked again. */
        CHECK(!(run(&f, &p, 10001, 20000, FENCING_SAW_UP) & FENCING_ALARM));
        CHECK(run(&f, &p, 20000, 20030, FENCING_SAW_UP) & FENCING_KILL);
        CHECK(run(&f, &p, 20030, 21030, FENCING_SAW_UP) & FENCING_REBOOT);
        fencing_settled(&f);
        run(&f, &p, 21030, 21060, FENCING_SAW_DOWN);
        CHECK(fencing_is_down(&f));
}

/* How many looks there are from @from to before @to, all of which see something up. */
static unsigned looks(struct fencing *f, const struct fencing_place *p, int64_t from,
                      int64_t to)
{
        unsigned n = 0;

        for (int64_t t = from; t < to; t++)
                n += (run(f, p, t, t + 1, FENCING_SAW_UP) & FENCING_LOOK) != 0;
        return n;
}

/* With 300 bound units a look costs the service manager as much as it has to do between two
 * looks, and the stop took twice as long. */
TEST(fencing_looks_less_often_while_nothing_is_reported)
{
        struct fencing f = up(100000);
        struct fencing_place p = held_until(100000);

        p.leave = true;
        CHECK_EQ(looks(&f, &p, 1000, 1015), 2);
        CHECK(looks(&f, &p, 1015, 6000) <= 16);
        fencing_settled(&f);
        CHECK(boot_before(fencing_wakeup(&f, &p, T(6000)), T(6001)));
        CHECK_EQ(looks(&f, &p, 6000, 6001), 1);
        CHECK(boot_before(T(6001), fencing_wakeup(&f, &p, T(6001))));
        fencing_settled(&f);
        run(&f, &p, 6100, 6101, FENCING_SAW_LEFTOVER);
        CHECK(looks(&f, &p, 6101, 6111) == 1);
}

/* If the service manager does not answer, it is asked and ordered again, and the kernel's part
 * is done in time. */
TEST(fencing_waits_for_nobody)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);
        unsigned acts, stops = 0;

        for (int64_t t = 9000; t < 20000; t++) {
                struct fencing_place at = t < 10000 ? p : nothing;

                acts = fencing_next(&f, &at, T(t));
                stops += (acts & FENCING_STOP) != 0;
                CHECK(!(acts & FENCING_LOOK) || t < 9011);
                CHECK(!(acts & FENCING_FREEZE) || t == 9500 || t >= 10000);
                CHECK((t != 9500 && t != 10000) || (acts & FENCING_FREEZE));
                CHECK(!(acts & FENCING_KILL));
                CHECK((acts & FENCING_ALARM) == 0 || t == 10000);
        }
        CHECK(stops >= 12 && stops <= 20);
        CHECK(!fencing_is_down(&f));
}

/* A unit that is killed before the service manager has its order would be started again, so it
 * is frozen until then. */
TEST(fencing_kills_nothing_that_would_be_started_again)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000), renewed = held_until(10600);
        struct fencing late;

        for (int64_t t = 9000; t < 9700; t++)
                CHECK_EQ(fencing_next(&f, &p, T(t)) & (FENCING_FREEZE | FENCING_KILL),
                         t == 9500 ? FENCING_FREEZE : 0);
        late = f;
        /* There is time for a clean-up again. */
        CHECK_EQ(fencing_next(&late, &renewed, T(9700)) & (FENCING_THAW | FENCING_KILL),
                 FENCING_THAW);
        late = f;
        fencing_accepted(&late);
        CHECK(fencing_next(&late, &p, T(9700)) & FENCING_KILL);
        CHECK(!(run(&late, &p, 9701, 9875, FENCING_SAW_UP) & FENCING_KILL));
        for (int64_t t = 10000; t < 10100; t++)
                CHECK_EQ(fencing_next(&f, &nothing, T(t)) & (FENCING_FREEZE | FENCING_KILL),
                         t % 20 == 0 ? FENCING_FREEZE : 0);
        fencing_accepted(&f);
        CHECK(fencing_next(&f, &nothing, T(10101)) & FENCING_KILL);
        /* The next stop is another order. */
        fencing_saw(&f, FENCING_SAW_DOWN);
        fencing_next(&f, &nothing, T(10102));
        p = held_until(20000);
        CHECK(fencing_next(&f, &p, T(10130)) & FENCING_START);
        CHECK_EQ(fencing_next(&f, &nothing, T(10200)) & (FENCING_FREEZE | FENCING_KILL),
                 FENCING_FREEZE);
}

/* A renewal that comes after all: frozen units continue, and stop in order. */
TEST(fencing_is_undone_by_a_renewal)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000), renewed = held_until(14000);
        struct fencing next;

        CHECK(run(&f, &p, 8000, 9990, FENCING_SAW_UP) & FENCING_FREEZE);
        CHECK_EQ(fencing_next(&f, &renewed, T(9990)) & (FENCING_THAW | FENCING_KILL),
                 FENCING_THAW);
        fencing_saw(&f, FENCING_SAW_UP);
        CHECK(!(run(&f, &renewed, 9991, 13000, FENCING_SAW_UP) &
                (FENCING_KILL | FENCING_FREEZE | FENCING_ALARM | FENCING_THAW)));
        /* It is all to be done again before the next deadline, if it takes so long. */
        next = f;
        CHECK(!(run(&next, &renewed, 13000, 13500, FENCING_SAW_UP) & FENCING_KILL));
        CHECK(run(&next, &renewed, 13500, 13501, FENCING_SAW_UP) & FENCING_KILL);
        CHECK(run(&next, &renewed, 13501, 13876, FENCING_SAW_UP) & FENCING_FREEZE);
        fencing_settled(&f);
        run(&f, &renewed, 13000, 13020, FENCING_SAW_DOWN);
        CHECK_EQ(run(&f, &renewed, 13020, 13021, FENCING_SAW_UP), 0); /* near its deadline */
        renewed = held_until(18000);
        CHECK_EQ(fencing_next(&f, &renewed, T(13021)),
                 FENCING_THAW | FENCING_OPEN | FENCING_START);
}

/* Thawed after the place was lost, or after a report that it is gone: the loss is acted on at
 * once, and remembered whatever place there may be later. */
TEST(a_loss_is_remembered_until_all_is_down)
{
        struct fencing f = up(10000);
        struct fencing_place again = held_until(30000);
        unsigned acts = fencing_next(&f, &nothing, T(15000));

        CHECK_EQ(acts & (FENCING_FREEZE | FENCING_KILL | FENCING_CLOSE | FENCING_STOP),
                 FENCING_FREEZE | FENCING_CLOSE | FENCING_STOP);
        CHECK(!(acts & FENCING_ALARM)); /* it has had no time to die */
        fencing_saw(&f, FENCING_SAW_UP);
        fencing_accepted(&f);
        acts = run(&f, &again, 15001, 15200, FENCING_SAW_UP);
        CHECK_EQ(acts & (FENCING_THAW | FENCING_OPEN | FENCING_START), 0);
        CHECK_EQ(acts & (FENCING_KILL | FENCING_ALARM), FENCING_KILL | FENCING_ALARM);
        CHECK(!fencing_is_down(&f));
        fencing_settled(&f);
        run(&f, &nothing, 15200, 15215, FENCING_SAW_DOWN);
        CHECK(fencing_is_down(&f));
}

/* Units that are frozen when everything is down are thawed before anything is started. */
TEST(what_is_down_is_thawed_and_forgotten)
{
        struct fencing f = up(10000);
        struct fencing_place again = held_until(30000);
        unsigned acts;

        fencing_next(&f, &nothing, T(15000));
        fencing_saw(&f, FENCING_SAW_DOWN);
        CHECK(!fencing_is_down(&f));
        acts = fencing_next(&f, &again, T(15001));
        CHECK_EQ(acts, FENCING_THAW | FENCING_FORGET | FENCING_OPEN | FENCING_START);
}

/* A host at a TTL of 4 s, whose renewals are acknowledged after answer(n) ms: the n-th is sent
 * 2 s after the one before was. What is bound stops at once. */
struct host {
        struct fencing fencing;
        struct fencing_place place;
        int64_t now, sent, n;
        unsigned n_up, n_down;
};

static void host_begin(struct host *h)
{
        *h = (struct host){.fencing = up(4000), .place = held_until(4000)};
}

static void host_run(struct host *h, int64_t until, int64_t (*answer)(int64_t n))
{
        for (; h->now < until; h->now += 10) {
                unsigned acts;

                if (h->now >= h->sent + 2000 + answer(h->n)) {
                        h->sent += 2000;
                        h->n++;
                        h->place = held_until(h->sent + 4000);
                }
                acts = fencing_next(&h->fencing, &h->place, T(h->now));
                h->n_up += (acts & FENCING_OPEN) != 0;
                h->n_down += (acts & FENCING_CLOSE) != 0;
                if (acts & FENCING_LOOK)
                        fencing_saw(&h->fencing, h->fencing.state == FENCING_UP
                                                         ? FENCING_SAW_STARTED
                                                         : FENCING_SAW_DOWN);
        }
}

static int64_t fast(int64_t n)
{
        (void) n;
        return 100;
}

static int64_t slow(int64_t n)
{
        (void) n;
        return 1500;
}

static int64_t slow_in_between(int64_t n)
{
        return n % 2 ? 100 : 1500;
}

static int64_t slow_once(int64_t n)
{
        return n == 0 ? 1500 : 100;
}

/* Each answer comes in time to keep the place, but after the stop had to begin. It was started
 * at each, and stopped before the next. */
TEST(a_core_that_answers_slowly_does_not_make_the_fence_flap)
{
        struct host h;

        host_begin(&h);
        host_run(&h, 60000, slow);
        CHECK_EQ(h.n_down, 1);
        CHECK_EQ(h.n_up, 0);
        CHECK(fencing_is_down(&h.fencing));
        CHECK(fencing_is_held_back(&h.fencing, &h.place));
        CHECK(h.fencing.took >= 1500 * MS && h.fencing.took < 1600 * MS);
        CHECK_EQ(fencing_answer_max(&cfg, h.place.ttl), 1000 * MS);
        host_run(&h, 120000, fast);
        CHECK_EQ(h.n_up, 1);
        CHECK_EQ(h.n_down, 1);
        CHECK(!fencing_is_held_back(&h.fencing, &h.place));
}

/* With every other answer fast it would be up for 3 s, again and again. */
TEST(what_is_stopped_again_and_again_waits_ever_longer_to_come_up)
{
        struct host h;

        host_begin(&h);
        host_run(&h, 60000, fast);
        host_run(&h, 600000, slow_in_between);
        CHECK_EQ(h.n_up, 1);
        CHECK_EQ(h.n_down, 2);
        CHECK(fencing_is_held_back(&h.fencing, &h.place));
        CHECK_EQ(h.fencing.calm, h.place.ttl);
        host_run(&h, 610000, fast);
        CHECK(h.fencing.state == FENCING_UP);
        /* It goes down once more, soon after it came up. */
        h.n = 0;
        host_run(&h, 620000, slow_once);
        CHECK_EQ(h.n_down, 3);
        CHECK_EQ(h.fencing.calm, 2 * h.place.ttl);
        host_run(&h, 800000, fast);
        CHECK(h.fencing.state == FENCING_UP);
        /* A stop long after that is the first of its kind. */
        h.n = 0;
        host_run(&h, 810000, slow_once);
        CHECK_EQ(h.n_down, 4);
        CHECK_EQ(h.n_up, 4);
        CHECK_EQ(h.fencing.calm, 0);
}

/* It doubles only so often: nobody would wait for a week. */
TEST(what_is_stopped_soon_each_time_waits_for_32_terms_at_most)
{
        struct host h;

        host_begin(&h);
        for (unsigned i = 0; i < 9; i++) {
                while (h.fencing.state != FENCING_UP)
                        host_run(&h, h.now + 10, fast);
                h.n = 0;
                host_run(&h, h.now + 8000, slow_once);
                CHECK_EQ(h.n_down, i + 1);
        }
        CHECK_EQ(h.fencing.calm, 32 * h.place.ttl);
}

/* The first answer may be slow because of the registration. */
TEST(a_place_counts_as_held_back_from_its_second_slow_answer_on)
{
        struct host h = {.place = held_until(4000), .now = 1500};

        fencing_init(&h.fencing, &cfg, false, false);
        host_run(&h, 3490, slow);
        CHECK(fencing_is_down(&h.fencing) && h.n_up == 0);
        CHECK(!fencing_is_held_back(&h.fencing, &h.place));
        host_run(&h, 3600, slow);
        CHECK(fencing_is_held_back(&h.fencing, &h.place));
}

TEST(what_was_stopped_for_one_slow_answer_is_up_at_the_next_fast_one)
{
        struct host h;

        host_begin(&h);
        host_run(&h, 60000, fast);
        CHECK_EQ(h.n_down, 0);
        h.n = 0;
        host_run(&h, h.sent + 4101, slow_once);
        CHECK_EQ(h.n_down, 1);
        host_run(&h, h.sent + 2200, fast);
        CHECK_EQ(h.n_up, 1);
        CHECK(h.fencing.state == FENCING_UP);
}

/* A look that was asked for while it started is no look at the stop. */
TEST(an_answer_from_before_the_stop_does_not_count)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);

        CHECK(fencing_next(&f, &p, T(100)) & FENCING_LOOK);
        p.leave = true;
        CHECK(!(fencing_next(&f, &p, T(101)) & FENCING_LOOK));
        fencing_saw(&f, FENCING_SAW_DOWN);
        CHECK(!fencing_is_down(&f));
        CHECK(fencing_next(&f, &p, T(111)) & FENCING_LOOK);
        fencing_saw(&f, FENCING_SAW_DOWN);
        fencing_next(&f, &p, T(112));
        CHECK(fencing_is_down(&f));
}

/* KillMode=process leaves children behind, which nobody would end. */
TEST(leftovers_are_killed_while_there_is_time)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);

        p.leave = true;
        CHECK(!(run(&f, &p, 100, 101, FENCING_SAW_LEFTOVER) & FENCING_KILL));
        CHECK(run(&f, &p, 101, 150, FENCING_SAW_LEFTOVER) & FENCING_KILL);
        CHECK(!fencing_is_down(&f));
        run(&f, &p, 150, 170, FENCING_SAW_DOWN);
        fencing_next(&f, &p, T(170));
        CHECK(fencing_is_down(&f));
}

/* A next run: what the gate says, and the mark of a run that was stopping units. */
TEST(a_next_life_continues_with_the_stop)
{
        struct fencing_place p = held_until(10000);
        struct fencing f;

        fencing_init(&f, &cfg, true, false);
        CHECK_EQ(fencing_next(&f, &p, T(0)), FENCING_THAW | FENCING_OPEN | FENCING_START);
        fencing_init(&f, &cfg, true, false);
        CHECK(run(&f, &nothing, 1, 3, FENCING_SAW_UP) & FENCING_KILL);
        fencing_init(&f, &cfg, false, true);
        CHECK_EQ(run(&f, &nothing, 1, 3, FENCING_SAW_UP) &
                         (FENCING_KILL | FENCING_STOP | FENCING_LOOK),
                 FENCING_KILL | FENCING_STOP | FENCING_LOOK);
        /* If it is before the deadline, there is time, and whatever that run may have frozen is
         * thawed. */
        fencing_init(&f, &cfg, false, true);
        CHECK_EQ(fencing_next(&f, &p, T(1)) & (FENCING_KILL | FENCING_OPEN | FENCING_THAW),
                 FENCING_THAW);
}

/* An earlier life ended while it stopped, and the service manager hangs. That life may or may
 * not have frozen what runs, so it is frozen when it has to be, not only after the deadline. */
TEST(what_an_earlier_life_was_stopping_is_frozen_in_time)
{
        struct fencing_place p = held_until(10000);
        struct fencing f;

        fencing_init(&f, &cfg, false, true);
        for (int64_t t = 9600; t < 10000; t++)
                CHECK_EQ(fencing_next(&f, &p, T(t)) & (FENCING_FREEZE | FENCING_THAW),
                         t == 9600 ? FENCING_FREEZE : 0);
        fencing_init(&f, &cfg, false, true);
        CHECK(fencing_next(&f, &p, T(9400)) & FENCING_THAW);
        CHECK_EQ(run(&f, &p, 9401, 9500, FENCING_SAW_NOTHING) & FENCING_FREEZE, 0);
        run(&f, &p, 9500, 9996, FENCING_SAW_NOTHING);
        CHECK(!boot_before(T(10000), fencing_wakeup(&f, &p, T(9995)))); /* not 5 ms later */
}

/* The gate cannot be opened, such as on a full /run. Nothing was started then; but what an
 * earlier life has left up runs, and is stopped when the place ends. */
TEST(what_an_earlier_life_left_up_is_stopped_without_a_gate)
{
        struct fencing_place p = held_until(10000);
        struct fencing f;
        unsigned tries = 0, acts;

        fencing_init(&f, &cfg, true, false);
        for (int64_t t = 0; t < 5000; t++) {
                acts = fencing_next(&f, &p, T(t));
                CHECK_EQ(acts & ~(unsigned) (FENCING_THAW | FENCING_OPEN | FENCING_START), 0);
                if (acts & FENCING_OPEN) {
                        tries++;
                        fencing_barred(&f);
                }
                CHECK(!fencing_is_down(&f));
                CHECK(boot_before(T(t), fencing_wakeup(&f, &p, T(t))));
        }
        CHECK(tries >= 4 && tries <= 12);
        acts = run(&f, &nothing, 5000, 5100, FENCING_SAW_UP);
        CHECK_EQ(acts & (FENCING_FREEZE | FENCING_KILL | FENCING_STOP | FENCING_LOOK),
                 FENCING_FREEZE | FENCING_KILL | FENCING_STOP | FENCING_LOOK);
        CHECK(!fencing_is_down(&f));
        fencing_settled(&f);
        run(&f, &nothing, 5100, 5200, FENCING_SAW_DOWN);
        CHECK(fencing_is_down(&f));
        /* From now on nothing is up that was not started by this life. */
        p = held_until(20000);
        CHECK(fencing_next(&f, &p, T(6000)) & FENCING_OPEN);
        fencing_barred(&f);
        CHECK(fencing_is_down(&f));
}

/* The agent starts late in the place of an earlier run, which left no word of what is up: it
 * freezes, and then sees that nothing is. What it starts itself is frozen as well, if the agent
 * is late again. */
TEST(what_was_frozen_before_a_start_is_frozen_again)
{
        struct fencing_place p = held_until(10000);
        struct fencing f;

        fencing_init(&f, &cfg, false, false);
        CHECK(fencing_next(&f, &p, T(9950)) & FENCING_FREEZE);
        fencing_saw(&f, FENCING_SAW_DOWN);
        p = held_until(13960);
        CHECK_EQ(fencing_next(&f, &p, T(9960)), FENCING_THAW | FENCING_OPEN | FENCING_START);
        CHECK(fencing_next(&f, &p, T(13900)) & FENCING_FREEZE);
}

/* At boot nothing is ordered before a look. Units that run without permission are killed, but
 * the machine is not rebooted for them. */
TEST(what_runs_without_a_place_is_stopped)
{
        struct fencing f;
        unsigned acts;

        fencing_init(&f, &cfg, false, false);
        CHECK_EQ(run(&f, &nothing, 0, 1000, FENCING_SAW_NOTHING), FENCING_LOOK);
        CHECK(!fencing_is_down(&f));
        acts = run(&f, &nothing, 1000, 2000, FENCING_SAW_UP);
        CHECK_EQ(acts,
                 FENCING_LOOK | FENCING_FREEZE | FENCING_KILL | FENCING_STOP | FENCING_ALARM);
}

/* A start is asked for until it is seen, and not after: a person may stop the target. */
TEST(a_start_is_asked_for_until_it_is_seen)
{
        struct fencing f = up(1000000);
        struct fencing_place p = held_until(1000000);
        unsigned starts = 0;

        for (int64_t t = 3; t < 5000; t++) {
                unsigned acts = fencing_next(&f, &p, T(t));

                starts += (acts & FENCING_START) != 0;
                if (acts & FENCING_LOOK)
                        fencing_saw(&f, FENCING_SAW_UP);
        }
        CHECK(starts >= 4 && starts <= 12);
        CHECK_EQ(run(&f, &p, 5000, 7000, FENCING_SAW_STARTED) & ~(unsigned) FENCING_START,
                 FENCING_LOOK);
        CHECK_EQ(run(&f, &p, 7000, 9000, FENCING_SAW_NOTHING), 0);
}

/* Whatever is seen, whenever it is renewed, and whether the gate opens or not: nothing is given
 * back, and nothing opened, while a loss is not over; after its freeze time nothing bound runs
 * while the place is not held; and nothing counts as down before it was seen down. */
/* The renewal was acknowledged when the guard had just begun to stop what is bound. */
TEST(what_the_guard_has_stopped_goes_down_and_comes_up)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);

        run(&f, &p, 3, 100, FENCING_SAW_STARTED);
        fencing_closed(&f);
        CHECK_EQ(fencing_wakeup(&f, &p, T(100)).ns, T(100).ns);
        CHECK_EQ(run(&f, &p, 100, 101, FENCING_SAW_UP),
                 FENCING_CLOSE | FENCING_STOP | FENCING_LOOK);
        CHECK_EQ(run(&f, &p, 101, 200, FENCING_SAW_UP) &
                         (FENCING_KILL | FENCING_FREEZE | FENCING_OPEN | FENCING_START),
                 0);
        fencing_settled(&f);
        CHECK(run(&f, &p, 200, 230, FENCING_SAW_DOWN) & FENCING_FORGET);
        p = held_until(12000);
        CHECK(run(&f, &p, 8200, 8203, FENCING_SAW_STARTED) & FENCING_START);
        CHECK_EQ(run(&f, &p, 8203, 8400, FENCING_SAW_STARTED) & ~(unsigned) FENCING_LOOK, 0);
}

/* Somebody has removed the gate's file; what the guard stopped then is down. */
TEST(what_may_have_been_stopped_is_started_again)
{
        struct fencing f = up(10000);
        struct fencing_place p = held_until(10000);

        run(&f, &p, 3, 100, FENCING_SAW_STARTED);
        fencing_unsure(&f);
        CHECK_EQ(run(&f, &p, 100, 200, FENCING_SAW_STARTED), FENCING_START | FENCING_LOOK);
        CHECK_EQ(run(&f, &p, 200, 300, FENCING_SAW_STARTED), 0);
}

TEST(fencing_at_random)
{
        struct fencing_place p = {.ttl = 4000 * MS};
        bool frozen = false, open = rnd(0, 1), lost = false, accepted = false;
        bool units = open; /* perhaps some are up */
        struct fencing f;
        int64_t t = 0;

        if (open)
                p = held_until(4000);
        fencing_init(&f, &cfg, open, false);
        for (unsigned i = 0; i < 20000; i++) {
                unsigned acts;

                t += (int64_t) rnd(0, 100);
                p.held &= boot_before(T(t), p.deadline);
                if ((p.held || fencing_is_down(&f)) && rnd(0, 20) == 0)
                        p = held_until(t + 4000);
                if (p.held && rnd(0, 500) == 0)
                        p.held = false;
                p.leave = rnd(0, 100) == 0;
                acts = fencing_next(&f, &p, T(t));
                lost |= !p.held && f.state == FENCING_STOPPING && f.known;
                frozen |= (acts & FENCING_FREEZE) != 0;
                if (acts & FENCING_THAW) {
                        CHECK(p.held || f.state == FENCING_DOWN);
                        frozen = false;
                }
                CHECK(!(acts & FENCING_KILL) || accepted);
                CHECK(!(acts & FENCING_OPEN) || p.held);
                if ((acts & FENCING_OPEN) && rnd(0, 3) == 0)
                        fencing_barred(&f);
                else if (acts & FENCING_OPEN)
                        open = units = true;
                if (acts & FENCING_CLOSE)
                        open = false;
                CHECK(!units || !fencing_is_down(&f));
                CHECK(!open || !frozen);
                CHECK(!lost || frozen || f.state == FENCING_DOWN || fencing_is_down(&f));
                CHECK(p.held || !open);
                if (f.looking) {
                        enum fencing_sight sight = (enum fencing_sight) rnd(0, 4);
                        bool counts = !f.stale && f.state == FENCING_STOPPING;

                        fencing_saw(&f, sight);
                        units &= !counts || sight != FENCING_SAW_DOWN;
                }
                if (rnd(0, 3) == 0)
                        fencing_accepted(&f);
                accepted = f.accepted || f.leftover;
                lost &= f.state == FENCING_STOPPING;
        }
}
