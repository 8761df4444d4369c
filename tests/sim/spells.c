/*
 * Spells in which frames between replicas take longer: for some seconds, on all links, on those
 * to or from one replica, or on one link in one direction. As with TCP they stay in order.
 */
#include "base/log.h"
#include "world.h"

#define SPELLS_MOST 4 /* in one time of trouble: after each, leaders are wary for longer */
#define DELAY_LEAST (50 * MSEC)
#define DELAY_MOST (300 * MSEC)
/* A leader whose beacons are not answered in time lets lease time stand still until it has
 * learned how long a round trip takes; see learn_after() in consensus/beacons.c. */
#define LEARNED (4 * W->election + 4 * W->slowest + FRAME_LATE)

static unsigned left; /* spells of this time of trouble */

/* Of one replica, or of all of them: w->n_replicas. */
static void set_delay(struct world *w, unsigned from, unsigned to, nsec_t delay)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                for (unsigned j = 0; j < w->n_replicas; j++)
                        if ((from == w->n_replicas || from == i) &&
                            (to == w->n_replicas || to == j))
                                w->links[i][j].delay = delay;
}

static void slow_down(struct world *w, unsigned from, unsigned to, nsec_t delay, nsec_t lasts)
{
        w->counts.spells++;
        log_debug("%.3f s: frames from %u to %u take %lld ms longer, for %.3f s (%u: all)",
                  (double) w->now / 1e9, from + 1, to + 1, (long long) (delay / MSEC),
                  (double) lasts / 1e9, w->n_replicas + 1);
        w->slow_until = w->now + lasts;
        set_delay(w, from, to, delay);
        post(w, lasts, EV_QUICK);
}

static void speed_up(struct world *w)
{
        set_delay(w, w->n_replicas, w->n_replicas, 0);
        w->slow_until = min_of(w->slow_until, w->now);
}

void spells_begin(struct world *w)
{
        left = 0;
        if (w->slow_until > 0) /* all links, from the beginning on */
                slow_down(w, w->n_replicas, w->n_replicas, w->slowest, w->slow_until);
        else if (w->slows)
                w->slowest = time_in(&w->damage, DELAY_LEAST, DELAY_MOST);
        spells_again(w);
}

void spells_again(struct world *w)
{
        if (!w->slows)
                return;
        left = SPELLS_MOST;
        post(w, time_in(&w->damage, 0, 5000 * MSEC), EV_SLOW);
}

void spells_end(struct world *w)
{
        left = 0;
        speed_up(w);
}

/* A quarter makes a round trip about as long as a heartbeat interval, so that some answers come
 * in time and others late. */
static nsec_t draw_delay(struct world *w)
{
        if (chance_in(&w->damage, 25))
                return time_in(&w->damage, w->heartbeat / 2 - 2 * FRAME_MOST, w->heartbeat / 2);
        return time_in(&w->damage, DELAY_LEAST, w->slowest);
}

void on_spell(struct world *w)
{
        unsigned all = w->n_replicas, one = (unsigned) rnd_between(&w->damage, 0, all - 1),
                 other = (unsigned) rnd_between(&w->damage, 0, all - 1);
        nsec_t delay = draw_delay(w), lasts = time_in(&w->damage, 3000 * MSEC, 15000 * MSEC);

        if (left == 0)
                return;
        left--;
        switch (rnd_between(&w->damage, 0, 4)) {
        case 0:
                return slow_down(w, one, other, delay, lasts);
        case 1:
                return slow_down(w, one, all, delay, lasts);
        case 2:
                return slow_down(w, all, one, delay, lasts);
        default:
                return slow_down(w, all, all, delay, lasts);
        }
}

void on_quick(struct world *w)
{
        if (w->calm)
                return;
        speed_up(w);
        if (left > 0)
                post(w, time_in(&w->damage, 500 * MSEC, 6000 * MSEC), EV_SLOW);
}

void spells_see(struct world *w, uint64_t term, bool slow)
{
        if (slow && (!w->was_slow || term != w->slow_term))
                w->learning_until = w->now + LEARNED;
        w->was_slow = slow;
        w->slow_term = term;
}
