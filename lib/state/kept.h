/*
 * What a compaction has dropped and somebody still reads.
 *
 * A reader that looks at the keys in slices pins a revision; versions that are visible at it
 * and are dropped meanwhile are kept aside until no pin needs them. A reader of the history,
 * such as a snapshot, pins everything up to that revision, deletions as well. None of this is
 * part of the state: not of its hash, its snapshots or its quota (I4). Bounded in bytes: when
 * there is too much, the reader of the oldest revision loses its pin, and what only that reader
 * could see is freed in slices. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/tree.h"

struct kv_version;
struct kv_key;
struct kept_version;
struct kv_span;

struct kept_pin {
        RB_ENTRY(kept_pin) by_revision;
        struct kept *of; /* NULL: it pins nothing, or was lost */
        int64_t revision;
        int64_t compacted; /* of a history: when it was pinned; else -1 */
};

RB_HEAD(kept_pins, kept_pin);
RB_HEAD(kept_versions, kept_version);

struct kept {
        struct kept_pins pins, histories;
        struct kept_versions versions;
        struct kept_version *sweep_at; /* to be looked at next; NULL: none is under way */
        bool unpinned;                 /* since a sweep began */
        size_t bytes, max;             /* of it; twice `max` is never passed */
};

#define KEPT_MAX ((size_t) 256 << 20)

void kept_init(struct kept *k);
/* Every pin is lost. */
void kept_unpin_all(struct kept *k);
/* Then what was kept may go, in slices: takes from *@left what it costs, in steps of roughly
 * 0.3 us. Returns false when that did not last. */
must_check_ bool kept_free_some(struct kept *k, size_t *left);

void kept_pin(struct kept *k, struct kept_pin *p, int64_t revision);
/* The same with all history up to @revision, of what was compacted up to @compacted. */
void kept_pin_history(struct kept *k, struct kept_pin *p, int64_t revision, int64_t compacted);
/* It may be lost, or never have been one. */
void kept_unpin(struct kept_pin *p);

/* @v goes, behind which a version of revision @until came, as all is compacted to @compacted:
 * takes it over, with a key of its own as v->key, if a pin needs it; v->newer stays. False: it
 * is the caller's to free. */
bool kept_take(struct kept *k, struct kv_version *v, int64_t until, int64_t compacted);

/* The oldest version of the key with these bytes that was dropped since all was compacted to
 * @compacted; NULL: none. While its history is pinned that is there. */
const struct kv_version *kept_oldest(const struct kept *k, const void *key, size_t key_len,
                                     int64_t compacted);
/* The first key behind that one that has any; NULL: none. */
struct kv_key *kept_behind(const struct kept *k, const void *key, size_t key_len);
/* The revision of what came after @v, which was taken. */
int64_t kept_until(const struct kept *k, const struct kv_version *v);

/* Of those whose key is in @span the first; @down: the last. NULL: none. Good until the next
 * compaction or sweep. */
const struct kept_version *kept_first(const struct kept *k, const struct kv_span *span,
                                      bool down);
const struct kv_key *kept_key(const struct kept_version *at);
/* Looks at all of that key: what could be seen of it at @revision, or NULL, goes to *@ret,
 * borrowed while it is pinned. Returns the first of the next key in @span - @down: the last of
 * the one before - or NULL; *@steps is counted down. */
const struct kept_version *kept_look(const struct kept_version *at, const struct kv_span *span,
                                     bool down, int64_t revision, const struct kv_version **ret,
                                     int64_t *steps);

/* Gives back what nobody can see any more, after a look at @n. Returns whether there is more to
 * look at. */
bool kept_sweep(struct kept *k, size_t n);
static inline bool kept_wants_sweep(const struct kept *k)
{
        return k->sweep_at || k->unpinned;
}
