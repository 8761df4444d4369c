/*
 * Bytes that several hold at once and nobody changes: the last to let go frees them.
 *
 * The count is one thread's; another may read the bytes while somebody in that thread holds
 * them.
 */
#pragma once

#include "base/buf.h"

struct blob {
        unsigned n_holders;
        struct buf bytes;
};

/* Takes over what is in @bytes, which is empty afterwards, on failure too; held once. NULL when
 * out of memory. */
struct blob *blob_new(struct buf *bytes);

struct blob *blob_hold(struct blob *b);
struct blob *blob_free(struct blob *b); /* lets go; accepts NULL; returns NULL */
DEFINE_CLEANUP(struct blob *, blob_free)

static inline struct view blob_view(const struct blob *b)
{
        return (struct view){buf_head(&b->bytes), buf_len(&b->bytes)};
}
