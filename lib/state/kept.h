/*
 * Versions that a compaction has dropped and a reader still needs.
 *
 * A reader that reads the keys in slices pins a revision; versions that are visible at that
 * revision but are dropped while it reads are set aside until no pin needs them. A reader of
 * the history, such as a snapshot, pins everything up to that revision, deletions as well. None
 * of this is part of the state: not of its hash, its snapshots or its quota (I4). Bounded in
 * bytes: when there are too many, the reader of the oldest revision loses its pin, and versions
 * that only that reader could see are freed in slices. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/tree.h"
#include "state/charge.h"

struct kv_version;
struct kv_key;
struct kept_version;
struct kv_span;

struct kept_pin {
        RB_ENTRY(kept_pin) by_revision;
        struct kept *of; /* NULL: nothing is pinned, or the pin was lost */
        int64_t revision;
        int64_t compacted; /* for a history: the compacted revision when it was pinned; else
                            * -1 */
};

RB_HEAD(kept_pins, kept_pin);
RB_HEAD(kept_versions, kept_version);

struct kept {
        WIDER;
        struct kept_pins pins, histories;
        struct kept_versions versions;
        struct kept_version *sweep_at; /* the next one to check; NULL: no sweep is under way */
        bool unpinned;                 /* a pin was removed since a sweep began */
        size_t bytes, max;             /* memory used; never more than twice `max` */
};

#define KEPT_MAX ((size_t) 256 << 20)

void kept_init(struct kept *k);
/* Ends all pins. */
void kept_unpin_all(struct kept *k);
/* After that, frees the kept versions in slices: subtracts its cost from *@left, in units of
 * roughly 0.3 us. Returns false if that was not enough. */
must_check_ bool kept_free_some(struct kept *k, size_t *left);

void kept_pin(struct kept *k, struct kept_pin *p, int64_t revision);
/* The same for all history up to @revision; everything up to @compacted was compacted
 * before. */
void kept_pin_history(struct kept *k, struct kept_pin *p, int64_t revision, int64_t compacted);
/* The pin may have been lost, or never been set. */
void kept_unpin(struct kept_pin *p);

/* A compaction to @compacted drops @v, which was followed by a version of revision @until. If a
 * pin needs @v, takes it over, with a key of its own as v->key; v->newer stays. False: the
 * caller frees @v. */
bool kept_take(struct kept *k, struct kv_version *v, int64_t until, int64_t compacted);

/* The oldest version of the key with these bytes that was dropped since the compaction to
 * @compacted; NULL: none. It exists while the key's history is pinned. */
const struct kv_version *kept_oldest(const struct kept *k, const void *key, size_t key_len,
                                     int64_t compacted);
/* The first key after @key that has dropped versions; NULL: none. */
struct kv_key *kept_behind(const struct kept *k, const void *key, size_t key_len);
/* The revision of the version that followed @v, which was taken. */
int64_t kept_until(const struct kept *k, const struct kv_version *v);

/* The first dropped version whose key is in @span; @down: the last. NULL: none. Valid until the
 * next compaction or sweep. */
const struct kept_version *kept_first(const struct kept *k, const struct kv_span *span,
                                      bool down);
const struct kv_key *kept_key(const struct kept_version *at);
/* Looks at all dropped versions of that key. The version that is visible at @revision, or NULL,
 * goes to *@ret, borrowed while it is pinned. Returns the first dropped version of the next key
 * in @span - @down: the last one of the key before - or NULL; counts *@steps down. */
const struct kept_version *kept_look(const struct kept_version *at, const struct kv_span *span,
                                     bool down, int64_t revision, const struct kv_version **ret,
                                     int64_t *steps);

/* Looks at @n versions and frees those that no reader can see any more. Returns whether there
 * are more to look at. */
bool kept_sweep(struct kept *k, size_t n);
static inline bool kept_wants_sweep(const struct kept *k)
{
        return k->sweep_at || k->unpinned;
}
