/*
 * Renewals: where each of them waits, how they become one command (renew_pace.h decides when),
 * and how they are answered.
 *
 * A renewal is in one of these lists until it is answered, or its time is over:
 *
 *     list              waits for                 is moved on by
 *     ----------------  ------------------------  --------------------------------------------
 *     c->arrived        the end of the turn       route(): to c->queued if an entry has to
 *                                                 renew the lease, or else to a confirmation
 *     c->queued         the next batch            send_queued(): to a batch; or, if the lease
 *                                                 has been renewed meanwhile and that covers
 *                                                 this renewal, to a confirmation
 *     a confirmation's  a read (confirm.c)        settle(): answered, or to c->queued
 *     a batch's         an entry                  batch_done(): answered; or to c->queued if
 *                                                 its id or name is another lease's by now
 */
#include "base/probe.h"
#include "core/internal.h"
#include "state/lease_names.h"

const struct histogram_shape core_left_shape = {
        .n = 8,
        .digits = 3,
        .upper = {62, 125, 250, 375, 500, 625, 750, 1000},
};

/* Renewals that became one command. */
struct renew_batch {
        struct core_write write;
        struct core *core;
        struct core_renewals items;
        size_t n_early;
        uint64_t as_of; /* as in the command: it renews no lease that was granted later */
};

/* ---- from list to list ---- */

void core_renewal_move(struct core_renewal *rn, struct core_renewals *to)
{
        TAILQ_REMOVE(rn->in, rn, next);
        TAILQ_INSERT_TAIL(to, rn, next);
        rn->in = to;
}

void core_renewal_finish(struct core *c, struct core_renewal *rn, struct status st,
                         int64_t ttl_ms)
{
        TAILQ_REMOVE(rn->in, rn, next);
        core_timeout_stop(c, &rn->timeout);
        rn->done(rn, st, ttl_ms);
}

void core_renewals_fail(struct core *c, struct core_renewals *list, struct status st)
{
        struct core_renewal *rn;

        while ((rn = TAILQ_FIRST(list)))
                core_renewal_finish(c, rn, st, 0);
}

static void timed_out(struct core *c, struct core_timeout *t)
{
        core_renewal_finish(c, container_of(t, struct core_renewal, timeout),
                            core_timeout_status(c), 0);
}

/* Looks it up by slot: for 10,000 renewals, a look-up by id would cost more than all the
 * rest. */
struct lease *core_renewal_lease(const struct core *c, struct core_renewal *rn)
{
        struct lease *l;

        if (rn->name.len > 0) {
                l = names_find(&c->state, &rn->name);
                rn->lease = l ? l->id : 0;
        } else {
                l = leases_at(&c->state.leases, rn->slot);
                if (!l || l->id != rn->lease)
                        l = leases_find(&c->state.leases, rn->lease);
        }
        if (l)
                rn->slot = l->slot;
        return l;
}

/* The TTL of @l, and the time until its deadline according to this replica. */
static struct renew_left left_of(const struct core *c, const struct lease *l)
{
        return (struct renew_left){
                .ttl = l->ttl_ms * NSEC_PER_MSEC,
                .left = lease_time_diff(deadlines_get(&c->state.deadlines, l->slot),
                                        core_lease_time(c)),
        };
}

void core_renewal_queue(struct core *c, struct core_renewal *rn, const struct lease *l)
{
        rn->ahead = renew_pace_arrived(&c->pace, left_of(c, l), c->now);
        rn->as_of = c->state.applied;
        core_renewal_move(rn, &c->queued);
}

void core_renew(struct core *c, struct core_renewal *rn)
{
        rn->in = &c->arrived;
        TAILQ_INSERT_TAIL(rn->in, rn, next);
        core_timeout_start(c, &rn->timeout, 0, timed_out);
}

static void count_left(struct core *c, struct renew_left t)
{
        nsec_t left = max_of(min_of(t.left, t.ttl), (nsec_t) 0);

        histogram_add(&c->counts.left, &core_left_shape,
                      (uint64_t) (left / (t.ttl / 1000 + 1)));
}

/* A renewed TTL must not begin before the renewal arrived, and c->now was older then. So the
 * renewal is stamped here, with the next time that we were given. */
static void route(struct core *c, struct core_renewals *covered, struct core_renewals *unknown)
{
        struct core_renewal *rn;

        while ((rn = TAILQ_FIRST(&c->arrived))) {
                const struct lease *l = core_renewal_lease(c, rn);
                struct renew_left t;

                rn->came_at = c->now;
                if (!l) {
                        core_renewal_move(rn, unknown);
                        continue;
                }
                t = left_of(c, l);
                count_left(c, t);
                if (renew_pace_ask(&c->pace, t))
                        core_renewal_move(rn, covered);
                else
                        core_renewal_queue(c, rn, l);
        }
}

/* ---- batches ---- */

static void batch_done(struct core_write *w, struct status st, struct view reply)
{
        struct renew_batch *b = container_of(w, struct renew_batch, write);
        struct core *c = b->core;
        struct core_renewal *rn;

        (void) reply;
        if (st.code != RPC_OK)
                core_renewals_fail(c, &b->items, st);
        while ((rn = TAILQ_FIRST(&b->items))) {
                int64_t sent_for = rn->lease;
                /* Answer with the TTL in the applied state: for a lease that is gone, it is
                 * never positive (I7). */
                const struct lease *l = core_renewal_lease(c, rn);

                PROBE_IF(l && l->id != sent_for,
                         "a name belongs to another lease when its renewal is applied");
                PROBE_IF(l && l->id == sent_for && l->born > b->as_of,
                         "a lease's id is granted again while its renewal is under way");
                if (l && (l->id != sent_for || l->born > b->as_of))
                        core_renewal_queue(c, rn, l);
                else
                        core_renewal_finish(c, rn, st, l ? l->ttl_ms : 0);
        }
        renew_pace_answered(&c->pace, c->now);
        if (b->write.type == CMD_RENEW)
                renew_pace_crowd(&c->pace, b->n_early);
        free(b);
}

