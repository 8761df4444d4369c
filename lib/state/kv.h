/*
 * Keys and their history: a multi-version store, as etcd's clients know it.
 *
 * Owns every version of every key since the last compaction, an index by key and the order of
 * changes. It is independent of consensus; the caller decides revisions. Pure and single-
 * threaded. Look-up, put, delete and counting a range cost O(log keys); a watch that resumes
 * costs O(events since).
 */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "base/buf.h"
#include "base/tree.h"
#include "state/kept.h"
#include "wire/pb.h"

struct lease;
struct kv_key;

/* One value, or one deletion, of one key. */
struct kv_version {
        WIDER;
        struct kv_key *key;       /* borrowed: a key lives as long as any version of it */
        struct kv_version *older; /* owned; NULL for the oldest that is kept */
        struct kv_version *newer; /* borrowed; NULL for the newest */
        int64_t mod_revision;
        int64_t create_revision;
        int64_t version; /* 0: this is a deletion */
        int64_t lease;   /* 0: none */
        uint32_t sub;    /* the order of changes within one revision */
        uint32_t value_len;
        uint8_t value[];
};

struct kv_key {
        WIDER;
        RB_ENTRY(kv_key) by_key;
        struct kv_version *newest; /* owned; never NULL while the key is in the tree */
        struct lease *lease;       /* borrowed; the lease to which the live value is attached */
        RB_ENTRY(kv_key) of_lease;
        int64_t eldest;  /* the lowest create_revision of the live keys in the subtree of
                          * `by_key` that begins here; 0: none */
        uint32_t n_live; /* the number of live keys in that subtree */
        uint32_t len;
        uint32_t n_held; /* references: one by the tree, others by kv_key_hold() */
        bool gone;       /* no longer in the tree */
        uint8_t bytes[];
};

/* The key's bytes stay until it is released, although the key may be removed from the tree. */
static inline struct kv_key *kv_key_hold(struct kv_key *k)
{
        k->n_held++;
        return k;
}

/* Returns NULL; accepts it. */
static inline struct kv_key *kv_key_release(struct kv_key *k)
{
        if (k && --k->n_held == 0)
                free(k);
        return NULL;
}

RB_HEAD(kv_tree, kv_key);
RB_PROTOTYPE(kv_tree, kv_key, by_key, kv_key_cmp)

/* The history is in blocks of this many versions, so that it grows and shrinks without being
 * moved: ten million pointers took 16 ms. */
#define KV_HISTORY_BLOCK ((size_t) 8192)
#define KV_BLOCK_BYTES (KV_HISTORY_BLOCK * 8) /* on a 64-bit machine */

/* A history that is being sorted (kv_order.c). */
struct kv_order {
        struct kv_version ***to; /* owned blocks: pairs of runs of the history, merged */
        size_t n_blocks;
        size_t width;      /* of the runs; 0: they are being made */
        size_t done, a, b; /* progress; and the next item of each of the two runs */
};

struct kv {
        WIDER;
        struct kv_tree keys;
        /* Versions, ascending by revision and sub, from `compacted` on. Their positions stay
         * the same. */
        struct kv_version ***history; /* owned blocks; the first has position `history_from` */
        size_t history_from, history_to, n_history_blocks, history_cap;
        int64_t compacted;        /* revisions below are gone; 0: never compacted */
        int64_t compacted_before; /* what that was before the last compaction began; not part
                                   * of the state */
        size_t n_keys;            /* live ones */
        size_t n_all;             /* including those that are kept only for their history */
        uint64_t n_dropped; /* versions, by compactions: while it stays the same, all exist */
        size_t bytes;       /* of all versions and keys, as the quota counts them (charge.h) */
        struct kept kept;   /* dropped versions that are still being read; not part of the
                             * state */
        struct kv_order order; /* while a snapshot is loaded */
};

/* A range of keys as in the API: one key, [from, end), or everything from `from` on. Borrows
 * both. */
struct kv_span {
        struct view from, end;
        bool single, to_end;
};

struct kv_span kv_span(const ProtobufCBinaryData *key, const ProtobufCBinaryData *range_end);
bool kv_span_has(const struct kv_span *span, const void *key, size_t key_len);
/* True for [from, end) if the end is not after the beginning. */
bool kv_span_is_empty(const struct kv_span *span);
bool kv_spans_overlap(const struct kv_span *a, const struct kv_span *b);

void kv_init(struct kv *kv);

/* Frees all in slices, once all pins are lost. Returns false if @left was not enough; then only
 * the same call may follow. */
must_check_ bool kv_free_some(struct kv *kv, struct budget *left);

/* The key with exactly these bytes, live or deleted; NULL if it never existed or was compacted.
 * Borrowed. */
struct kv_key *kv_find(const struct kv *kv, const void *key, size_t key_len);

