/* A bitmap of used slots, with a bit per full word above it, and so on: the lowest free slot is
 * found in a few steps, however many there are. Pure. */
#pragma once

#include "base/base.h"
#include "state/charge.h"

#define SLOTS_LEVELS 4 /* words of 64: 16 million */

struct slots {
        WIDER;
        struct {
                uint64_t *words; /* owned; missing words are 0 */
                size_t n, cap;
        } level[SLOTS_LEVELS];
};

void slots_fini(struct slots *s);

/* @slot must be below 64 to the power of SLOTS_LEVELS, and free. Returns 0, or -ENOMEM, and
 * then nothing has changed. */
must_check_ int slots_take(struct slots *s, size_t slot);

/* @slot must be taken. */
void slots_give(struct slots *s, size_t slot);

/* One more than the highest slot that is taken. */
size_t slots_end(const struct slots *s);

size_t slots_lowest_free(const struct slots *s);
