#include "session/fencing.h"

#include "base/probe.h"

/* The lead takes at most this share of the TTL. */
#define LEAD_SHARE 4

/* Shares of the lead: for its last half we kill whatever is left, and for its last eighth we
 * freeze it. */
#define KILL_SHARE 2
#define FREEZE_SHARE 8
#define FREEZE_LEAST (20 * NSEC_PER_MSEC)

/* How soon we look again, while the target is stopping, whether it is down; then less and less
 * often, until fencing_settled(): systemd runs jobs only when it has nothing else to do, and
 * answering us keeps it busy. */
#define LOOK_FIRST (10 * NSEC_PER_MSEC)
#define LOOK_MOST (500 * NSEC_PER_MSEC)

#define KILL_AGAIN (20 * NSEC_PER_MSEC)

/* An order that has not been carried out is repeated, at growing intervals. */
#define ORDER_FIRST (50 * NSEC_PER_MSEC)
#define ORDER_MOST NSEC_PER_SEC

/* If the place was lost without warning, nothing has had time to stop: dying takes this
 * long. */
#define DYING (100 * NSEC_PER_MSEC)

/* After it was starved within so many TTLs of coming up, it comes up again only once no renewal
 * has been too slow for one TTL, then for two, four and so on. */
#define SOON 10
#define CALM_MOST 32

void fencing_init(struct fencing *f, const struct fencing_config *cfg, bool up, bool stopping)
{
        /* Even if no earlier life left word of it, something may be up: look before it counts
         * as down. */
        *f = (struct fencing){.cfg = *cfg,
                              .state = up ? FENCING_UP : FENCING_STOPPING,
                              .known = up || stopping,
                              .ordered = stopping,
                              .dirty = stopping,
                              .perhaps_frozen = stopping,
                              .freeze_at = BOOT_TIME_NEVER,
                              .kill_at = BOOT_TIME_NEVER,
                              .patience = ORDER_FIRST,
                              .pace = LOOK_FIRST,
                              .steady_since = BOOT_TIME_NEVER};
}

nsec_t fencing_lead(const struct fencing_config *cfg, nsec_t ttl)
{
        return min_of(cfg->lead, ttl / LEAD_SHARE);
}

nsec_t fencing_stillness(const struct fencing_config *cfg, nsec_t ttl)
{
        nsec_t lead = fencing_lead(cfg, ttl);

        return min_of(max_of(lead / FREEZE_SHARE, FREEZE_LEAST), lead / KILL_SHARE);
}

static bool due(struct boot_time now, struct boot_time when)
{
        return !boot_before(now, when);
}

static bool is_wanted(const struct fencing *f, const struct fencing_place *p,
                      struct boot_time now)
{
        return p->held && !p->leave &&
               boot_before(now, boot_add(p->deadline, -fencing_lead(&f->cfg, p->ttl)));
}

nsec_t fencing_answer_max(const struct fencing_config *cfg, nsec_t ttl)
{
        return ttl / 2 - fencing_lead(cfg, ttl);
}

/* Whether the next renewal would come before the stop, if it were acknowledged at the time of
 * its term at which the last one is, or was. */
static bool is_in_time(const struct fencing *f, const struct fencing_place *p,
                       struct boot_time now)
{
        return boot_diff(p->deadline, now) > p->ttl - fencing_answer_max(&f->cfg, p->ttl);
}

/* Looks at the last renewal, at the moment at which it was acknowledged. */
static void judge(struct fencing *f, const struct fencing_place *p, struct boot_time now)
{
        if (!p->held) {
                f->steady_since = BOOT_TIME_NEVER;
                f->n_slow = 0;
                f->calm = 0;
                f->starved = f->slow = false;
                return;
        }
        if (p->deadline.ns == f->judged.ns)
                return;
        f->judged = p->deadline;
        if (is_in_time(f, p, now)) {
                f->steady_since = boot_min(f->steady_since, now);
                f->n_slow = 0;
                return;
        }
        f->steady_since = BOOT_TIME_NEVER;
        f->n_slow++;
        f->took = p->ttl - boot_diff(p->deadline, now);
        /* A place that is new may have had to wait for its registration. */
        f->slow = f->slow || f->starved || f->n_slow > 1;
}

static bool margin_lasts(const struct fencing *f, const struct fencing_place *p,
                         struct boot_time now)
{
        return is_in_time(f, p, now) && due(now, boot_add(f->steady_since, f->calm));
}

/* Notes that an order is given for the first time; it is repeated from order_again on. */
static void order(struct fencing *f, struct boot_time now)
{
        f->patience = ORDER_FIRST;
        f->order_again = boot_add(now, f->patience);
}

