/* What runs when in a turn of the loop, and when the next one begins: hooks and timers. */
#include <unistd.h>

#include "base/rnd.h"
#include "loop/loop.h"
#include "test.h"

static struct {
        struct loop *loop;
        struct loop_hook hook;
        unsigned turns;
} w;

static struct boot_time on_turn(struct loop_hook *h unused_, struct boot_time now unused_)
{
        w.turns++;
        return BOOT_TIME_NEVER;
}

static void begin(void)
{
        memset(&w, 0, sizeof(w));
        CHECK_EQ(loop_new(&w.loop), 0);
        loop_hook_start(&w.hook, w.loop, LOOP_DECIDE, on_turn);
}

static void end(void)
{
        loop_hook_stop(&w.hook);
        loop_free(w.loop);
}

/* ---- hooks ---- */

struct probe {
        struct loop_hook hook;
        struct loop_later later;
        struct loop_timer timer;
        char name;
        struct boot_time next; /* what it returns */
        unsigned runs;
        struct boot_time ran_at;
        void (*act)(struct probe *p);
};

static struct probe probes[8];
static char said[64]; /* the probes that ran, in order */

static void say(char name)
{
        size_t n = strlen(said);

        if (n + 1 < sizeof(said))
                said[n] = name;
}

static struct boot_time probe_run(struct loop_hook *h, struct boot_time now)
{
        struct probe *p = container_of(h, struct probe, hook);
        struct boot_time next = p->next;

        p->runs++;
        p->ran_at = now;
        say(p->name);
        if (p->act)
                p->act(p); /* which may free it */
        return next;
}

static void begin_probes(void)
{
        begin();
        memset(probes, 0, sizeof(probes));
        memset(said, 0, sizeof(said));
        for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
                probes[i].name = (char) ('a' + i);
                probes[i].next = BOOT_TIME_NEVER;
        }
}

static struct probe *start(size_t i, enum loop_stage stage, void (*act)(struct probe *p))
{
        probes[i].act = act;
        loop_hook_start(&probes[i].hook, w.loop, stage, probe_run);
        return &probes[i];
}

static void end_probes(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
                loop_hook_stop(&probes[i].hook);
                loop_timer_disarm(&probes[i].timer);
        }
        end();
}

static void stop(struct probe *p)
{
        (void) p;
        loop_stop(w.loop);
}

static void on_later(struct loop_later *d)
{
        say(container_of(d, struct probe, later)->name);
}

static void send_later(struct probe *p)
{
        loop_later(&probes[7].later, w.loop, on_later); /* "h" */
        (void) p;
}

TEST(the_stage_says_what_runs_after_what)
{
        begin_probes();
        start(0, LOOP_BEHIND, stop);
        start(1, LOOP_BUS, NULL);
        start(2, LOOP_ACT, NULL);
        start(3, LOOP_DECIDE, send_later);
        start(4, LOOP_ACT, NULL);
        loop_run(w.loop);
        CHECK_STR(said, "dcebha"); /* sending comes before LOOP_BEHIND */
        end_probes();
}

static void start_others(struct probe *p)
{
        if (p->runs > 1)
                return;
        start(1, LOOP_DECIDE, NULL);
        start(2, LOOP_ACT, NULL);
        start(3, LOOP_BEHIND, stop);
}

TEST(a_hook_that_is_started_by_another_runs_in_the_same_turn)
{
        begin_probes();
        start(0, LOOP_DECIDE, start_others);
        loop_run(w.loop);
        CHECK_STR(said, "abcd");
        end_probes();
}

static void stop_when_due(struct probe *p)
{
        if (!boot_before(p->ran_at, probes[0].next))
                loop_stop(w.loop);
}

static void stop_loop(struct loop_timer *t)
{
        loop_stop(t->loop);
}

/* And neither later nor in circles until then. */
TEST(the_loop_sleeps_until_the_soonest_of_what_hooks_return)
{
        struct boot_time from;

        begin_probes();
        start(0, LOOP_DECIDE, NULL);
        start(1, LOOP_ACT, stop_when_due);
        start(2, LOOP_BEHIND, NULL);
        loop_timer_init(&probes[0].timer, w.loop, stop_loop);
        loop_timer_in(&probes[0].timer, 3600 * NSEC_PER_SEC);
        from = boot_now();
        probes[0].next = boot_add(from, 30 * NSEC_PER_MSEC);
        probes[2].next = boot_add(from, 7200 * NSEC_PER_SEC);
        loop_run(w.loop);
        CHECK(probes[1].runs <= 4);
        CHECK(boot_diff(boot_now(), from) < 3600 * NSEC_PER_SEC);
        end_probes();
}

