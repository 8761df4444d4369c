/* Renewals, in batches: how waiting renewals become one command (pace.h decides when), and how
 * each is answered. */
#include "base/probe.h"
#include "core/internal.h"
#include "state/names.h"

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

static void look_up(struct core *c, struct core_renewal *rn);

/* Looks it up by slot: for 10,000 renewals, a look-up by id would cost more than all the
 * rest. */
struct lease *core_renewed_lease(const struct core *c, const struct core_renewal *rn)
{
        struct lease *l = leases_at(&c->state.leases, rn->slot);

        return l && l->id == rn->lease ? l : leases_find(&c->state.leases, rn->lease);
}

/* The answer to a renewal by name must refer to a time at which the lease had that name. */
bool core_renewal_goes_on(struct core *c, struct core_renewal *rn, struct lease **l)
{
        if (rn->name.len == 0)
                return false;
        *l = names_find(&c->state, &rn->name);
        if (!*l || (*l)->id == rn->lease)
                return false;
        PROBE("a name belongs to another lease when its renewal is applied");
        rn->lease = (*l)->id;
        core_renewal_enqueue(c, rn, *l);
        return true;
}

static void enqueue(struct core *c, struct core_renewals *list, struct core_renewal *rn,
                    const struct lease *l, struct renew_left t)
{
        rn->slot = l->slot;
        rn->ahead = renew_pace_arrived(&c->pace, t, c->now);
        STAILQ_INSERT_TAIL(list, rn, next);
}

void core_renewal_enqueue(struct core *c, struct core_renewal *rn, const struct lease *l)
{
        enqueue(c, &c->fresh, rn, l, core_renew_left(c, l));
}

/* A renewal asks for a confirmation, or is queued in @list. */
static void ask_or_queue(struct core *c, struct core_renewals *list, struct core_renewal *rn,
                         const struct lease *l, struct renew_left t)
{
        if (!core_take_covered(c, rn, l, t))
                enqueue(c, list, rn, l, t);
}

static void look_again_at(struct core *c, struct core_renewals *waiting,
                          struct core_renewals *list)
{
        struct core_renewal *rn;

        while ((rn = STAILQ_FIRST(waiting))) {
                const struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(waiting, next);
                if (l)
                        ask_or_queue(c, list, rn, l, core_renew_left(c, l));
                else
                        look_up(c, rn);
        }
}

/* Leases have been renewed ahead, which may cover some of the waiting renewals. */
static void look_again(struct core *c)
{
        struct core_renewals waiting = STAILQ_HEAD_INITIALIZER(waiting),
                             fresh = STAILQ_HEAD_INITIALIZER(fresh);

        STAILQ_CONCAT(&waiting, &c->renewals);
        STAILQ_CONCAT(&fresh, &c->fresh);
        renew_pace_forget(&c->pace);
        look_again_at(c, &waiting, &c->renewals);
        look_again_at(c, &fresh, &c->fresh);
}

void core_renewals_fail(struct core_renewals *list, struct status st)
{
        struct core_renewal *rn;

        while ((rn = STAILQ_FIRST(list))) {
                STAILQ_REMOVE_HEAD(list, next);
                rn->done(rn, st, 0);
        }
}

