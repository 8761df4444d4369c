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

/* Makes a blob of the content of @bytes, with one reference. @bytes is empty afterwards, also
 * on failure. Returns NULL if out of memory. */
struct blob *blob_new(struct buf *bytes);

struct blob *blob_hold(struct blob *b);
struct blob *blob_free(struct blob *b); /* drops a reference; accepts NULL; returns NULL */
DEFINE_CLEANUP(struct blob *, blob_free)

/* If the caller has the only reference, frees @n bytes at the end, or all that are left.
 * Returns how many are left. (Freeing 200 MB at once takes the kernel 10 ms.) */
size_t blob_shrink(struct blob *b, size_t n);

static inline struct view blob_view(const struct blob *b)
{
        return (struct view){buf_head(&b->bytes), buf_len(&b->bytes)};
}
