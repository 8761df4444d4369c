/*
 * How often values of each size occurred: a histogram as Prometheus has it.
 *
 * All zero bytes are an empty one. Its shape, which says where the buckets end, is a constant
 * that both the code that counts and the code that shows the histogram name. The buckets are
 * few and fixed, so counting allocates nothing, and costs time only for small values. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define HISTOGRAM_MAX 24

struct histogram_shape {
        unsigned n;      /* buckets, beside the last one, which has no end */
        unsigned digits; /* counted values are in units of 10^-digits of the shown unit */
        uint64_t upper[HISTOGRAM_MAX]; /* the largest that is counted in each; ascending */
};

struct histogram {
        uint64_t n[HISTOGRAM_MAX + 1]; /* in each bucket, without those before it */
        uint64_t sum;
};

/* Seconds, counted in nanoseconds: from 1 ms, doubled up to 8.2 s, as etcd has it for its disk;
 * from 0.1 ms up to 3.3 s, as etcd has it for its round trips; and as gRPC libraries have it
 * for calls. */
extern const struct histogram_shape histogram_disk, histogram_way, histogram_calls;

/* For numbers of things: 1, 2, 4, up to 32,768. */
extern const struct histogram_shape histogram_sizes;

void histogram_add(struct histogram *h, const struct histogram_shape *s, uint64_t value);

/* Counts a duration; a negative one counts as 0. */
static inline void histogram_add_nsec(struct histogram *h, const struct histogram_shape *s,
                                      nsec_t d)
{
        histogram_add(h, s, d > 0 ? (uint64_t) d : 0);
}

uint64_t histogram_count(const struct histogram *h, const struct histogram_shape *s);
