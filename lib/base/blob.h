/*
 * Immutable bytes with a reference count: the last holder to release them frees them.
 *
 * Only one thread changes the count; another may read the bytes while somebody in that thread
 * holds them.
 */
#pragma once

#include <sys/queue.h>

#include "base/buf.h"

struct blob {
        unsigned n_holders;
        struct buf bytes;
        SLIST_ENTRY(blob) entry; /* for one holder's list of them */
};

SLIST_HEAD(blob_list, blob);

/* Takes over what is in @bytes, which is empty afterwards, on failure too; held once. NULL when
 * out of memory. */
struct blob *blob_new(struct buf *bytes);

struct blob *blob_hold(struct blob *b);
struct blob *blob_free(struct blob *b); /* drops a reference; accepts NULL; returns NULL */
DEFINE_CLEANUP(struct blob *, blob_free)

/* If nobody else holds the blob, frees @n bytes at its end, or all that are left; returns how
 * many are left. The kernel needs 10 ms to take back 200 MB at once. */
size_t blob_shrink(struct blob *b, size_t n);

static inline struct view blob_view(const struct blob *b)
{
        return (struct view){buf_head(&b->bytes), buf_len(&b->bytes)};
}