static bool order_is_due(struct fencing *f, struct boot_time now)
{
        if (boot_before(now, f->order_again))
                return false;
        f->patience = min_of(2 * f->patience, ORDER_MOST);
        f->order_again = boot_add(now, f->patience);
        return true;
}

static unsigned look(struct fencing *f, struct boot_time now)
{
        if (f->looking || boot_before(now, f->look_again))
                return 0;
        f->looking = true;
        f->look_again = boot_add(now, f->pace);
        f->pace = min_of(2 * f->pace, LOOK_MOST);
        return FENCING_LOOK;
}

static unsigned open_up(struct fencing *f, struct boot_time now)
{
        f->earlier = f->state == FENCING_UP;
        f->state = FENCING_UP;
        f->known = f->opened = true;
        f->closed = f->found = f->started = f->starved = f->slow = false;
        f->frozen = f->perhaps_frozen = false;
        if (!f->earlier)
                f->up_since = now;
        /* A control group sometimes outlives its unit; if it is still frozen, the unit would
         * start frozen. */
        return FENCING_THAW | FENCING_OPEN | FENCING_START;
}

/* The place is held, but the renewal that is due has not been acknowledged. */
static void starve(struct fencing *f, const struct fencing_place *p, struct boot_time now)
{
        bool soon = boot_diff(now, f->up_since) < SOON * max_of(f->calm, p->ttl);

        f->starved = true;
        f->calm = soon ? min_of(max_of(2 * f->calm, p->ttl), CALM_MOST * p->ttl) : 0;
}

static unsigned begin_to_stop(struct fencing *f, const struct fencing_place *p,
                              struct boot_time now)
{
        if (p->held && !p->leave && !f->closed)
                starve(f, p, now);
        f->state = FENCING_STOPPING;
        f->began = now;
        f->deadline = p->held ? p->deadline : now;
        f->lost = f->killed = f->alarmed = f->leftover = f->accepted = false;
        f->dirty = f->ordered = true;
        f->stale = f->looking; /* a look begun before the stop says nothing about it */
        order(f, now);
        fencing_settled(f);
        return FENCING_CLOSE | FENCING_STOP;
}

/* Sets the times that count back from the deadline; a renewal moves them. */
static void set_times(struct fencing *f, const struct fencing_place *p)
{
        nsec_t lead = fencing_lead(&f->cfg, p->ttl);

        f->deadline = p->deadline;
        f->kill_at = boot_add(p->deadline, -lead / KILL_SHARE);
        f->freeze_at = boot_add(p->deadline, -fencing_stillness(&f->cfg, p->ttl));
}

static bool reboots(const struct fencing *f)
{
        return f->cfg.reboot && !f->found;
}

static unsigned press(struct fencing *f, const struct fencing_place *p, struct boot_time now)
{
        unsigned acts = 0;

        if (p->held && !f->lost) {
                set_times(f, p);
        } else if (f->known && !f->lost) {
                f->lost = true;
                if (f->began.ns == 0) /* an earlier life began it, or nobody did */
                        f->began = f->deadline = now;
                f->deadline = boot_min(f->deadline, now);
                f->kill_again = now;
        }
        if (f->lost) {
                /* A unit that starts meanwhile may be in a new control group. */
                if (due(now, f->kill_again)) {
                        f->kill_again = boot_add(now, KILL_AGAIN);
                        f->frozen = true;
                        acts |= FENCING_FREEZE | (f->accepted ? FENCING_KILL : 0);
                }
        } else if (p->held) {
                struct boot_time still_at = f->accepted ? f->freeze_at : f->kill_at;

                if (!due(now, f->kill_at)) {
                        f->killed = false;
                } else if (f->accepted && !f->killed) {
                        f->killed = true;
                        acts |= FENCING_KILL;
                }
                if (!f->frozen && due(now, still_at)) {
                        f->frozen = true;
                        acts |= FENCING_FREEZE;
                } else if ((f->frozen || f->perhaps_frozen) && !due(now, still_at)) {
                        f->frozen = f->perhaps_frozen = false;
                        acts |= FENCING_THAW;
                }
        }
        if (f->leftover && !f->lost && due(now, f->kill_again)) {
                f->kill_again = boot_add(now, KILL_AGAIN);
                acts |= FENCING_KILL;
        }
        if (f->ordered && order_is_due(f, now))
                acts |= FENCING_STOP | (f->alarmed && reboots(f) ? FENCING_REBOOT : 0);
        if (f->lost && !f->alarmed &&
            due(now, boot_max(f->deadline, boot_add(f->began, DYING)))) {
                f->alarmed = true;
                acts |= FENCING_ALARM | (reboots(f) ? FENCING_REBOOT : 0);
        }
        return acts | look(f, now);
}

