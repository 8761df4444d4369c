/* What an operator orders of this replica, until it is done or cannot be done. */
#include "core/internal.h"

void core_withdraw_order(struct core *c, struct core_order *o)
{
        core_timeout_stop(c, &o->timeout);
        LIST_REMOVE(o, next);
}

static void end(struct core *c, struct core_order *o, struct status st)
{
        core_withdraw_order(c, o);
        o->done(o, st);
}

void core_orders_end(struct core *c)
{
        struct core_order *o;

        while ((o = LIST_FIRST(&c->orders)))
                end(c, o, status_stopped);
}

/* Whether it is decided who leads next. A leader that did not hand over in time stays. */
static bool has_moved(struct core *c, const struct core_order *o, struct status *ret)
{
        struct replica_status st = core_status(c);

        *ret = st.leader_id == o->leader ? status_ok : status_not_moved;
        if (st.leader && st.leader_id != o->leader)
                return replica_transferee(c->replica) != o->leader;
        return st.leader_id != 0;
}

static void timed_out(struct core *c, struct core_timeout *t)
{
        struct core_order *o = container_of(t, struct core_order, timeout);
        struct status st;

        (void) has_moved(c, o, &st);
        end(c, o, st);
}

void core_move_leader(struct core *c, struct core_order *o, uint64_t member, nsec_t timeout)
{
        int r = replica_transfer(c->replica, member, c->now);

        if (r < 0)
                return o->done(o, r == -EBUSY             ? status_not_moved
                                  : core_status(c).leader ? status_bad_transferee
                                                          : status_not_leader);
        o->is_over = has_moved;
        o->leader = member;
        core_timeout_start(c, &o->timeout, timeout, timed_out);
        LIST_INSERT_HEAD(&c->orders, o, next);
}

static bool is_saved(struct core *c, const struct core_order *o, struct status *ret)
{
        static const struct status broken = {
                RPC_INTERNAL, "etcdserver: cannot write a snapshot: see the journal"};
        struct replica_saved saved = replica_saved(c->replica);
        bool full = saved.error == -ENOSPC || saved.error == -EDQUOT;

        *ret = saved.index >= o->index ? status_ok : full ? status_of(STATE_E_NOSPACE) : broken;
        return saved.index >= o->index || saved.failures != o->failures;
}

void core_take_snapshot(struct core *c, struct core_order *o)
{
        replica_want_snapshot(c->replica);
        o->is_over = is_saved;
        o->index = replica_applied(c->replica);
        o->failures = replica_saved(c->replica).failures;
        o->timeout.at = BOOT_TIME_NEVER;
        LIST_INSERT_HEAD(&c->orders, o, next);
}

void core_orders_run(struct core *c)
{
        struct core_order *o, *next;
        struct status st;

        LIST_FOREACH_SAFE (o, &c->orders, next, next)
                if (o->is_over(c, o, &st))
                        end(c, o, st);
}
