/*
 * Versions that compactions have dropped and a reader still needs.
 *
 * A reader that takes several turns pins what it reads: every version that a compaction to
 * @from leaves, up to @upto. A range as of a revision has both at that revision. A compaction
 * beyond @from hands what it drops over to here instead of freeing it, until no pin needs it.
 * None of this is part of the state: not of its hash, its snapshots or its quota (I4). Bounded
 * in bytes: when there are too many, the reader that reaches back furthest loses its pin, and
 * versions that only that reader needed are freed in slices. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "base/buf.h"
#include "base/tree.h"
#include "state/charge.h"

struct kv_version;
struct kv_key;

struct kept_pin {
        RB_ENTRY(kept_pin) by_upto;
        struct kept *of; /* NULL: nothing is pinned, or the pin was lost */
        int64_t from, upto;
        int64_t least; /* the lowest `from` in the subtree that begins here */
};

struct kept_version {
        WIDER;
        RB_ENTRY(kept_version) by_key; /* then by revision and sub */
        struct kv_key *key;   /* v->key, a reference; here, too, as trees are searched by it */
        struct kv_version *v; /* owned. v->older is NULL; v->newer
                               * stays as it was, and may have been freed */
        int64_t until;        /* only a pin from before this revision needs it */
};

RB_HEAD(kept_pins, kept_pin);
RB_HEAD(kept_versions, kept_version);
RB_PROTOTYPE(kept_versions, kept_version, by_key, kept_version_cmp)

struct kept {
        WIDER;
        struct kept_pins pins;
        struct kept_versions versions;
        struct kept_version *sweep_at; /* the next one to check; NULL: no sweep is under way */
        bool unpinned;                 /* a pin was removed since a sweep began */
        size_t n;                      /* versions */
        uint64_t n_changes;            /* while it stays the same, so does `versions` */
        size_t bytes, max;             /* memory used; never more than twice `max` */
};

#define KEPT_MAX ((size_t) 256 << 20)

void kept_init(struct kept *k);
/* Ends all pins. */
void kept_unpin_all(struct kept *k);
/* After that, frees the kept versions in slices. Returns false if @left was not enough. */
must_check_ bool kept_free_some(struct kept *k, struct budget *left);

/* To be called before a compaction goes beyond @from; @from <= @upto. @p stays where it is
 * until kept_unpin(), which accepts a pin that was lost or, if it is zeroed, never set. */
void kept_pin(struct kept *k, struct kept_pin *p, int64_t from, int64_t upto);
void kept_unpin(struct kept_pin *p);

/* A compaction to @until or beyond drops @v. If a pin from before @until needs it, takes it
 * over. False: the caller frees @v. */
bool kept_take(struct kept *k, struct kv_version *v, int64_t until, struct budget *left);

/* The last version before this place; NULL: none. */
struct kept_version *kept_before(const struct kept *k, struct view key, int64_t revision,
                                 uint32_t sub);

/* Looks at some versions and frees those that no reader needs any more. Returns whether there
 * are more to look at. */
bool kept_sweep(struct kept *k, struct budget *left);
static inline bool kept_wants_sweep(const struct kept *k)
{
        return k->sweep_at || k->unpinned;
}