static void batch_done(struct core_write *w, struct status st, struct view reply)
{
        struct renew_batch *b = container_of(w, struct renew_batch, write);
        struct core *c = b->core;
        struct core_renewal *rn;

        (void) reply;
        if (st.code != RPC_OK)
                core_renewals_fail(&b->items, st);
        while ((rn = STAILQ_FIRST(&b->items))) {
                /* Answer with the TTL in the applied state: for a lease that is gone, it is
                 * never positive (I7). */
                struct lease *l = core_renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(&b->items, next);
                if (core_renewal_goes_on(c, rn, &l))
                        continue;
                if (l && l->born > b->as_of) { /* its id was granted again */
                        PROBE("a lease's id is granted again while its renewal is under way");
                        core_renewal_enqueue(c, rn, l);
                } else {
                        rn->done(rn, st, l ? l->ttl_ms : 0);
                }
        }
        renew_pace_answered(&c->pace, c->now);
        if (b->write.type == CMD_RENEW)
                renew_pace_crowd(&c->pace, b->n_early);
        else if (st.code == RPC_OK)
                look_again(c);
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

/* c->now may be older than a renewal, whose TTL must not begin before it arrived. So the
 * renewal is stamped with the next time that we are given. */
void core_pass_time(struct core *c, struct boot_time now)
{
        struct core_renewal *rn;

        c->now = boot_max(c->now, now);
        STAILQ_FOREACH (rn, &c->fresh, next)
                rn->came_at = c->now;
        STAILQ_CONCAT(&c->renewals, &c->fresh);
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
        STAILQ_FOREACH (rn, list, next) {
                const struct lease *l = core_renewed_lease(c, rn);
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

/* Proposes the @n renewals of @list, or fails them. */
static void send_batch(struct core *c, enum cmd_type type, struct core_renewals *list, size_t n,
                       size_t n_early)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct renew_batch *b = calloc(1, sizeof(*b));
        int r = b ? encode(c, list, n, &body, &n) : -ENOMEM;

        if (r == 0) {
                b->core = c;
                b->write.done = batch_done;
                b->n_early = n_early;
                b->as_of = c->state.applied;
                STAILQ_INIT(&b->items);
                r = core_write(c, &b->write, type, NULL, body.data, buf_len(&body), 0);
        }
        if (r == 0) {
                renew_pace_proposed(&c->pace);
                histogram_add(&c->counts.batches, &histogram_sizes, n);
                STAILQ_CONCAT(&b->items, list);
                return;
        }
        free(b);
        core_renewals_fail(list, status_too_many);
}

void core_renewals_send(struct core *c)
{
        struct core_renewals plain = STAILQ_HEAD_INITIALIZER(plain),
                             ahead = STAILQ_HEAD_INITIALIZER(ahead);
        size_t n_plain = 0, n_ahead = 0, n_early;
        struct core_renewal *rn;

        core_covered_join(c);
        core_pass_time(c, c->now); /* some came in this turn, after their lease was looked up */
        while ((rn = STAILQ_FIRST(&c->renewals))) {
                STAILQ_REMOVE_HEAD(&c->renewals, next);
                STAILQ_INSERT_TAIL(rn->ahead ? &ahead : &plain, rn, next);
                n_plain += !rn->ahead;
                n_ahead += rn->ahead;
        }
        n_early = renew_pace_sent(&c->pace, c->now);
        if (n_plain > 0)
                send_batch(c, CMD_RENEW, &plain, n_plain, n_early);
        if (n_ahead > 0)
                send_batch(c, CMD_RENEW_AHEAD, &ahead, n_ahead, 0);
}

static void arrive(struct core *c, struct core_renewal *rn, const struct lease *l)
{
        struct renew_left t = core_renew_left(c, l);

        if (t.ttl > 0)
                histogram_add(&c->counts.left, &core_left_shape,
                              t.left > 0
                                      ? (uint64_t) (min_of(t.left, t.ttl) / (t.ttl / 1000 + 1))
                                      : 0);
        ask_or_queue(c, &c->fresh, rn, l, t);
}

static struct lease *find_renewed(struct core *c, struct core_renewal *rn)
{
        struct lease *l;

        if (rn->name.len == 0)
                return core_renewed_lease(c, rn);
        l = names_find(&c->state, &rn->name);
        rn->lease = l ? l->id : 0;
        return l;
}

static void renewal_looked_up(struct core_read *rd, struct status st)
{
        struct core_renewal *rn = container_of(rd, struct core_renewal, read);
        struct lease *l;

        if (st.code != RPC_OK)
                return rn->done(rn, st, 0);
        l = find_renewed(rn->core, rn);
        if (!l)
                return rn->done(rn, status_ok, 0);
        arrive(rn->core, rn, l);
}

/* The lease may have been granted a moment ago through another replica (A22), so it is gone
 * only if the leader's log says so. */
static void look_up(struct core *c, struct core_renewal *rn)
{
        rn->read.done = renewal_looked_up;
        core_read(c, &rn->read, 0);
}

void core_renew(struct core *c, struct core_renewal *rn)
{
        struct lease *l = find_renewed(c, rn);

        rn->core = c;
        if (l)
                arrive(c, rn, l);
        else
                look_up(c, rn);
}