static struct loop_io readable;

static void on_readable(struct loop_io *io, int events)
{
        char c;

        (void) events;
        CHECK_EQ(read(io->ev.fd, &c, 1), 1);
        if (c == 'z')
                loop_stop(w.loop);
}

/* Each turn comes at once, and each has polled. */
TEST(a_hook_that_returns_the_past_runs_in_each_turn_and_starves_nobody)
{
        int fd[2];

        begin_probes();
        start(0, LOOP_DECIDE, NULL);
        probes[0].next = (struct boot_time){1};
        CHECK_EQ(pipe(fd), 0);
        CHECK_EQ(write(fd[1], "1234567z", 8), 8);
        loop_io_start(&readable, w.loop, fd[0], EV_READ, on_readable);
        loop_run(w.loop); /* or for ever */
        CHECK(probes[0].runs >= 8);
        CHECK(probes[0].runs <= 8 + 2);
        loop_io_stop(&readable);
        close(fd[0]);
        close(fd[1]);
        end_probes();
}

static void count_and_stop(struct probe *p)
{
        if (p->runs == 1000)
                loop_stop(w.loop);
}

/* Alone, without anything to wait for. */
TEST(a_hook_that_returns_the_past_needs_no_other_event)
{
        begin_probes();
        start(0, LOOP_BEHIND, count_and_stop);
        probes[0].next = (struct boot_time){0};
        loop_run(w.loop);
        CHECK_EQ(probes[0].runs, 1000);
        end_probes();
}

TEST(a_hook_that_returns_the_past_delays_no_timer)
{
        struct boot_time began = boot_now();
        struct loop_timer t;

        begin_probes();
        start(0, LOOP_DECIDE, NULL);
        probes[0].next = (struct boot_time){1};
        loop_timer_init(&t, w.loop, stop_loop);
        loop_timer_in(&t, 20 * NSEC_PER_MSEC);
        loop_run(w.loop); /* or for ever */
        CHECK(boot_diff(boot_now(), began) >= 20 * NSEC_PER_MSEC);
        CHECK(probes[0].runs >= 2);
        end_probes();
}

static void again_from_behind(struct probe *p)
{
        if (p->runs == 1)
                loop_hook_again(&probes[0].hook);
        else
                loop_stop(w.loop);
}

TEST(a_hook_that_has_run_already_is_run_again_at_once)
{
        begin_probes();
        start(0, LOOP_DECIDE, NULL);
        start(1, LOOP_BEHIND, again_from_behind);
        loop_run(w.loop);
        CHECK_STR(said, "abab");
        end_probes();
}

/* ---- hooks that end hooks ---- */

static struct probe *others[3];
static unsigned ran[3];
static bool own_end;

static void on_other(struct probe *p)
{
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                ran[i] += others[i] == p;
}

static void end_others(struct probe *p)
{
        if (own_end)
                loop_hook_stop(&p->hook);
        for (size_t i = 0; i < 2; i++) {
                if (!others[i])
                        continue;
                loop_hook_stop(&others[i]->hook);
                free(others[i]);
                others[i] = NULL;
        }
        if (own_end)
                memset(&p->hook, 0xa5, sizeof(p->hook)); /* as if it were freed */
        loop_stop(w.loop);
}

/* Those behind it, which are freed; itself too, or not. */
static void ends_the_next(enum loop_stage stage, bool itself)
{
        memset(ran, 0, sizeof(ran));
        own_end = itself;
        begin_probes();
        start(0, LOOP_DECIDE, end_others);
        for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
                others[i] = calloc(1, sizeof(*others[i]));
                others[i]->act = on_other;
                others[i]->next = BOOT_TIME_NEVER;
                loop_hook_start(&others[i]->hook, w.loop, stage, probe_run);
        }
        loop_run(w.loop);
        CHECK_EQ(ran[0], 0);
        CHECK_EQ(ran[1], 0);
        CHECK_EQ(ran[2], 1);
        loop_hook_stop(&others[2]->hook);
        free(others[2]);
        if (itself)
                memset(&probes[0].hook, 0, sizeof(probes[0].hook));
        end_probes();
}

TEST(loop_hook_ends_the_next)
{
        ends_the_next(LOOP_DECIDE, false);
        ends_the_next(LOOP_ACT, false);
}

TEST(loop_hook_ends_itself_and_the_next)
{
        ends_the_next(LOOP_DECIDE, true);
        ends_the_next(LOOP_BEHIND, true);
}

/* What it had requested ends with it. */
static void end_first(struct probe *p)
{
        (void) p;
        loop_hook_stop(&probes[0].hook);
}

