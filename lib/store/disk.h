/*
 * The disk as the store sees it: named files in one directory. This is the seam for simulation,
 * which replaces it by a disk that stalls, tears writes and loses what was not synced.
 *
 * The calls block until the bytes are durable. Those marked "job" may run in the worker's
 * thread; the others are for start-up and for term and vote.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"

struct disk;

/* Work for the disk's own thread: `run` there, `done` back in the loop, in order of submission.
 * Embedded. */
struct disk_job {
        void (*run)(struct disk_job *job);
        void (*done)(struct disk_job *job);
        void (*drop)(struct disk_job *job); /* instead of `done`, when the disk goes first */
        void *impl[7];                      /* the implementation's own */
        /* Of a disk that measures: for `done`, how long `run` took, and all since it was
         * submitted. */
        nsec_t took, took_in_all;
};

typedef int (*disk_list_fn)(const char *name, uint64_t size, void *arg);

struct disk_ops {
        /* Calls @fn with every file's name and size. */
        int (*list)(struct disk *d, disk_list_fn fn, void *arg);
        /* Appends the file to @out, but of a longer one no more than @most bytes. */
        int (*read)(struct disk *d, const char *name, size_t most, struct buf *out);
        /* What others, which may have been killed before they could, have written to @name, or
         * with NULL: what names there are, is durable from now on. To be believed, it must be:
         * a read would show what the next power loss takes away. */
        int (*sync)(struct disk *d, const char *name);
        /* Makes a file of @size zero bytes. What an old one has is overwritten where it is, and
         * needs no new room; a new one for which there is none is removed again. (job) */
        int (*create)(struct disk *d, const char *name, size_t size);
        /* Makes a file, if it is not there, and room in it for @size bytes of whatever. (job)
         */
        int (*reserve)(struct disk *d, const char *name, size_t size);
        /* Overwrites part of an existing file. (job) */
        int (*write)(struct disk *d, const char *name, uint64_t offset, const void *p,
                     size_t n);
        /* Makes @name hold exactly these @n runs of bytes, or, if we die meanwhile, what it
         * held before. They are written to @room first, into what there is of that, which is
         * gone then; on failure it is as large as before. (job) */
        int (*replace)(struct disk *d, const char *name, const char *room, const struct view *v,
                       size_t n);
        /* @to, if it is there, is replaced. (job) */
        int (*rename)(struct disk *d, const char *from, const char *to);
        /* This one is not durable at once: after a power loss the file may be there again.
         * (job)
         */
        int (*remove)(struct disk *d, const char *name);
        void (*submit)(struct disk *d, struct disk_job *job);
        /* The same for what takes long and nobody waits for: those are in order among
         * themselves only. */
        void (*submit_aside)(struct disk *d, struct disk_job *job);
        struct disk *(*free)(struct disk *d);
};

struct disk {
        const struct disk_ops *ops;
};

struct loop;

/* A real directory, which must exist; other processes are kept out by a lock. Returns 0, -EBUSY
 * when another process has it, or another negative errno. */
must_check_ int disk_posix_new(struct disk **ret, const char *dir, struct loop *l);

static inline struct disk *disk_free(struct disk *d)
{
        return d ? d->ops->free(d) : NULL;
}
DEFINE_CLEANUP(struct disk *, disk_free)
