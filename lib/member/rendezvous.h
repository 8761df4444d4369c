/*
 * Rendezvous hashing with weights: decides which of several members gets a task.
 *
 * Each member has a number for each task, -log2(u) / weight, where u is a hash of both names as
 * a fraction; the member with the smallest number gets the task. So a member that leaves moves
 * only its own tasks, a member that joins takes its share from all others, and shares are in
 * proportion to the weights. All members must get the same result, on any machine and with any
 * libm, so the logarithm is computed with integers, and two numbers are compared by
 * multiplication, not by division. Pure.
 */
#pragma once

#include "base/base.h"

#define RENDEZVOUS_WEIGHT_MAX 10000

/* The hash of a name, for the two functions below. */
uint64_t rendezvous_hash(const char *name);

/* -log2(u) of a task and a member, given their hashes, in units of 2^-28; at least 1. */
uint64_t rendezvous_log(uint64_t task, uint64_t member);

/* Whether @log_a / @weight_a < @log_b / @weight_b. Weights: 1 to RENDEZVOUS_WEIGHT_MAX. */
static inline bool rendezvous_less(uint64_t log_a, unsigned weight_a, uint64_t log_b,
                                   unsigned weight_b)
{
        return log_a * weight_b < log_b * weight_a;
}
