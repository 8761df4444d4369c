/* A replica's disk as the replica sees it: the simulated disk, which also reports new files to
 * seen.c and writes to trace.c, whose memory is not the replica's, and which in some worlds
 * fails at any call. */
#include "world.h"

#define BREAKS_INSTALL 5

struct watched_disk {
        struct disk base;
        struct disk *under;
        struct replica_node *node;
};

static struct watched_disk *watched(struct disk *d)
{
        return container_of(d, struct watched_disk, base);
}

/* A file is about to change. */
static void traced(struct disk *d, const char *name, uint64_t number)
{
        trace_add(W, TRACED_DISK, watched(d)->node->i, name, strlen(name));
        trace_add(W, TRACED_DISK, watched(d)->node->i, &number, sizeof(number));
}

/* Whether the call is to fail with EIO. Few calls install a snapshot, so these fail more often.
 */
static bool breaks(struct disk *d)
{
        struct replica_node *n = watched(d)->node;
        uint64_t in = W->breaks_in;

        if (in == 0 || W->calm || W->now < BREAKS_FROM)
                return false;
        if (n->seen.installing)
                in = min_of(in, (uint64_t) BREAKS_INSTALL);
        if (rnd_between(&W->damage, 1, in) > 1)
                return false;
        n->io_errors++;
        W->counts.io_errors++;
        W->met.install_error += n->seen.installing;
        return true;
}

/* Like breaks(), for a call that changes something: half of the time it is carried out
 * nevertheless. */
static bool breaks_before(struct disk *d, bool *ret_after)
{
        bool b = breaks(d);

        *ret_after = b && rnd_between(&W->damage, 0, 1);
        return b && !*ret_after;
}

static int watched_list(struct disk *d, disk_list_fn fn, void *arg)
{
        if (breaks(d))
                return -EIO;
        d = watched(d)->under; /* allocates nothing */
        return d->ops->list(d, fn, arg);
}

static int watched_read(struct disk *d, const char *name, size_t most, struct buf *out)
{
        if (breaks(d))
                return -EIO;
        d = watched(d)->under; /* into the replica's memory */
        return d->ops->read(d, name, most, out);
}

static int watched_sync(struct disk *d, const char *name)
{
        MEMORY(MEMORY_OURS);

        if (breaks(d))
                return -EIO;
        d = watched(d)->under;
        return d->ops->sync(d, name);
}

static int watched_create(struct disk *d, const char *name, size_t size)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        seen_file(W, watched(d)->node, name);
        traced(d, name, size);
        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->create(d, name, size);
        return after ? -EIO : r;
}

static int watched_write(struct disk *d, const char *name, uint64_t offset, const void *p,
                         size_t n)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        if (offset == 0)
                seen_file(W, watched(d)->node, name);
        traced(d, name, offset);
        trace_add(W, TRACED_DISK, watched(d)->node->i, p, n);
        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->write(d, name, offset, p, n);
        return after ? -EIO : r;
}

static int watched_reserve(struct disk *d, const char *name, size_t size, size_t *ret_was)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->reserve(d, name, size, ret_was);
        return after ? -EIO : r;
}

static int watched_cut(struct disk *d, const char *name, size_t size)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        traced(d, name, size);
        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->cut(d, name, size);
        return after ? -EIO : r;
}

static int watched_rename(struct disk *d, const char *from, const char *to)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        seen_file(W, watched(d)->node, to);
        traced(d, to, 0);
        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->rename(d, from, to);
        return after ? -EIO : r;
}

static int watched_remove(struct disk *d, const char *name)
{
        MEMORY(MEMORY_OURS);
        bool after;
        int r;

        traced(d, name, 0);
        if (breaks_before(d, &after))
                return -EIO;
        d = watched(d)->under;
        r = d->ops->remove(d, name);
        return after ? -EIO : r;
}

static void watched_submit(struct disk *d, struct disk_job *job)
{
        MEMORY(MEMORY_OURS);

        d = watched(d)->under;
        d->ops->submit(d, job);
}

static void watched_submit_aside(struct disk *d, struct disk_job *job)
{
        MEMORY(MEMORY_OURS);

        d = watched(d)->under;
        d->ops->submit_aside(d, job);
}

static struct disk *watched_free(struct disk *d)
{
        disk_free(watched(d)->under);
        free(watched(d));
        return NULL;
}

struct disk *watched_disk_new(struct disk *under, struct replica_node *n)
{
        static const struct disk_ops ops = {
                .list = watched_list,
                .read = watched_read,
                .sync = watched_sync,
                .create = watched_create,
                .write = watched_write,
                .reserve = watched_reserve,
                .cut = watched_cut,
                .rename = watched_rename,
                .remove = watched_remove,
                .submit = watched_submit,
                .submit_aside = watched_submit_aside,
                .free = watched_free,
        };
        struct watched_disk *d = calloc(1, sizeof(*d));

        if (!d)
                abort();
        d->base.ops = &ops;
        d->under = under;
        d->node = n;
        return &d->base;
}
