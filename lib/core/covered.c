/*
 * Renewals that need no entry, because the lease has been renewed ahead.
 *
 * A client that renews in a loop would make the core write to its disks on every round trip,
 * each time to prolong the lease by a few milliseconds. So a lease that is renewed again within
 * a small part of its TTL is renewed ahead: its TTL begins that much later than the renewal.
 * Until then, the disks of a majority already hold a deadline that satisfies further renewals
 * of that lease. They are answered like linearizable reads: the lease exists (I7), and its
 * deadline is at least TTL away in the lease time of a leader whose leadership was confirmed
 * after the renewal arrived (I1, I3, I8). In exchange, such a lease may outlive others by that
 * part of its TTL (I2).
 */
#include "base/probe.h"
#include "core/internal.h"

/* A confirmation that takes longer is given up, and its renewals get an entry: otherwise they
 * could wait twice for as long as a request may take. */
#define CONFIRMED_IN (200 * NSEC_PER_MSEC)

/* Renewals that wait for one confirmation. */
struct confirmation {
        struct core_read read;
        struct core *core;
        struct lease_time asked_at;
        struct core_renewals items;
};

struct renew_left core_renew_left(const struct core *c, const struct lease *l)
{
        return (struct renew_left){
                .ttl = l->ttl_ms * NSEC_PER_MSEC,
                .left = lease_time_diff(deadlines_get(&c->state.deadlines, l->slot),
                                        core_lease_time(c)),
        };
}

bool core_take_covered(struct core *c, struct core_renewal *rn, const struct lease *l,
                       struct renew_left t)
{
        if (!renew_pace_ask(&c->pace, t))
                return false;
        rn->slot = l->slot;
        STAILQ_INSERT_TAIL(&c->to_confirm, rn, next);
        return true;
}

static bool surplus_is_short(const struct core *c, const struct lease *l)
{
        struct renew_left t = core_renew_left(c, l);

        return t.left - t.ttl < renew_pace_ahead(&c->pace, t.ttl) / 2;
}

/* Adds renewals whose surplus is nearly used up, so that leases that are renewed in loops share
 * entries although their loops began at different times. */
void core_covered_join(struct core *c)
{
        struct core_renewals all = STAILQ_HEAD_INITIALIZER(all);
        struct core_renewal *rn;

        STAILQ_CONCAT(&all, &c->to_confirm);
        while ((rn = STAILQ_FIRST(&all))) {
                const struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(&all, next);
                if (l && surplus_is_short(c, l)) {
                        /* This renewal may be the trial of renew_pace_ask(). */
                        renew_pace_not_confirmed(&c->pace);
                        core_renewal_enqueue(c, rn, l);
                } else {
                        STAILQ_INSERT_TAIL(&c->to_confirm, rn, next);
                }
        }
}

/* @at is the leader's lease time, which came with the confirmation. */
static bool is_covered_at(const struct core *c, const struct lease *l, struct lease_time at)
{
        return at.ns != LEASE_TIME_NEVER.ns &&
               lease_time_diff(deadlines_get(&c->state.deadlines, l->slot), at) >=
                       l->ttl_ms * NSEC_PER_MSEC;
}

/* @at: the lease time of the confirmation; LEASE_TIME_NEVER: it has none. If none arrived
 * (@st), each renewal gets an entry, or is looked up; otherwise a lease that is missing now has
 * ended, since it existed when the renewal came. */
static void settle(struct core *c, struct core_renewals *items, struct status st,
                   struct lease_time at)
{
        struct core_renewal *rn;

        while ((rn = STAILQ_FIRST(items))) {
                struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(items, next);
                if (core_renewal_goes_on(c, rn, &l)) {
                        continue;
                } else if (l && !is_covered_at(c, l, at)) {
                        PROBE("a renewal proves to need an entry after its confirmation");
                        core_renewal_enqueue(c, rn, l);
                } else if (st.code != RPC_OK) {
                        core_renew(c, rn);
                } else {
                        c->counts.covered += l != NULL;
                        c->reads_left -= c->reads_left > 0; /* it costs as much as a read */
                        rn->done(rn, st, l ? l->ttl_ms : 0);
                }
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
                renew_pace_confirmed(&c->pace, CONFIRMED_IN);
        } else if (rd->at.ns != LEASE_TIME_NEVER.ns) {
                renew_pace_confirmed(&c->pace, lease_time_diff(rd->at, cv->asked_at));
        } else {
                renew_pace_not_confirmed(&c->pace);
        }
        settle(c, &cv->items, st, rd->at);
        free(cv);
}

void core_covered_ask(struct core *c)
{
        struct confirmation *cv;

        if (STAILQ_EMPTY(&c->to_confirm))
                return;
        cv = core_reads_full(c) ? NULL : calloc(1, sizeof(*cv));
        if (!cv) {
                renew_pace_not_confirmed(&c->pace);
                return settle(c, &c->to_confirm, status_too_many, LEASE_TIME_NEVER);
        }
        cv->core = c;
        cv->asked_at = core_lease_time(c);
        cv->read.done = confirmed;
        STAILQ_INIT(&cv->items);
        STAILQ_CONCAT(&cv->items, &c->to_confirm);
        core_read(c, &cv->read, CONFIRMED_IN);
}
