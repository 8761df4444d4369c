/*
 * The page: until when this host holds its place, as the agent writes it (member/tenancy.h).
 *
 * Mapped where nobody can make the file shorter (F_SEAL_SHRINK, fcntl(2)): what is behind the
 * end of a mapped file is a SIGBUS, and a program is not to die of somebody's truncate(1). Any
 * other file is read by pread(2). What is seen while it is written is read again, a bounded
 * number of times; then nothing is announced.
 */
#pragma once

#include "member/tenancy.h"

struct page {
        int fd;                                          /* -1: there is none */
        bool locked;                                     /* by us, for reading */
        const uint8_t *map;                              /* NULL: it is read */
        uint64_t time_ns;                                /* ours; 0: not known */
        uint64_t dev, ino;                               /* which file it is */
        uint64_t seen[TENANCY_BYTES / sizeof(uint64_t)]; /* the last text that was whole, ... */
        struct tenancy tenancy;                          /* ... and what it says */
};

void page_init(struct page *p);
/* Takes @fd; the one before is let go. Returns 0 or a negative errno, and @fd is closed. */
must_check_ int page_open(struct page *p, int fd);
void page_close(struct page *p);

/* What it says now, as `tenancy`. Returns 0; -ENOENT: there is none; -EBADMSG: nothing that
 * makes sense; -EXDEV: its instants are of another time namespace. */
must_check_ int page_look(struct page *p);

/* A place that may be acted on, if its deadline is ahead. */
static inline bool page_has_place(const struct page *p)
{
        return p->tenancy.lease != 0 && !p->tenancy.leaving;
}

/* While we have a lock on it, the agent gives the place back only at the deadline that it has
 * told (OpenTenancy, org.tenure.Membership1(5)). */
void page_lock(struct page *p, bool locked);