/* The first key of @span, and the one after @k that is still in it; NULL at the end. @down:
 * from the last key to the first. @live: only live keys; deleted ones cost nothing, however
 * many there are. */
struct kv_key *kv_first(const struct kv *kv, const struct kv_span *span, bool down, bool live);
struct kv_key *kv_next(const struct kv_span *span, struct kv_key *k, bool down, bool live);

static inline struct kv_key *kv_span_first(const struct kv *kv, const struct kv_span *span)
{
        return kv_first(kv, span, false, false);
}

static inline struct kv_key *kv_span_next(const struct kv_span *span, struct kv_key *k)
{
        return kv_next(span, k, false, false);
}

static inline struct kv_key *kv_live_first(const struct kv *kv, const struct kv_span *span)
{
        return kv_first(kv, span, false, true);
}

static inline struct kv_key *kv_live_next(const struct kv_span *span, struct kv_key *k)
{
        return kv_next(span, k, false, true);
}

/* How many keys of @span are live now. O(log keys), however many they are. */
size_t kv_span_count(const struct kv *kv, const struct kv_span *span);

/* The live key of @span that was created first; if there are several, the one that sorts first;
 * NULL if none is live. O(log keys), too. */
struct kv_key *kv_span_eldest(const struct kv *kv, const struct kv_span *span);

/* Whether nothing has changed after @revision (0: now). */
bool kv_is_newest(const struct kv *kv, int64_t revision);

static inline bool kv_live(const struct kv_key *k)
{
        return k->newest->version > 0;
}

/* Adds a version; the caller attaches the key to its lease. Returns 0 or -ENOMEM, and then
 * nothing changed. */
must_check_ int kv_put(struct kv *kv, int64_t revision, uint32_t sub, const void *key,
                       size_t key_len, const void *value, size_t value_len, int64_t lease,
                       struct kv_key **ret);

/* Adds a deletion of a live key. Returns 0 or -ENOMEM. */
must_check_ int kv_delete(struct kv *kv, int64_t revision, uint32_t sub, struct kv_key *k);

/* Drops the history below @revision; events at @revision itself stay, deletions too (A40).
 * Versions that a reader has pinned go to `kept`. Works in slices. Returns false if @left was
 * not enough: then nothing else may change the keys until the same call has finished. Reads at
 * @revision or later are possible meanwhile. */
must_check_ bool kv_compact_some(struct kv *kv, int64_t revision, struct budget *left);

/* How far towards @revision one compaction may go so that it takes milliseconds, unless one
 * revision alone takes longer. */
int64_t kv_compact_step(const struct kv *kv, int64_t revision);

/* The version at position @i of the history: not before `history_from`, but before
 * `history_to`. */
static inline struct kv_version *kv_history_at(const struct kv *kv, size_t i)
{
        return kv->history[i / KV_HISTORY_BLOCK - kv->history_from / KV_HISTORY_BLOCK]
                          [i % KV_HISTORY_BLOCK];
}

/* The position in the history of the first event at @revision or later. */
size_t kv_history_seek(const struct kv *kv, int64_t revision);

/* Where a reader of the history is, however much of it is compacted meanwhile: it needs nothing
 * before `next`, nor the first `n` events at it. It pins nothing: if `next` is compacted, it
 * has missed something. */
struct kv_place {
        int64_t next;
        size_t n;
};

/* The position in the history of the first event that the reader needs. */
static inline size_t kv_place_seek(const struct kv *kv, const struct kv_place *p)
{
        return kv_history_seek(kv, p->next) + p->n;
}

/* The reader of @p needs nothing before @next, which is not before `next`. */
static inline void kv_place_pass(struct kv_place *p, int64_t next)
{
        p->n = next == p->next ? p->n : 0;
        p->next = next;
}

/* The reader of @p has read @v, the first event that it needed. */
static inline void kv_place_read(struct kv_place *p, const struct kv_version *v)
{
        kv_place_pass(p, v->mod_revision);
        p->n++;
}

/* Restores one version while a snapshot is loaded; the versions of a key must come oldest
 * first. *@at is its key, or NULL for a new one, which it becomes. Returns 0, -EBADMSG if they
 * do not, or -ENOMEM; on failure @v still belongs to the caller. */
must_check_ int kv_restore(struct kv *kv, struct view key, struct kv_version *v,
                           struct kv_key **at);

/* Sorts the history after the last kv_restore(), in slices. Returns 1 if @left was not enough,
 * 0 or -ENOMEM. The history is not in order until this has returned 0. */
must_check_ int kv_restore_end(struct kv *kv, struct budget *left);
/* Frees what that has left, if it was not finished. Returns false if @left was not enough. */
must_check_ bool kv_order_free_some(struct kv *kv, struct budget *left);

/* Fills @out, borrowing from @v. */
void kv_fill(const struct kv_version *v, Pb__KeyValue *out);
