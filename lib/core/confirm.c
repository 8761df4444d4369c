/*
 * Renewals that a read answers: a confirmation by the leader.
 *
 * A client that renews in a loop would make the core write to its disks on every round trip,
 * each time to prolong the lease by a few milliseconds. So a lease that is renewed again within
 * a small part of its TTL is renewed ahead: its TTL begins that much later than the renewal.
 * Until then, the disks of a majority already hold a deadline that covers further renewals of
 * that lease. They are answered like linearizable reads: the lease exists (I7), and its
 * deadline is at least TTL away in the lease time of a leader whose leadership was confirmed
 * after the renewal arrived (I1, I3, I8). In exchange, such a lease may outlive others by that
 * part of its TTL (I2).
 *
 * A lease that is unknown here may have been granted a moment ago through another replica
 * (A22), so it is gone only if the leader's log says so.
 */
#include "base/probe.h"
#include "core/internal.h"

/* A confirmation that takes longer is given up, and the renewals that it covers get an entry
 * while there is time for one. */
#define CONFIRMED_IN (200 * NSEC_PER_MSEC)

/* Renewals that wait for one read. */
struct confirmation {
        struct core_read read;
        struct core *core;
        struct lease_time asked_at;
        struct core_renewals items;
        size_t n_covered; /* counted by renew_pace_ask() */
};

/* @at is the leader's lease time, which came with the confirmation. */
static bool is_covered_at(const struct core *c, const struct lease *l, struct lease_time at)
{
        return at.ns != LEASE_TIME_NEVER.ns &&
               lease_time_diff(deadlines_get(&c->state.deadlines, l->slot), at) >=
                       l->ttl_ms * NSEC_PER_MSEC;
}

/* @at: the lease time of the confirmation; LEASE_TIME_NEVER: it has none, or none arrived
 * (@st). */
static void settle(struct core *c, struct core_renewals *items, struct status st,
                   struct lease_time at)
{
        struct core_renewal *rn;

        while ((rn = TAILQ_FIRST(items))) {
                const struct lease *l = core_renewal_lease(c, rn);

                if (l && !is_covered_at(c, l, at)) {
                        PROBE("a renewal proves to need an entry after its confirmation");
                        core_renewal_queue(c, rn, l);
                        continue;
                }
                c->counts.covered += l != NULL;
                c->reads_left -= c->reads_left > 0; /* it costs as much as a read */
                core_renewal_finish(c, rn, st, l ? l->ttl_ms : 0);
        }
}

static void confirmed(struct core_read *rd, struct status st)
{
        struct confirmation *cv = container_of(rd, struct confirmation, read);
        struct core *c = cv->core;

        if (st.code != RPC_OK) {
                PROBE("a renewal waits for its confirmation in vain");
                c->counts.reads_failed--; /* no client's read has */
                rd->at = LEASE_TIME_NEVER;
                renew_pace_took(&c->pace, CONFIRMED_IN);
        } else if (rd->at.ns != LEASE_TIME_NEVER.ns) {
                renew_pace_took(&c->pace, lease_time_diff(rd->at, cv->asked_at));
        }
        renew_pace_settled(&c->pace, cv->n_covered);
        settle(c, &cv->items, st, rd->at);
        free(cv);
}

void core_renewals_confirm(struct core *c, struct core_renewals *list, bool covered)
{
        struct core_renewal *rn;
        struct confirmation *cv = NULL;
        size_t n = 0;

        TAILQ_FOREACH (rn, list, next)
                n++;
        if (n == 0)
                return;
        if (shares_left(&c->shares, POT_OWN_READS, (struct requester){0}) > 0)
                cv = calloc(1, sizeof(*cv));
        if (!cv) {
                renew_pace_settled(&c->pace, covered ? n : 0);
                return settle(c, list, status_too_many, LEASE_TIME_NEVER);
        }
        cv->core = c;
        cv->asked_at = core_lease_time(c);
        cv->read.done = confirmed;
        cv->n_covered = covered ? n : 0;
        TAILQ_INIT(&cv->items);
        while ((rn = TAILQ_FIRST(list)))
                core_renewal_move(rn, &cv->items);
        core_read(c, &cv->read, covered ? CONFIRMED_IN : 0);
}
