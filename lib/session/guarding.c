#include "session/guarding.h"

/* How long an agent that has returned must last before the guard trusts it, and how soon the
 * guard looks again at what it could not read. */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

/* From the deadline on, a living agent has this long to bring down everything; freezing alone
 * does not. */
#define TAKE_OVER (200 * NSEC_PER_MSEC)
#define FREEZE_AGAIN (20 * NSEC_PER_MSEC)

void guarding_init(struct guarding *g, nsec_t extend_each)
{
        *g = (struct guarding){.extend_each = extend_each};
}

/* Ends the fence, if there is one. */
static unsigned release(struct guarding *g, enum guarding_state state)
{
        bool fenced = g->state == GUARDING_FROZEN || g->state == GUARDING_ACTING;

        g->state = state;
        return fenced ? GUARDING_RELEASE : 0;
}

/* The guard needs more time to stop while the deadline is still ahead. */
static unsigned extend(struct guarding *g, const struct guarding_sight *s, struct boot_time now,
                       struct boot_time *again)
{
        unsigned acts = 0;

        if (!s->ending || !s->place.held)
                return 0;
        if (!boot_before(now, g->extend_at)) {
                g->extend_at = boot_add(now, g->extend_each);
                acts = GUARDING_EXTEND;
        }
        *again = boot_min(*again, g->extend_at);
        return acts;
}

static unsigned act(struct guarding *g, const struct guarding_sight *s, struct boot_time now,
                    struct boot_time *again)
{
        g->state = GUARDING_ACTING;
        if (s->place.held) /* otherwise the fence says when to run it again */
                *again = boot_add(now, LOOK_AGAIN);
        return GUARDING_RUN | extend(g, s, now, again);
}

static unsigned watch(struct guarding *g, const struct guarding_sight *s,
                      const struct fencing_config *cfg, struct boot_time now,
                      struct boot_time *again)
{
        const struct fencing_place *p = &s->place;
        struct boot_time freeze_at = boot_add(p->deadline, -fencing_stillness(cfg, p->ttl));
        unsigned acts = 0;

        if (!s->known) { /* it may be being written; or /run is full */
                *again = boot_add(now, LOOK_AGAIN);
                return 0;
        }
        if (!g->thawed && s->gate == GUARDING_OPEN &&
            boot_before(now, boot_add(p->deadline, -fencing_lead(cfg, p->ttl))))
                acts |= GUARDING_THAW;
        if (boot_before(now, freeze_at)) {
                *again = freeze_at;
                acts |= release(g, GUARDING_WATCHING) | GUARDING_SPARE;
                return acts | extend(g, s, now, again);
        }
        g->state = GUARDING_FROZEN;
        *again = boot_add(now, FREEZE_AGAIN);
        acts |= GUARDING_FREEZE;
        if (!boot_before(now, boot_add(p->deadline, TAKE_OVER)))
                acts |= act(g, s, now, again);
        return acts;
}

unsigned guarding_next(struct guarding *g, const struct guarding_sight *s,
                       const struct fencing_config *cfg, struct boot_time now,
                       struct boot_time *ret_again)
{
        bool in_order = s->gate == GUARDING_OPEN && s->place.held;
        unsigned acts = 0;

        *ret_again = BOOT_TIME_NEVER;
        if (s->gate == GUARDING_CLOSED)
                return release(g, GUARDING_ASLEEP) | GUARDING_SPARE |
                       (s->ending ? GUARDING_EXIT : 0);
        /* At a shutdown agent and guard both get SIGTERM. End only if the agent is not stopping
         * units. */
        if (s->ending && s->agent_lives && s->gate == GUARDING_OPEN)
                return GUARDING_EXIT;
        if (s->restarting && in_order && g->state != GUARDING_FROZEN)
                return GUARDING_EXIT;
        /* An agent that has opened the gate again, or continues to renew, decides again. */
        if (g->state == GUARDING_ACTING && s->agent_lives && in_order)
                acts = release(g, GUARDING_WATCHING);
        if (s->agent_lives && g->state != GUARDING_ACTING)
                return acts | watch(g, s, cfg, now, ret_again);
        return act(g, s, now, ret_again);
}

void guarding_thawed(struct guarding *g)
{
        g->thawed = true;
}

void guarding_down(struct guarding *g)
{
        g->state = GUARDING_ASLEEP;
}
