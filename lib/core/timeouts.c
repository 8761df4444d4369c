/* When waiting requests end without an answer, soonest first. */
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
        t->at = boot_add(c->now,
                         timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
        t->over = over;
        RB_INSERT(core_timeouts, &c->timeouts, t);
}

void core_timeout_stop(struct core *c, struct core_timeout *t)
{
        if (t->at.ns == BOOT_TIME_NEVER.ns)
                return;
        RB_REMOVE(core_timeouts, &c->timeouts, t);
        t->at = BOOT_TIME_NEVER;
}

struct status core_timeout_status(const struct core *c)
{
        return core_status(c).leader_id ? status_timeout : status_no_leader;
}

void core_timeouts_run(struct core *c)
{
        struct core_timeout *t;
        unsigned left = OVER_AT_ONCE;

        while (left-- > 0 && !boot_before(c->now, core_timeouts_next(c))) {
                t = RB_MIN(core_timeouts, &c->timeouts);
                core_timeout_stop(c, t);
                t->over(c, t);
        }
}

struct boot_time core_timeouts_next(struct core *c)
{
        struct core_timeout *t = RB_MIN(core_timeouts, &c->timeouts);

        return t ? t->at : BOOT_TIME_NEVER;
}
