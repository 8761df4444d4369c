/*
 * Ranges of keys, and which of them contain a given key: an interval tree.
 *
 * A red-black tree ordered by the beginnings of the ranges, in which each node knows the
 * greatest end in its subtree. Embedded nodes; nothing is allocated. Pure and single-threaded.
 * Adding and removing cost O(log ranges), looking a key up O(log ranges) for each range that
 * contains it.
 */
#pragma once

#include "base/tree.h"
#include "state/kv.h"

struct span_entry {
        WIDER;
        RB_ENTRY(span_entry) by_span;
        struct span_entry *last; /* in the subtree that begins here, the range that ends
                                  * last */
        struct kv_span span;     /* borrowed; may be changed to other bytes that are the same */
        bool leaves;             /* true while it is being removed */
};

RB_HEAD(span_index, span_entry);

void span_index_init(struct span_index *ix);

/* The one that covers exactly @span, or NULL. */
struct span_entry *span_index_find(const struct span_index *ix, const struct kv_span *span);

/* Adds @r, whose span is set, not empty, and in no other range of @ix. */
void span_index_add(struct span_index *ix, struct span_entry *r);
void span_index_remove(struct span_index *ix, struct span_entry *r);

/* Any range; NULL if there is none. */
struct span_entry *span_index_any(const struct span_index *ix);

/* Calls @fn for each range that holds the key, in the order of their beginnings. @fn must not
 * change the index. */
void span_index_each(const struct span_index *ix, struct view key,
                     void (*fn)(struct span_entry *r, void *arg), void *arg);
