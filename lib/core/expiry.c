/* Expiry of leases on the leader, and the lease time that it writes into the log. */
#include "base/probe.h"
#include "core/internal.h"

#define EXPIRE_MAX 8192 /* leases in one entry */
#define EXPIRE_AGAIN \
        (250 * NSEC_PER_MSEC) /* a proposal that is not applied by then is repeated (A10) */
#define BUSY_GRACE_MAX (50 * NSEC_PER_MSEC)
#define REPORT_COST 16 /* of reporting that a lease ended: about 5 us */
/* While there are leases, the log records lease time after this part of what is left of the
 * next one that ends, within these bounds. */
#define TICK_PART 8
#define TICK_LEAST (250 * NSEC_PER_MSEC)
#define TICK_MOST NSEC_PER_SEC

/* While an entry is half applied no renewal is accepted. Afterwards, renewals that had to wait
 * get some time to arrive, before the leases end that are due by then. Other such entries do
 * not prolong this: leases must end while they follow each other, too (I2). Returns false if no
 * lease may end now; otherwise those that are due at *@ret may. */
static bool may_expire(struct core *c, struct lease_time now, struct lease_time *ret)
{
        if (c->part.on) {
                PROBE_IF(core_status(c).leader, "expiry waits while an entry is half applied");
                c->busy_since = boot_min(c->busy_since, c->now);
                return false;
        }
        if (core_has_to_descend(c)) /* which renews all leases */
                c->expire_not_before = boot_max(c->expire_not_before, c->descend_at);
        if (core_has_to_descend(c) || boot_before(c->now, c->expire_not_before))
                return false;
        *ret = now;
        if (c->busy_since.ns == BOOT_TIME_NEVER.ns)
                return true;
        if (lease_time_before(c->grace_began, now)) /* it was an estimate if we did not lead */
                *ret = c->grace_began;
        c->grace_began = now;
        c->expire_not_before = boot_add(
                c->now, min_of(boot_diff(c->now, c->busy_since), (nsec_t) BUSY_GRACE_MAX));
        c->busy_since = BOOT_TIME_NEVER;
        return true;
}

void core_expire(struct core *c)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct lease_time now = core_lease_time(c), due = deadlines_next(&c->state.deadlines),
                          upto;

        if (!may_expire(c, now, &upto) ||
            boot_before(c->now, replica_lease_when(c->replica, due, c->now)))
                return;
        /* While the commit path is unhealthy, lease time stands still and nothing is due. */
        PROBE_IF(!replica_healthy(c->replica, c->now),
                 "a lease is due while lease time stands still");
        if (!replica_healthy(c->replica, c->now) || lease_time_before(upto, due))
                return;
        PROBE_IF(c->pace.n > 0 || !TAILQ_EMPTY(&c->arrived), "renewals go ahead of an expiry");
        core_renewals_run(c, true); /* which win when the entries are applied */
        if (state_expire(&c->state, upto, lease_time_add(now, EXPIRE_AGAIN), EXPIRE_MAX,
                         &body) > 0)
                /* Nobody waits for the outcome: if the command is lost, the leases become due
                 * again. */
                (void) !core_propose_own(c, CMD_EXPIRE, &body);
}

/* If all replicas crash at once, only the log knows the lease time, so the leader logs it even
 * if nothing else is written: each lease may live longer by the time since. No lease has less
 * left than the one that ends next, so none lives longer by more than an eighth of its TTL, or
 * TICK_LEAST. */
static nsec_t tick_after(struct core *c)
{
        nsec_t left = lease_time_diff(deadlines_next(&c->state.deadlines), c->state.time);

        return max_of(min_of(left / TICK_PART, (nsec_t) TICK_MOST), (nsec_t) TICK_LEAST);
}

/* Each term begins with an entry, so that the outcome of the last term's commands is known
 * (core_writes_term()). */
void core_log_time(struct core *c)
{
        const struct buf nothing = {0};
        struct replica_status st = core_status(c);
        bool opens = c->term_seen != st.term;
        nsec_t left;

        if ((c->state.leases.n == 0 && !opens) || boot_before(c->now, c->tick_at) ||
            !st.leader || !replica_healthy(c->replica, c->now))
                return;
        left = opens ? 0 : tick_after(c) - lease_time_diff(core_lease_time(c), c->state.time);
        /* A lease may come that ends sooner. */
        c->tick_at = boot_add(c->now, left > 0 ? min_of(left, (nsec_t) TICK_LEAST)
                                               : (nsec_t) TICK_LEAST);
        if (left <= 0)
                (void) !core_propose_own(c, CMD_TICK, &nothing);
}

/* Logging a line costs more than ending a lease, so lines are written in slices, before any of
 * the command is applied. Returns false if there are more. */
bool core_report_expired(struct core *c, const struct cmd *cmd, uint64_t term,
                         struct budget *left)
{
        struct view body = cmd->body;
        uint64_t renewed;
        uint32_t slot;

        body.p += c->part.reported;
        body.len -= c->part.reported;
        while (!budget_is_spent(left) &&
               cmd_expire_next(&body, &c->part.reported_slots, &slot, &renewed) == 0) {
                const struct lease *l = leases_at(&c->state.leases, slot);

                c->part.reported = cmd->body.len - body.len;
                if (!l || l->renewed != renewed)
                        continue;
                c->owner->expired(c->owner_data, l->id, l->n_keys, term);
                budget_charge(left, (size_t) REPORT_COST);
        }
        return !budget_is_spent(left);
}
