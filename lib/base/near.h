/* The word of a list that is most like one that somebody has mistyped. Pure. */
#pragma once

#include "base/base.h"

#define NEAR_WORD_MAX 40 /* longer words are like no other */

/* Zeroed: nothing was found yet. */
struct near {
        const char *word; /* borrowed; NULL: none is like it */
        size_t distance;
};

/* Keeps @word if it is more like the @len bytes at @typed than the words before: if fewer
 * characters have to be added, dropped, replaced or swapped with their neighbour. At most one
 * in five characters may differ so, and one more. */
void near_try(struct near *n, const char *typed, size_t len, const char *word);
