#include "member/world.h"

enum world_word world_judge(const struct world *w, uint64_t cluster, bool held, bool replaced,
                            struct boot_time now)
{
        if (w->cluster == 0 || cluster == w->cluster)
                return WORLD_OURS;
        if (replaced)
                return WORLD_NEW;
        if (held || boot_diff(now, w->heard_at) < WORLD_PATIENCE)
                return WORLD_FOREIGN;
        return WORLD_NEW;
}

bool world_hear(struct world *w, uint64_t cluster, int64_t revision, struct boot_time now)
{
        w->cluster = cluster;
        w->heard_at = now;
        w->revision = max_of(w->revision, revision);
        return revision < w->before;
}

void world_renewal(struct world *w)
{
        w->before = w->last;
        w->last = w->revision;
}

void world_begin(struct world *w, uint64_t cluster, int64_t revision, struct boot_time now)
{
        *w = (struct world){.cluster = cluster, .revision = revision, .heard_at = now};
}
