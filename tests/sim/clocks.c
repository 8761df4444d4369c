#include "clocks.h"

#include "world.h"

struct boot_time clock_of(const struct world *w, const struct host_clock *c)
{
        /* Every clock starts somewhere, and runs at its own rate. */
        return (struct boot_time){w->now + w->now / 1000000 * c->ppm + c->ahead +
                                  1000 * NSEC_PER_SEC};
}

nsec_t true_time_of(const struct world *w, const struct host_clock *c, struct boot_time t)
{
        nsec_t left = boot_diff(t, clock_of(w, c));

        if (t.ns == BOOT_TIME_NEVER.ns)
                return NEVER;
        return left <= 0 ? w->now : w->now + left + left / 1000 + 1;
}

/* How long a host slept may be read off a clock with whole seconds; and a virtual machine may
 * have no clock that went on. */
bool clock_wakes(struct world *w, struct host_clock *c, nsec_t slept)
{
        nsec_t by;

        if (!w->steps || chance_in(&w->damage, 30))
                return false;
        by = chance_in(&w->damage, 50)
                     ? -slept
                     : time_in(&w->damage, 0, 2 * NSEC_PER_SEC) - NSEC_PER_SEC;
        c->stepped = max_of(by, -slept);
        c->ahead += c->stepped;
        c->woke_at = clock_of(w, c);
        w->counts.steps++;
        return true;
}
