/*
 * Reads all versions of all keys as of one moment, in slices, while commands go on.
 *
 * Keys are read one after the other, and the versions of a key from the oldest on. Versions
 * that a compaction drops meanwhile are kept aside (kept.h) for readers that have pinned them.
 * Of each key, dropped versions come before those that still exist, so a version may be dropped
 * at any time and is found all the same. Pure; borrows the keys. Needs no memory of its own,
 * however many keys there are.
 */
#pragma once

#include "state/kv.h"

/* What past_next() returned. */
enum {
        PAST_PAUSE = 1, /* *@steps ran out */
        PAST_KEY,       /* `named`, which has `n` versions */
        PAST_VERSION,   /* `version`, the key's next one; borrowed while it is pinned */
};

struct past {
        struct kv *kv;
        struct kept_pin pin;
        bool pinned;
        int64_t revision, compacted; /* at the moment of the start */
        uint64_t n_gone;             /* value of kv.n_gone when `key` was looked up */
        struct kv_key *named;        /* a reference to the current key; NULL: before the
                                      * first */
        struct kv_key *key;          /* the same key in the tree; NULL: it is not there any
                                      * more */
        uint64_t n;
        const struct kv_version *version;
        /* Progress within the key. Versions up to `revision` stay while they are pinned. */
        enum { PAST_SEEK, PAST_COUNT, PAST_TELL, PAST_LEAVE } doing;
        const struct kv_version *oldest, *at;
        int64_t at_revision; /* the revision of `at`, which may have been freed */
};

/* Begins to read the current keys, up to @revision. @pin: compactions may happen meanwhile.
 * past_fini() follows. */
void past_begin(struct past *p, struct kv *kv, int64_t revision, bool pin);
void past_fini(struct past *p);

/* Starts over with the first key; the pin stays. */
void past_rewind(struct past *p);

/* Works for about *@steps units of 50 ns, and subtracts those used. Returns one of the values
 * above; 0 at the end; or -ESTALE if a compaction happened meanwhile and the reader has no pin
 * or has lost it. */
must_check_ int past_next(struct past *p, int64_t *steps);

/* True while the item that was returned last exists; otherwise past_next() returns -ESTALE. */
bool past_is_good(const struct past *p);

/* Computes a hash of everything that a past contains: equal on every replica (I4). */
struct kv_hasher {
        struct past past;
        uint64_t hash;
};
void kv_hash_start(struct kv_hasher *h, struct kv *kv, int64_t revision);
void kv_hash_fini(struct kv_hasher *h);
/* Continues for about @bytes. Returns 1 if there is more, 0 with the hash, -ESTALE if versions
 * that were compacted meanwhile could not be kept, or -ENOMEM. */
must_check_ int kv_hash_more(struct kv_hasher *h, size_t bytes, uint32_t *ret);
