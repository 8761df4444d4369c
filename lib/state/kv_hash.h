/* A hash of all keys with their history up to a revision: equal on every replica (I4). Computed
 * in slices, while commands are applied. Pure. */
#pragma once

#include "state/kv_iter.h"

struct kv_hasher {
        struct kv_iter it;
        uint64_t hash;
};

/* Begins, of the history that is left at this moment. @h is zeroed or was used before. */
void kv_hash_start(struct kv_hasher *h, struct kv *kv, int64_t revision);
void kv_hash_fini(struct kv_hasher *h);
/* Continues for about @bytes. Returns 1 if there is more, 0 with the hash, or -ESTALE if
 * versions that were compacted meanwhile could not be kept. */
must_check_ int kv_hash_more(struct kv_hasher *h, size_t bytes, uint32_t *ret);