unsigned fencing_next(struct fencing *f, const struct fencing_place *p, struct boot_time now)
{
        bool wanted = is_wanted(f, p, now);
        unsigned acts = 0;

        if (f->state == FENCING_DOWN && f->dirty) {
                acts |= FENCING_FORGET | (f->frozen || f->perhaps_frozen ? FENCING_THAW : 0);
                f->dirty = f->frozen = f->perhaps_frozen = false;
        }
        judge(f, p, now);
        if (wanted && f->state == FENCING_DOWN && margin_lasts(f, p, now)) {
                PROBE_IF(f->calm > 0, "units start after a time without slow renewals");
                order(f, now);
                return acts | open_up(f, now);
        }
        if (wanted && f->state == FENCING_UP && !f->opened && order_is_due(f, now))
                return acts | open_up(f, now);
        if (f->state == FENCING_UP && (!wanted || f->closed))
                acts |= begin_to_stop(f, p, now);
        if (f->state == FENCING_STOPPING)
                acts |= press(f, p, now);
        else if (f->state == FENCING_UP && f->opened && !f->started && due(now, f->order_again))
                acts |= (order_is_due(f, now) ? FENCING_START : 0) | look(f, now);
        return acts;
}

void fencing_saw(struct fencing *f, enum fencing_sight s)
{
        if (f->stale)
                s = FENCING_SAW_NOTHING;
        f->looking = f->stale = false;
        f->leftover = s == FENCING_SAW_LEFTOVER;
        if (f->leftover) /* nobody reports when a process ends */
                f->pace = LOOK_FIRST;
        if (f->state == FENCING_UP) {
                f->started |= s == FENCING_SAW_STARTED;
                return;
        }
        if (f->state != FENCING_STOPPING)
                return;
        if (s == FENCING_SAW_DOWN) {
                f->state = FENCING_DOWN;
                f->lost = false;
                f->known = false;
        } else if (s != FENCING_SAW_NOTHING && !f->known) {
                /* It is up without a place and without a gate, so it must not run. At boot the
                 * units that wait for us are inactive, and a stop would cancel their start:
                 * hence we look before we order it. */
                f->known = f->found = f->ordered = f->dirty = true;
        }
}

void fencing_settled(struct fencing *f)
{
        f->pace = LOOK_FIRST;
        f->look_again.ns = 0;
}

void fencing_accepted(struct fencing *f)
{
        f->accepted |= f->state == FENCING_STOPPING;
        f->kill_again.ns = 0; /* kill at once, if at all */
}

void fencing_barred(struct fencing *f)
{
        if (f->state != FENCING_UP)
                return;
        /* What an earlier life has left up is up without our gate as well: it is stopped like
         * everything else when the place ends, and until then the gate is tried again. */
        f->state = f->earlier ? FENCING_UP : FENCING_DOWN;
        f->opened = false;
}

void fencing_closed(struct fencing *f)
{
        f->closed = f->state == FENCING_UP && f->opened;
}

void fencing_unsure(struct fencing *f)
{
        f->started = false;
}

bool fencing_is_held_back(const struct fencing *f, const struct fencing_place *p)
{
        return f->state == FENCING_DOWN && p->held && !p->leave && f->slow;
}

bool fencing_is_down(const struct fencing *f)
{
        return f->state == FENCING_DOWN && !f->dirty;
}

struct boot_time fencing_wakeup(const struct fencing *f, const struct fencing_place *p,
                                struct boot_time now)
{
        struct boot_time next;

        switch (f->state) {
        case FENCING_DOWN:
                return BOOT_TIME_NEVER;
        case FENCING_UP:
                if (!is_wanted(f, p, now) || f->closed)
                        return now;
                return boot_min(boot_add(p->deadline, -fencing_lead(&f->cfg, p->ttl)),
                                f->started ? BOOT_TIME_NEVER : f->order_again);
        case FENCING_STOPPING:
                break;
        }
        next = f->looking ? BOOT_TIME_NEVER : f->look_again;
        if (f->ordered)
                next = boot_min(next, f->order_again);
        if (f->lost || f->leftover)
                next = boot_min(next, f->kill_again);
        if (f->lost && !f->alarmed)
                next = boot_min(next, boot_add(f->began, DYING));
        if (boot_before(now, f->kill_at))
                next = boot_min(next, f->kill_at);
        if (boot_before(now, f->freeze_at))
                next = boot_min(next, f->freeze_at);
        if (boot_before(now, f->deadline))
                next = boot_min(next, f->deadline);
        return next;
}
