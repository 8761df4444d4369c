/* Which slots are taken, so that the lowest free one is found in a few steps, however many
 * there are: a bit for each, a bit for each full word of these, and so on. Pure. */
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
