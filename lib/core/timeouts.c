/* When waiting requests end without an answer, soonest first. Most of them have the usual
 * timeout, so that those end in the order in which they came. */
#include "core/internal.h"

#define OVER_AT_ONCE 1000 /* in one turn */

/* Equal ones stay in the order in which they were started. */
static int timeout_cmp(const struct core_timeout *a, const struct core_timeout *b)
{
        return boot_before(a->at, b->at) ? -1 : 1;
}

TREE_GENERATE(core_timeouts, core_timeout, by_time, timeout_cmp)

void core_timeout_start(struct core *c, struct core_timeout *t, nsec_t timeout,
                        void (*over)(struct core *c, struct core_timeout *t))
{
        t->is_shorter = timeout > 0 && timeout < c->cfg.timeout;
        t->at = boot_add(c->now, t->is_shorter ? timeout : c->cfg.timeout);
        t->over = over;
        if (t->is_shorter)
                RB_INSERT(core_timeouts, &c->shorter_timeouts, t);
        else
                TAILQ_INSERT_TAIL(&c->usual_timeouts, t, next);
}

void core_timeout_stop(struct core *c, struct core_timeout *t)
{
        if (t->at.ns == BOOT_TIME_NEVER.ns)
                return;
        if (t->is_shorter)
                RB_REMOVE(core_timeouts, &c->shorter_timeouts, t);
        else
                TAILQ_REMOVE(&c->usual_timeouts, t, next);
        t->at = BOOT_TIME_NEVER;
}

struct status core_timeout_status(const struct core *c)
{
        return core_status(c).leader_id ? status_timeout : status_no_leader;
}

/* NULL: none runs. */
static struct core_timeout *first(struct core *c)
{
        struct core_timeout *usual = TAILQ_FIRST(&c->usual_timeouts),
                            *shorter = RB_MIN(core_timeouts, &c->shorter_timeouts);

        if (!usual || !shorter)
                return usual ? usual : shorter;
        return boot_before(usual->at, shorter->at) ? usual : shorter;
}

void core_timeouts_run(struct core *c)
{
        struct core_timeout *t;
        unsigned left = OVER_AT_ONCE;

        while (left-- > 0 && (t = first(c)) && !boot_before(c->now, t->at)) {
                core_timeout_stop(c, t);
                t->over(c, t);
        }
}

struct boot_time core_timeouts_next(struct core *c)
{
        const struct core_timeout *t = first(c);

        return t ? t->at : BOOT_TIME_NEVER;
}
