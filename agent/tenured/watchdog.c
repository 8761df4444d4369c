/* Answers the service manager's watchdog for as long as the loop runs. */
#include "agent.h"
#include "bus/notify.h"

#define WATCHDOG_MIN (250 * NSEC_PER_MSEC)

/* Tied to the heartbeat: an agent whose loop stalls, or that acts late on its own deadline, is
 * not healthy, and the watchdog ends it. */
void watchdog_beat(struct loop_timer *t)
{
        struct agent *a = container_of(t, struct agent, watchdog);

        notify_watchdog();
        loop_timer_in(t, a->watchdog_period / 3);
}

/* Called in every turn. A hanging agent must be killed early enough for the next one to renew,
 * or to give up the place in time. This holds for the TTL of the current lease and for the next
 * TTL to be asked for. */
void watchdog_set(struct agent *a)
{
        nsec_t ttl = min_of(session_ttl(member_session(a->member)), a->opt.ttl);
        nsec_t period = min_of(a->watchdog_most, max_of(ttl / 4, WATCHDOG_MIN));

        if (a->watchdog_most == 0 || period == a->watchdog_period)
                return;
        a->watchdog_period = period;
        notify_watchdog_set(period);
        watchdog_beat(&a->watchdog);
}
