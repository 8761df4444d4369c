/*
 * A bump allocator for things that live and die together, such as the tree of one response.
 *
 * Embedded, not thread-safe; arena_fini() frees everything at once.
 */
#pragma once

#include <stddef.h>

#include "base/base.h"

struct arena_chunk;

struct arena {
        struct arena_chunk *chunks; /* newest first; owned */
        size_t used;                /* in the newest */
};

/* Zeroed memory, aligned for any type, until arena_fini(); NULL when out of memory. */
void *arena_alloc(struct arena *a, size_t n);

void arena_fini(struct arena *a);

/* Everything is free again; some of the memory stays, for the next use. */
void arena_clear(struct arena *a);
