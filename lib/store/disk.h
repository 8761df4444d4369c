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
        void (*drop)(struct disk_job *job); /* instead of `done`, if the disk is freed first */
        void *impl[7];                      /* the implementation's own */
        /* Set for `done` by a disk that measures: how long `run` took, and how long the job
         * took since it was submitted. */
        nsec_t took, took_in_all;
};

typedef int (*disk_list_fn)(const char *name, uint64_t size, void *arg);

struct disk_ops {
        /* Calls @fn with every file's name and size. */
        int (*list)(struct disk *d, disk_list_fn fn, void *arg);
        /* Appends the file to @out, but no more than @most bytes of it. */
        int (*read)(struct disk *d, const char *name, size_t most, struct buf *out);
        /* Makes the content of @name durable or, with NULL, the names in the directory: other
         * processes may have written them and been killed before they could sync. Otherwise, a
         * read could return data that the next power loss takes away. */
        int (*sync)(struct disk *d, const char *name);
        /* Makes a file of @size zero bytes. An existing file is overwritten in place, and needs
         * no new room; a new file for which there is no room is removed again. (job) */
        int (*create)(struct disk *d, const char *name, size_t size);
        /* Makes a file, if it does not exist, with room for @size bytes of any content. Returns
         * in *@ret_was which size it had, 0 if there was none; on failure it keeps that. (job)
         */
        int (*reserve)(struct disk *d, const char *name, size_t size, size_t *ret_was);
        /* Overwrites part of an existing file, which may become longer. (job) */
        int (*write)(struct disk *d, const char *name, uint64_t offset, const void *p,
                     size_t n);
        /* Drops what an existing file has beyond @size bytes. (job) */
        int (*cut)(struct disk *d, const char *name, size_t size);
        /* An existing @to is replaced. (job) */
        int (*rename)(struct disk *d, const char *from, const char *to);
        /* Not durable at once: after a power loss the file may exist again. (job)
         */
        int (*remove)(struct disk *d, const char *name);
        void (*submit)(struct disk *d, struct disk_job *job);
        /* Like `submit`, for jobs that take long and that nothing waits for; they are in order
         * only among themselves. */
        void (*submit_aside)(struct disk *d, struct disk_job *job);
        struct disk *(*free)(struct disk *d);
};

struct disk {
        const struct disk_ops *ops;
};

struct loop;

/* A real directory, which must exist; other processes are kept out by a lock. Symbolic links in
 * it are not followed. Returns 0, -EBUSY if another process has it, -ELOOP if the file "lock"
 * in it is a link, or another negative errno. */
must_check_ int disk_posix_new(struct disk **ret, const char *dir, struct loop *l);

static inline struct disk *disk_free(struct disk *d)
{
        return d ? d->ops->free(d) : NULL;
}
DEFINE_CLEANUP(struct disk *, disk_free)
