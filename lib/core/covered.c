/*
 * Renewals that need no entry, because the lease has been renewed ahead.
 *
 * A client that renews in a loop would make the core write to its disks for each round trip,
 * and every time for the few milliseconds that have passed since. So a lease that is renewed
 * again within a small part of its TTL is renewed ahead: its term begins that much later than
 * the renewal. Until then, a renewal of that lease asks for no more than a majority has on its
 * disks already, and is answered like a linearizable read: the lease exists (I7) and its
 * deadline is at least TTL away by the time of a leader that has been found to lead since the
 * renewal came (I1, I3, I8). Such a lease ends up to that part of its TTL later than others
 * (I2).
 */
#include "base/probe.h"
#include "core/internal.h"

/* A lease is renewed ahead by this part of its TTL, but by no more than AHEAD_MAX; and not at
 * all by less than AHEAD_MIN, which would be over when the entry is written. */
#define AHEAD_PART 1000
#define AHEAD_MIN (5 * NSEC_PER_MSEC)
#define AHEAD_MAX (50 * NSEC_PER_MSEC)

static_assert(AHEAD_MAX / NSEC_PER_MSEC <= CMD_AGE_MAX, "it has to fit into the command");

/* Renewals that wait for one confirmation. */
struct covered {
        struct core_read read;
        struct core *core;
        struct lease_time asked_at;
        struct core_renewals items;
};

/* Adds what one more confirmation used to the figure of the last ones. */
static void count_used(struct core *c, nsec_t used)
{
        nsec_t more = min_of(max_of(used, (nsec_t) 0), 2 * AHEAD_MAX) - c->lead_used;

        c->lead_used += more > 0 ? more / 2 : more / 8;
}

/* The log counts in milliseconds. */
nsec_t core_ahead_of(const struct core *c, const struct lease *l)
{
        nsec_t ahead = l->ttl_ms / (c->cfg.renew_part > 0 ? c->cfg.renew_part : AHEAD_PART) *
                       NSEC_PER_MSEC;

        return ahead < AHEAD_MIN ? 0 : min_of(ahead, AHEAD_MAX);
}

nsec_t core_left_of(const struct core *c, const struct lease *l)
{
        return lease_time_diff(deadlines_get(&c->state.deadlines, l->slot), core_lease_time(c));
}

/* Some of the lead passes while the leader is asked. If the others are far away, all of it
 * does, and the renewal would wait for nothing; from time to time one tries again. More lead
 * than there can be only shows that this replica has not heard lease time for a while; then the
 * renewal must not wait either. */
bool core_covers(struct core *c, struct core_renewal *rn, const struct lease *l, nsec_t left)
{
        nsec_t ahead = core_ahead_of(c, l), lead = left - l->ttl_ms * NSEC_PER_MSEC;

        if (ahead == 0 || lead <= ahead / 8 || lead > ahead)
                return false;
        if (lead <= c->lead_used) {
                PROBE("a renewal gets an entry because a confirmation would take too long");
                c->lead_used -= c->lead_used / 128;
                return false;
        }
        rn->slot = l->slot;
        STAILQ_INSERT_TAIL(&c->covered, rn, next);
        return true;
}

/* Leases that are renewed in loops share their entries, although their loops began at different
 * times. */
void core_covered_join(struct core *c)
{
        struct core_renewals all = STAILQ_HEAD_INITIALIZER(all);
        struct core_renewal *rn;
        nsec_t left;

        STAILQ_CONCAT(&all, &c->covered);
        while ((rn = STAILQ_FIRST(&all))) {
                const struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(&all, next);
                left = l ? core_left_of(c, l) : 0;
                if (l && left - l->ttl_ms * NSEC_PER_MSEC < core_ahead_of(c, l) / 2)
                        core_renewal_enqueue(c, rn, l, left);
                else
                        STAILQ_INSERT_TAIL(&c->covered, rn, next);
        }
}

/* The time that came with the confirmation is the leader's. */
static bool is_covered(const struct core *c, const struct lease *l, struct lease_time at)
{
        return at.ns != LEASE_TIME_NEVER.ns &&
               lease_time_diff(deadlines_get(&c->state.deadlines, l->slot), at) >=
                       l->ttl_ms * NSEC_PER_MSEC;
}

/* @at: when a confirmation came; LEASE_TIME_NEVER: none can be asked for. It only spares an
 * entry, so without it each renewal gets one. A lease that is gone by now was there when they
 * came. */
static void settle(struct core *c, struct core_renewals *items, struct status st,
                   struct lease_time at)
{
        struct core_renewal *rn;

        if (st.code != RPC_OK)
                return core_renewals_fail(items, st);
        while ((rn = STAILQ_FIRST(items))) {
                struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(items, next);
                if (core_renewal_goes_on(c, rn, &l)) {
                        continue;
                } else if (l && !is_covered(c, l, at)) {
                        PROBE("a renewal proves to need an entry after its confirmation");
                        core_renewal_enqueue(c, rn, l, core_left_of(c, l));
                } else {
                        c->counts.covered += l != NULL;
                        c->reads_left -= c->reads_left > 0; /* it costs as much as a read */
                        rn->done(rn, st, l ? l->ttl_ms : 0);
                }
        }
}

static void confirmed(struct core_read *rd, struct status st)
{
        struct covered *cv = container_of(rd, struct covered, read);
        struct core *c = cv->core;

        if (st.code == RPC_OK && rd->at.ns != LEASE_TIME_NEVER.ns)
                count_used(c, lease_time_diff(rd->at, cv->asked_at));
        settle(c, &cv->items, st, rd->at);
        free(cv);
}

void core_covered_ask(struct core *c)
{
        struct covered *cv;

        if (STAILQ_EMPTY(&c->covered))
                return;
        cv = core_reads_full(c) ? NULL : calloc(1, sizeof(*cv));
        if (!cv)
                return settle(c, &c->covered, status_ok, LEASE_TIME_NEVER);
        cv->core = c;
        cv->asked_at = core_lease_time(c);
        cv->read.done = confirmed;
        STAILQ_INIT(&cv->items);
        STAILQ_CONCAT(&cv->items, &c->covered);
        core_read(c, &cv->read, 0);
}