struct slot_age {
        uint32_t slot;
        unsigned age_ms;
};

/* Orders by slot; for the same slot, the latest renewal comes first, or of renewals ahead the
 * one that is the least ahead. */
static int slot_cmp(const void *a, const void *b)
{
        const struct slot_age *x = a, *y = b;

        if (x->slot != y->slot)
                return x->slot < y->slot ? -1 : 1;
        return x->age_ms < y->age_ms ? -1 : x->age_ms > y->age_ms;
}

/* Encodes the slots of the @n renewals in @list. *@ret_n is how many of their leases exist. */
static int encode(const struct core *c, struct core_renewals *list, size_t n, struct buf *out,
                  size_t *ret_n)
{
        cleanup_(freep) struct slot_age *slots = calloc(n, sizeof(*slots));
        struct core_renewal *rn;
        struct cmd_slots s;

        if (!slots)
                return -ENOMEM;
        n = 0;
        TAILQ_FOREACH (rn, list, next) {
                const struct lease *l = core_renewal_lease(c, rn);
                nsec_t age;

                if (!l) {
                        PROBE("a lease ends while its renewal waits for a batch");
                        continue;
                }
                /* The TTL begins when the renewal came; or later, if it is renewed ahead. */
                age = boot_diff(c->now, rn->came_at);
                if (rn->ahead)
                        age = max_of(renew_pace_ahead(&c->pace, l->ttl_ms * NSEC_PER_MSEC) -
                                             age,
                                     (nsec_t) 0);
                age = min_of(age / NSEC_PER_MSEC, (nsec_t) CMD_AGE_MAX);
                slots[n++] = (struct slot_age){l->slot, (unsigned) age};
        }
        qsort(slots, n, sizeof(*slots), slot_cmp);
        cmd_renew_begin(out, &s, c->state.applied);
        for (size_t i = 0; i < n; i++)
                if (i == 0 || slots[i].slot != slots[i - 1].slot)
                        cmd_renew_add(out, &s, slots[i].slot, slots[i].age_ms);
        *ret_n = n;
        return buf_error(out);
}

/* Proposes the renewals of @list, or fails them. */
static void send_batch(struct core *c, enum cmd_type type, struct core_renewals *list,
                       size_t n_early)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct core_renewal *rn;
        struct renew_batch *b;
        size_t n = 0;
        int r;

        TAILQ_FOREACH (rn, list, next)
                n++;
        if (n == 0)
                return;
        b = calloc(1, sizeof(*b));
        r = b ? encode(c, list, n, &body, &n) : -ENOMEM;
        if (r == 0) {
                b->core = c;
                b->write.done = batch_done;
                b->n_early = n_early;
                b->as_of = c->state.applied;
                TAILQ_INIT(&b->items);
                r = core_write(c, &b->write, type, NULL, body.data, buf_len(&body), 0);
        }
        if (r < 0) {
                free(b);
                return core_renewals_fail(c, list, status_too_many);
        }
        renew_pace_proposed(&c->pace);
        histogram_add(&c->counts.batches, &histogram_sizes, n);
        while ((rn = TAILQ_FIRST(list)))
                core_renewal_move(rn, &b->items);
}

/* Proposes what is queued, except for renewals that need no entry any more. In exchange, those
 * in @covered whose surplus is nearly used up go along: leases that are renewed in loops then
 * share entries although their loops began at different times. */
static void send_queued(struct core *c, struct core_renewals *covered)
{
        struct core_renewals plain = TAILQ_HEAD_INITIALIZER(plain),
                             ahead = TAILQ_HEAD_INITIALIZER(ahead);
        struct core_renewal *rn, *next;
        size_t n_early;

        while ((rn = TAILQ_FIRST(&c->queued))) {
                const struct lease *l = core_renewal_lease(c, rn);

                if (l && l->renewed > rn->as_of && renew_pace_ask(&c->pace, left_of(c, l)))
                        core_renewal_move(rn, covered);
                else
                        core_renewal_move(rn, rn->ahead ? &ahead : &plain);
        }
        if (TAILQ_EMPTY(&plain) && TAILQ_EMPTY(&ahead))
                return renew_pace_forget(&c->pace);
        TAILQ_FOREACH_SAFE (rn, covered, next, next) {
                const struct lease *l = core_renewal_lease(c, rn);

                if (l && renew_pace_joins(&c->pace, left_of(c, l))) {
                        rn->ahead = true;
                        core_renewal_move(rn, &ahead);
                }
        }
        n_early = renew_pace_sent(&c->pace, c->now);
        send_batch(c, CMD_RENEW, &plain, n_early);
        send_batch(c, CMD_RENEW_AHEAD, &ahead, 0);
}

void core_renewals_run(struct core *c, bool at_once)
{
        struct core_renewals covered = TAILQ_HEAD_INITIALIZER(covered),
                             unknown = TAILQ_HEAD_INITIALIZER(unknown);

        route(c, &covered, &unknown);
        /* Slots are read only between entries: a slot that is free half-way through an entry
         * may belong to another lease at its end. */
        if (!c->part.on && (at_once || !boot_before(c->now, renew_pace_next(&c->pace))))
                send_queued(c, &covered);
        core_renewals_confirm(c, &covered, true);
        core_renewals_confirm(c, &unknown, false);
}
