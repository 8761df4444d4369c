#include "loops.h"

#include "world.h"

static const struct host_clock *here;

static int timer_cmp(const struct loop_timer *a, const struct loop_timer *b)
{
        if (a->when.ns != b->when.ns)
                return a->when.ns < b->when.ns ? -1 : 1;
        return a->order < b->order ? -1 : a->order > b->order;
}

TREE_GENERATE(loop_timers, loop_timer, by_time, timer_cmp)

void loop_init(struct loop *l, const struct host_clock *c)
{
        *l = (struct loop){.clock = c};
}

void loop_enter(const struct host_clock *c)
{
        here = c;
}

struct boot_time boot_now(void)
{
        return clock_of(W, here);
}

struct boot_time loop_now(const struct loop *l)
{
        return clock_of(W, l->clock);
}

int loop_new(struct loop **ret)
{
        *ret = calloc(1, sizeof(**ret));
        if (!*ret)
                return -ENOMEM;
        loop_init(*ret, here);
        return 0;
}

struct loop *loop_free(struct loop *l)
{
        free(l);
        return NULL;
}

/* The simulator runs the guard's loop; guard_run() is never called. */
void loop_run(struct loop *l)
{
        (void) l;
        abort();
}

void loop_stop(struct loop *l)
{
        l->stopped = true;
}

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t))
{
        *t = (struct loop_timer){.loop = l, .fn = fn};
}

void loop_timer_disarm(struct loop_timer *t)
{
        if (loop_timer_armed(t))
                RB_REMOVE(loop_timers, &t->loop->timers, t);
        t->order = 0;
}

void loop_timer_arm(struct loop_timer *t, struct boot_time when)
{
        loop_timer_disarm(t);
        t->when = when;
        t->order = ++t->loop->orders;
        RB_INSERT(loop_timers, &t->loop->timers, t);
}

void loop_timer_in(struct loop_timer *t, nsec_t after)
{
        loop_timer_arm(t, boot_add(loop_now(t->loop), after));
}

bool loop_run_timer(struct loop *l)
{
        struct loop_timer *t = RB_MIN(loop_timers, &l->timers);

        if (!t || boot_before(loop_now(l), t->when))
                return false;
        loop_timer_disarm(t);
        t->fn(t);
        return true;
}

nsec_t loop_next(const struct loop *l)
{
        const struct loop_timer *t =
                RB_MIN(loop_timers, (struct loop_timers *) (uintptr_t) &l->timers);

        return t ? true_time_of(W, l->clock, t->when) : NEVER;
}
