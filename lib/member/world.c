#include "member/world.h"

bool world_is_present(const struct world *w, bool held, struct boot_time now)
{
        return w->cluster != 0 && (held || boot_diff(now, w->heard_at) < WORLD_PATIENCE);
}

enum world_word world_judge(const struct world *w, const struct world_case *c,
                            struct boot_time now)
{
        /* Our ancestor, or another that descends from it. */
        bool kin =
                w->ancestor != 0 && (c->cluster == w->ancestor || c->ancestor == w->ancestor);

        if (w->cluster == 0 || c->cluster == w->cluster)
                return WORLD_OURS;
        if (c->ancestor == w->cluster)
                return (c->held ? c->overdue : !world_is_present(w, false, now))
                               ? WORLD_HEIR
                               : WORLD_FOREIGN;
        if (c->replaced && !(kin && c->held))
                return WORLD_NEW;
        return world_is_present(w, c->held, now) ? WORLD_FOREIGN : WORLD_NEW;
}

bool world_hear(struct world *w, uint64_t cluster, uint64_t ancestor, int64_t revision,
                struct boot_time now)
{
        w->cluster = cluster;
        if (ancestor != 0) /* perhaps not all of its replicas know the ancestor */
                w->ancestor = ancestor;
        w->heard_at = now;
        w->revision = max_of(w->revision, revision);
        return revision < w->before;
}

void world_renewal(struct world *w)
{
        w->before = w->last;
        w->last = w->revision;
}

void world_begin(struct world *w, uint64_t cluster, uint64_t ancestor, int64_t revision,
                 struct boot_time now)
{
        *w = (struct world){.cluster = cluster,
                            .ancestor = ancestor,
                            .revision = revision,
                            .heard_at = now};
}
