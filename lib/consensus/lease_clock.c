#include "consensus/lease_clock.h"

#include "base/probe.h"

void lease_clock_init(struct lease_clock *c, nsec_t heartbeat, nsec_t retry)
{
        *c = (struct lease_clock){
                .normal = LEASE_CLOCK_NORMAL(heartbeat),
                .retry = retry,
        };
}

void lease_clock_learn(struct lease_clock *c, uint64_t term, struct lease_time t,
                       struct boot_time now)
{
        if (term < c->term || (term == c->term && lease_time_before(t, c->known)))
                return;
        c->term = term;
        c->known = t;
        c->known_at = now;
}

void lease_clock_start(struct lease_clock *c, uint64_t term, struct boot_time now)
{
        c->running = true;
        c->term = term;
        c->at = c->known;
        c->since = boot_add(now, c->retry);
        c->outages = 0;
}

void lease_clock_stop(struct lease_clock *c)
{
        c->running = false;
}

nsec_t lease_clock_limit(const struct lease_clock *c)
{
        return c->normal + 2 * c->way;
}

void lease_clock_confirm(struct lease_clock *c, struct boot_time sent)
{
        nsec_t gap = boot_diff(sent, c->since);

        if (!c->running || gap <= 0)
                return;
        if (gap > lease_clock_limit(c)) {
                PROBE("lease time stands still because no majority answered");
                c->outages += gap;
                c->at = c->known;
                c->since = boot_add(sent, c->retry);
        } else {
                c->at = lease_time_add(c->at, gap);
                c->since = sent;
        }
        lease_clock_learn(c, c->term, c->at, sent);
}

struct lease_time lease_clock_read(const struct lease_clock *c, struct boot_time now)
{
        nsec_t gap = boot_diff(now, c->running ? c->since : c->known_at);
        struct lease_time t = c->running ? c->at : c->known;

        return lease_time_max(
                c->known, gap > 0 && gap <= lease_clock_limit(c) ? lease_time_add(t, gap) : t);
}

struct lease_time lease_clock_give(struct lease_clock *c, struct boot_time now)
{
        struct lease_time t = lease_clock_read(c, now);

        lease_clock_learn(c, c->term, t, now);
        return t;
}

bool lease_clock_healthy(const struct lease_clock *c, struct boot_time now)
{
        return c->running && boot_diff(now, c->since) <= lease_clock_limit(c);
}

struct boot_time lease_clock_when(const struct lease_clock *c, struct lease_time t,
                                  struct boot_time now)
{
        if (t.ns == LEASE_TIME_NEVER.ns)
                return BOOT_TIME_NEVER;
        return boot_max(now, boot_add(c->since, lease_time_diff(t, c->at)));
}
