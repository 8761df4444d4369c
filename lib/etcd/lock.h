/* What locks, elections and their observers share. Not for others. */
#pragma once

#include "etcd/internal.h"

/* The keys of a lock or an election begin with its name and a slash, and end before the same
 * with the byte behind the slash. Return 0 or -ENOMEM. */
must_check_ int lock_prefix(ProtobufCBinaryData name, struct buf *out);
must_check_ int lock_prefix_end(const struct buf *prefix, struct buf *out);

/* A participant sees the others. */
struct status lock_may_look(struct api *a, const struct identity *who,
                            const struct buf *prefix);
