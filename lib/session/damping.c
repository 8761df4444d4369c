#include "session/damping.h"

#include "base/probe.h"

bool damping_lost(struct damping *d, const struct damping_config *cfg, struct boot_time now)
{
        unsigned limit = min_of(cfg->limit, (unsigned) DAMPING_LIMIT_MAX);
        size_t gone = 0;

        if (limit == 0)
                return false;
        while (gone < d->n && boot_diff(now, d->losses[gone]) > cfg->window)
                gone++;
        PROBE_IF(gone > 0, "a loss of the place is so old that it counts no more");
        if (gone == 0 && d->n == DAMPING_LIMIT_MAX)
                gone = 1;
        d->n -= gone;
        memmove(d->losses, d->losses + gone, d->n * sizeof(d->losses[0]));
        d->losses[d->n++] = now;
        if (d->n < limit)
                return false;
        d->n = 0;
        d->until = boot_add(now, cfg->suppress);
        return true;
}

void damping_forgive(struct damping *d)
{
        *d = (struct damping){0};
}
