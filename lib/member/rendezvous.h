/*
 * Rendezvous hashing with weights: who of several members has a task.
 *
 * Each member has a number for each task, and the smallest has it: -log2(u) / weight, where u
 * is a hash of the two names as a fraction. So a member that goes leaves its own tasks to the
 * others and moves none of theirs; one that comes takes its share from all of them; and shares
 * are in proportion to the weights. All members have to come to the same result, on any
 * machine and with any libm: the logarithm is made of integers, and two numbers are compared by
 * multiplying, not by dividing. Pure.
 */
#pragma once

#include "base/base.h"

#define RENDEZVOUS_WEIGHT_MAX 10000

/* Of a name, for both of the others. */
uint64_t rendezvous_hash(const char *name);

/* -log2(u) of a task and a member, by their hashes: from 1, in 2^-28ths. */
uint64_t rendezvous_log(uint64_t task, uint64_t member);

/* Whether @log_a / @weight_a is less than the other. Weights are from 1 to the greatest. */
static inline bool rendezvous_less(uint64_t log_a, unsigned weight_a, uint64_t log_b,
                                   unsigned weight_b)
{
        return log_a * weight_b < log_b * weight_a;
}
