/*
 * Reads keys in slices, while commands are applied: their values as of a revision, or all
 * versions that existed at some moment up to it.
 *
 * The only reader that merges the tree with the versions that compactions have dropped
 * (kept.h). A compaction always drops the oldest versions of a key, so of each key the dropped
 * versions come before those in the tree, wherever the border between them has moved. Pure;
 * needs no memory of its own, however many keys there are. The next key costs O(1); O(log keys)
 * after one that was removed; and O(log kept) for a key or version that is kept.
 */
#pragma once

#include "state/kv.h"

/* What kv_iter_next() returned. */
enum {
        KV_PAUSE = 1, /* *@steps ran out */
        KV_KEY,       /* only of a history: `key`, of which `n` versions follow, oldest first */
        KV_VERSION,   /* `version`; borrowed while kv_iter_is_good() */
};

/* May stand still for any time between two calls, whatever happens to the keys, unless they are
 * replaced as a whole: the caller must notice that if the iterator is not pinned. */
struct kv_iter {
        const struct kv *kv;
        struct kv_span span; /* borrows its bytes */
        bool down;           /* from the last key to the first */
        bool history;
        int64_t from, upto; /* as if @kv had been compacted to `from`, and not changed since
                             * `upto` */
        struct kept_pin pin;
        bool pinned;
        struct kv_key *key; /* a reference; NULL: before the first one */
        uint64_t n;
        const struct kv_version *version;
        /* Progress within the key. */
        enum { KV_LEAVE, KV_ARRIVE, KV_SEEK, KV_COUNT, KV_TELL } doing;
        const struct kv_version *newest; /* that we read */
        const struct kv_version *at; /* if newer than `upto`, it may be freed by a compaction */
        int64_t at_revision;
        uint64_t n_dropped; /* value of kv.n_dropped when `at` was set */
        /* The first dropped version of `key`, or of the next key that has some: found when
         * kept.n_changes was `seen`. */
        struct kept_version *kept;
        uint64_t seen;
};

/* Begins to read the keys of @span as of @revision, from the compacted one on; INT64_MAX:
 * everything that exists. Deleted keys are left out. kv_iter_fini() follows. */
void kv_iter_as_of(struct kv_iter *it, const struct kv *kv, const struct kv_span *span,
                   int64_t revision, bool down);
/* Begins to read all keys with their versions up to @revision, from the compacted one on, and
 * of each key the value as of the compacted revision. */
void kv_iter_history(struct kv_iter *it, const struct kv *kv, int64_t revision);
void kv_iter_fini(struct kv_iter *it);

/* Protects what it reads from compactions, until kv_iter_fini(). To be called before anything
 * happens to @kv, which is the store that it reads. */
void kv_iter_pin(struct kv_iter *it, struct kv *kv);

/* Works for about *@steps units of 50 ns, and subtracts those used. Returns one of the values
 * above; 0 at the end; or -ESTALE, now and ever: what it reads was compacted, and the iterator
 * has no pin or has lost it. */
must_check_ int kv_iter_next(struct kv_iter *it, int64_t *steps);

/* Whether versions that it reads may have been dropped. */
static inline bool kv_iter_is_overtaken(const struct kv_iter *it)
{
        return it->kv->compacted > it->from;
}

/* False: kv_iter_next() returns -ESTALE. */
static inline bool kv_iter_is_good(const struct kv_iter *it)
{
        return it->pinned ? it->pin.of != NULL : !kv_iter_is_overtaken(it);
}

/* Returns to the first key; the pin stays. */
void kv_iter_rewind(struct kv_iter *it);
