#include "etcd/revision_times.h"

size_t revision_times_kept(const struct revision_times *t)
{
        return min_of(t->n, (size_t) REVISION_TIMES);
}

const struct revision_time *revision_times_at(const struct revision_times *t, size_t i)
{
        return &t->ring[(t->n - revision_times_kept(t) + i) % REVISION_TIMES];
}

void revision_times_note(struct revision_times *t, int64_t revision, struct boot_time now)
{
        struct revision_time *last = t->n > 0 ? &t->ring[(t->n - 1) % REVISION_TIMES] : NULL;

        if (last && revision == last->revision)
                return;
        if (last && revision < last->revision)
                t->n = 0;
        if (t->n > 1 && boot_diff(now, last->at) < NSEC_PER_SEC)
                last->revision = revision;
        else
                t->ring[t->n++ % REVISION_TIMES] = (struct revision_time){revision, now};
}
