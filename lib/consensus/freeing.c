/*
 * Memory that is no longer needed and may be large: the bytes of snapshots, entries that the
 * log has dropped, and a log that a snapshot has replaced. It is freed in slices between other
 * work.
 */
#include "consensus/internal.h"

#define BYTES ((size_t) 16 << 20) /* of a blob, at once: less than 1 ms */
#define ENTRIES 4096              /* of a log, the same */
#define PAUSE (2 * NSEC_PER_MSEC)

void freeing_add(struct replica *r, struct blob *data)
{
        SLIST_INSERT_HEAD(&r->freeing.blobs, data, entry);
}

/* Snapshots are not installed within milliseconds of each other, so there is rarely another log
 * to free. */
void freeing_add_log(struct replica *r, struct log *l)
{
        log_fini(&r->freeing.log);
        r->freeing.log = *l;
        log_trim(&r->freeing.log, log_last(l));
        *l = (struct log){0};
}

static struct blob *unused(const struct replica *r)
{
        struct blob *b;

        SLIST_FOREACH (b, &r->freeing.blobs, entry)
                if (b->n_holders == 1)
                        return b;
        return NULL;
}

static bool has_entries(const struct replica *r)
{
        return r->freeing.log.gone > 0 || r->log.gone > 0;
}

void freeing_run(struct replica *r)
{
        struct log *l = r->freeing.log.gone > 0 ? &r->freeing.log : &r->log;
        struct blob *b = unused(r);

        if (boot_before(r->now, freeing_next(r)))
                return;
        r->freeing.at = boot_add(r->now, PAUSE);
        if (has_entries(r)) {
                log_free_gone(l, ENTRIES);
                if (r->freeing.log.gone == 0)
                        log_fini(&r->freeing.log);
        } else if (blob_shrink(b, BYTES) == 0) {
                SLIST_REMOVE(&r->freeing.blobs, b, blob, entry);
                blob_free(b);
        }
}

struct boot_time freeing_next(const struct replica *r)
{
        return has_entries(r) || unused(r) ? r->freeing.at : BOOT_TIME_NEVER;
}

void freeing_fini(struct replica *r)
{
        struct blob *b;

        log_fini(&r->freeing.log);
        while ((b = SLIST_FIRST(&r->freeing.blobs))) {
                SLIST_REMOVE_HEAD(&r->freeing.blobs, entry);
                blob_free(b);
        }
}
