/* What locks, elections and their observers share. Not for other folders. */
#pragma once

#include "etcd/internal.h"

/* The keys of a lock or an election are the range from its name plus a slash up to its name
 * plus the byte after the slash. Return 0 or -ENOMEM. */
must_check_ int lock_prefix(ProtobufCBinaryData name, struct buf *out);
must_check_ int lock_prefix_end(const struct buf *prefix, struct buf *out);

/* Whether @who may read the range, since a participant sees the others' keys. */
struct status lock_may_look(struct api *a, const struct identity *who,
                            const struct buf *prefix);
