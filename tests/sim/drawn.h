/*
 * What worlds have: what their seeds draw for them, and how large it is. Summed up over all
 * worlds of a run, and printed as shares of them: whoever wants to know whether something is
 * simulated, and in which sizes, looks there first.
 */
#pragma once

#include "world.h"

#define OPTIONS_MAX 64
#define SIZES_MAX 32
#define STEPS_MAX 32 /* of a size */

struct drawn {
        uint64_t worlds;
        uint64_t has[OPTIONS_MAX];         /* how many of them have it */
        uint64_t of[SIZES_MAX][STEPS_MAX]; /* how many have it in that size */
        uint64_t aims[AIMS_MAX];
};

/* A world has ended: adds what it had. */
void drawn_see(struct drawn *d, const struct world *w);
/* Prints it. */
void drawn_tell(const struct drawn *d);
