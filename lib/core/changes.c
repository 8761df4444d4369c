#include "core/changes.h"

#include "base/probe.h"

#define ASK_AGAIN (300 * NSEC_PER_MSEC)

static void end(struct changes *c, struct core_change *ch, int outcome)
{
        shares_give(c->shares, POT_CHANGES, ch->by, 1);
        LIST_REMOVE(ch, next);
        ch->done(ch, outcome);
}

int changes_ask(struct changes *c, struct core_change *ch, struct boot_time now, nsec_t timeout)
{
        if (!shares_take(c->shares, POT_CHANGES, ch->by, 1))
                return -ENOBUFS;
        ch->request = ++c->requests;
        ch->asked = 1;
        ch->refused = 0;
        ch->deadline = boot_add(now, timeout);
        ch->ask_at = boot_add(now, ASK_AGAIN);
        LIST_INSERT_HEAD(&c->list, ch, next);
        replica_change_members(c->replica, ch->request, ch->what, ch->id, ch->address);
        return 0;
}

/* Whether @outcome shows that an earlier request, whose answer was lost, made the change. A
 * refused request changes nothing. */
static bool done_already(const struct core_change *ch, int outcome)
{
        if (ch->asked <= ch->refused + 1)
                return false;
        switch (ch->what) {
        case REPLICA_PROMOTE:
                return outcome == REPLICA_E_VOTER;
        case REPLICA_REMOVE:
                return outcome == REPLICA_E_UNKNOWN;
        case REPLICA_ADD: /* if an earlier request added the member, the leader reports success;
                           * any error is a real one */
        case REPLICA_ADD_LEARNER:
        case REPLICA_MOVE:
        case REPLICA_REPLACE:
        case REPLICA_REPLACE_LOST:
                return false;
        }
        return false;
}

void changes_answered(struct changes *c, uint64_t request, int outcome)
{
        struct core_change *ch;

        LIST_FOREACH (ch, &c->list, next) {
                if (ch->request != request)
                        continue;
                /* BUSY means that nothing was proposed; after NO_LEADER the change may be made.
                 * In both cases the request is repeated later. */
                ch->refused += outcome == REPLICA_E_BUSY;
                PROBE_IF(done_already(ch, outcome),
                         "a change of members was made by an earlier request");
                if (outcome == REPLICA_E_NO_LEADER || outcome == REPLICA_E_BUSY)
                        return;
                return end(c, ch, done_already(ch, outcome) ? 0 : outcome);
        }
}

void changes_removed(struct changes *c, uint64_t id)
{
        struct core_change *ch, *next;

        LIST_FOREACH_SAFE (ch, &c->list, next, next)
                if (ch->what == REPLICA_REMOVE && ch->id == id)
                        end(c, ch, 0);
}

void changes_run(struct changes *c, struct boot_time now)
{
        struct core_change *ch, *next;

        LIST_FOREACH_SAFE (ch, &c->list, next, next) {
                if (!boot_before(now, ch->deadline)) {
                        end(c, ch, REPLICA_E_NO_LEADER);
                } else if (!boot_before(now, ch->ask_at)) {
                        ch->ask_at = boot_add(now, ASK_AGAIN);
                        ch->asked++;
                        replica_change_members(c->replica, ch->request, ch->what, ch->id,
                                               ch->address);
                        return; /* the replica may have answered at once, which changes the
                                 * list */
                }
        }
}

struct boot_time changes_next(const struct changes *c)
{
        struct boot_time next = BOOT_TIME_NEVER;
        const struct core_change *ch;

        LIST_FOREACH (ch, &c->list, next)
                next = boot_min(next, boot_min(ch->ask_at, ch->deadline));
        return next;
}

void changes_end(struct changes *c)
{
        struct core_change *ch;

        while ((ch = LIST_FIRST(&c->list)))
                end(c, ch, REPLICA_E_NO_LEADER);
}
