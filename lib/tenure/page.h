/*
 * The page: until when this host holds its place, as the agent writes it (member/tenancy.h).
 *
 * It is mapped only if nobody can truncate the file (F_SEAL_SHRINK, fcntl(2)), since an access
 * behind the end of a mapped file raises SIGBUS, which must not kill the program. Any other
 * file is read with pread(2). If the page is seen while it is being written, it is read again,
 * a bounded number of times.
 */
#pragma once

#include "member/tenancy.h"

struct page {
        int fd;                                          /* -1: none */
        bool locked;                                     /* we have a read lock on it */
        const uint8_t *map;                              /* NULL: the page is read with
                                                          * pread(2) */
        uint64_t time_ns;                                /* ours; 0: not known */
        uint64_t dev, ino;                               /* which file it is */
        uint64_t seen[TENANCY_BYTES / sizeof(uint64_t)]; /* the last complete text ... */
        struct tenancy tenancy;                          /* ... and its content */
};

void page_init(struct page *p);
/* Takes @fd over, also on failure, and closes the previous one. */
must_check_ int page_open(struct page *p, int fd);
void page_close(struct page *p);

/* Reads the page into `tenancy`. Returns 0; -ENOENT: there is no page; -EBADMSG: the content is
 * malformed; -EXDEV: its instants belong to another time namespace. */
must_check_ int page_look(struct page *p);

/* Whether there is a place that may be acted on if its deadline is ahead. */
static inline bool page_has_place(const struct page *p)
{
        return p->tenancy.lease != 0 && !p->tenancy.leaving;
}

/* While we have a lock on the file, the agent gives the place back only at the deadline that it
 * has published (OpenTenancy, org.tenure.Membership1(5)). */
void page_lock(struct page *p, bool locked);
