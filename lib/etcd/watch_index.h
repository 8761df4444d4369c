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

struct watch_range {
        RB_ENTRY(watch_range) by_span;
        struct watch_range *last; /* in the subtree that begins here, the range that ends
                                   * last */
        struct kv_span span; /* borrowed; may be changed to other bytes that are the same */
        bool leaves;         /* true while it is being removed */
};

RB_HEAD(watch_index, watch_range);

void watch_index_init(struct watch_index *ix);

/* The one that covers exactly @span, or NULL. */
struct watch_range *watch_index_find(const struct watch_index *ix, const struct kv_span *span);

/* Adds @r, whose span is set, not empty, and in no other range of @ix. */
void watch_index_add(struct watch_index *ix, struct watch_range *r);
void watch_index_remove(struct watch_index *ix, struct watch_range *r);

/* Any range; NULL if there is none. */
struct watch_range *watch_index_any(const struct watch_index *ix);

/* Calls @fn for each range that holds the key, in the order of their beginnings. @fn must not
 * change the index. */
void watch_index_each(const struct watch_index *ix, struct view key,
                      void (*fn)(struct watch_range *r, void *arg), void *arg);