TEST(a_hook_that_has_ended_wakes_nobody)
{
        begin_probes();
        start(0, LOOP_DECIDE, NULL);
        start(1, LOOP_ACT, end_first);
        probes[0].next = (struct boot_time){1};
        loop_timer_init(&probes[0].timer, w.loop, stop_loop);
        loop_timer_in(&probes[0].timer, 20 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK_EQ(probes[0].runs, 1);
        CHECK(probes[1].runs <= 3);
        end_probes();
}

/* ---- timers ---- */

#define TIMERS 200

static struct {
        struct loop_timer timer;
        unsigned fired;
} timers[TIMERS];
static struct loop_timer *last;
static unsigned n_fired;

static size_t timer_number(const struct loop_timer *t)
{
        for (size_t i = 0; i < TIMERS; i++)
                if (&timers[i].timer == t)
                        return i;
        abort();
}

/* Each is later than the one before it or, of the same instant, was armed later. */
static void on_fire(struct loop_timer *t)
{
        size_t i = timer_number(t);

        timers[i].fired++;
        n_fired++;
        CHECK(!loop_timer_armed(t));
        CHECK(!last || boot_before(last->when, t->when) ||
              (last->when.ns == t->when.ns && timer_number(last) < i));
        last = t;
}

/* Of few instants, so that many have the same; some are moved, some are disarmed. */
TEST(timers_run_in_their_order_and_those_of_one_instant_as_they_were_armed)
{
        struct loop_timer end_of_it;
        struct boot_time now;
        unsigned n = 0;
        struct rnd r;

        rnd_init(&r, 7);
        for (unsigned round = 0; round < 20; round++) {
                begin();
                memset(timers, 0, sizeof(timers));
                last = NULL;
                n = n_fired = 0;
                now = boot_now();
                for (size_t i = 0; i < TIMERS; i++) {
                        loop_timer_init(&timers[i].timer, w.loop, on_fire);
                        loop_timer_arm(&timers[i].timer,
                                       boot_add(now, -(nsec_t) rnd_between(&r, 1, 20)));
                }
                for (size_t i = 0; i < TIMERS; i++) { /* again, in this order */
                        loop_timer_arm(&timers[i].timer,
                                       boot_add(now, -(nsec_t) rnd_between(&r, 1, 20)));
                        if (rnd_between(&r, 0, 3) == 0)
                                loop_timer_disarm(&timers[i].timer);
                        else
                                n++;
                }
                loop_timer_init(&end_of_it, w.loop, stop_loop);
                loop_timer_arm(&end_of_it, now);
                loop_run(w.loop);
                CHECK_EQ(n_fired, n);
                for (size_t i = 0; i < TIMERS; i++)
                        CHECK(timers[i].fired <= 1 && !loop_timer_armed(&timers[i].timer));
                end();
        }
}

static void disarm_next(struct loop_timer *t)
{
        loop_timer_disarm(&timers[timer_number(t) + 1].timer);
        timers[timer_number(t)].fired++;
        loop_timer_in(&timers[2].timer, 0);
}

static void for_now_again(struct loop_timer *t)
{
        timers[2].fired++;
        if (timers[2].fired == 5)
                return loop_stop(t->loop);
        loop_timer_in(t, 0); /* not in this pass, or it would never end */
}

TEST(a_timer_ends_another_and_one_that_is_due_again_waits_for_the_next_turn)
{
        begin();
        memset(timers, 0, sizeof(timers));
        loop_timer_init(&timers[0].timer, w.loop, disarm_next);
        loop_timer_init(&timers[1].timer, w.loop, on_fire);
        loop_timer_init(&timers[2].timer, w.loop, for_now_again);
        loop_timer_in(&timers[0].timer, 0);
        loop_timer_in(&timers[1].timer, 0);
        loop_run(w.loop);
        CHECK_EQ(timers[0].fired, 1);
        CHECK_EQ(timers[1].fired, 0);
        CHECK_EQ(timers[2].fired, 5);
        CHECK(w.turns >= 5);
        end();
}

/* What the host's clock has as never is no instant to wait for. */
TEST(a_timer_for_never_does_not_fire)
{
        struct loop_timer never, soon;

        begin();
        last = NULL;
        memset(timers, 0, sizeof(timers));
        loop_timer_init(&never, w.loop, on_fire);
        loop_timer_init(&soon, w.loop, stop_loop);
        loop_timer_arm(&never, BOOT_TIME_NEVER);
        loop_timer_in(&soon, 10 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK(loop_timer_armed(&never));
        loop_timer_disarm(&never);
        end();
}
