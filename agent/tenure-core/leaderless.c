#include "leaderless.h"

#include <inttypes.h>

#include "base/log.h"

#define FIRST (10 * NSEC_PER_SEC)
#define AGAIN (60 * NSEC_PER_SEC)

struct counted {
        const struct leaderless *l;
        unsigned n, reached;
};

static void count(uint64_t id, const char *address, bool voter, void *arg)
{
        struct counted *c = arg;

        (void) address;
        if (!voter)
                return;
        c->n++;
        c->reached += id == core_config(c->l->core)->member_id || links_are_up(c->l->links, id);
}

static void on_timer(struct loop_timer *t)
{
        struct leaderless *l = container_of(t, struct leaderless, timer);
        struct counted c = {.l = l};

        replica_each_peer(core_replica(l->core), count, &c);
        log_warning("No leader for %" PRId64
                    " s: of the %u voters that this replica knows, it can reach %u (itself "
                    "included), and an election needs %u. Check that the others are running "
                    "and do not refuse this replica; if it was removed from the cluster, its "
                    "data directory can be deleted.",
                    boot_diff(loop_now(t->loop), l->since) / NSEC_PER_SEC, c.n, c.reached,
                    c.n / 2 + 1);
        loop_timer_in(t, AGAIN);
}

void leaderless_start(struct leaderless *l, struct loop *loop, struct core *core,
                      const struct links *links)
{
        *l = (struct leaderless){.core = core, .links = links, .since = BOOT_TIME_NEVER};
        loop_timer_init(&l->timer, loop, on_timer);
        leaderless_changed(l, core_status(core).leader_id != 0);
}

void leaderless_fini(struct leaderless *l)
{
        if (l->timer.loop)
                loop_timer_disarm(&l->timer);
}

void leaderless_changed(struct leaderless *l, bool there)
{
        if (!l->timer.loop || there == (l->since.ns == BOOT_TIME_NEVER.ns))
                return;
        loop_timer_disarm(&l->timer);
        l->since = there ? BOOT_TIME_NEVER : loop_now(l->timer.loop);
        if (!there)
                loop_timer_in(&l->timer, FIRST);
}
