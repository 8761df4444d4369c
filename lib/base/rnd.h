/*
 * Seeded random numbers (xoshiro256**, Blackman and Vigna 2018) for jitter, ids and the
 * simulator: the same seed gives the same sequence on every machine. Not for secrets.
 */
#pragma once

#include <stdint.h>

struct rnd {
        uint64_t s[4];
};

void rnd_init(struct rnd *r, uint64_t seed);
uint64_t rnd_u64(struct rnd *r);

/* A number in [lo, hi], both included. */
uint64_t rnd_between(struct rnd *r, uint64_t lo, uint64_t hi);
