/*
 * How much work may be done before others get their turn.
 *
 * Work is counted in steps of roughly 0.3 us, what a key costs among a million with cold
 * caches, and not timed: so tests and the simulator see the same slices. Code whose loops,
 * frees or comparisons have no fixed bound takes a budget and charges it. A charge may exceed
 * what is left, since the work has been done by then; afterwards nothing is left.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct budget {
        size_t left; /* steps */
};

#define BUDGET_READ_STEPS 6 /* steps of 50 ns, in which readers count, in one of these */
#define BUDGET_ALL ((struct budget){SIZE_MAX})

static inline bool budget_is_spent(const struct budget *b)
{
        return b->left == 0;
}

static inline void budget_charge(struct budget *b, size_t steps)
{
        b->left = sub_sat(b->left, steps);
}

/* Charges for comparing or copying @bytes. */
static inline void budget_charge_read(struct budget *b, size_t bytes)
{
        budget_charge(b, bytes / 4096);
}

/* Charges for freeing a block of @bytes: the kernel takes the pages of a large block back one
 * by one. */
static inline void budget_charge_free(struct budget *b, size_t bytes)
{
        budget_charge(b, 1 + bytes / 8192);
}

/* The bytes that a search for a key of @len bytes compares, one key at each level of a tree of
 * @n. */
static inline size_t budget_search_bytes(size_t n, size_t len)
{
        size_t bytes = 0;

        for (; n > 0; n /= 2)
                bytes += len;
        return bytes;
}

/* What has been charged to a budget that began as BUDGET_ALL. */
static inline size_t budget_used(const struct budget *b)
{
        return SIZE_MAX - b->left;
}
