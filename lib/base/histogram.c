#include "base/histogram.h"

#define US UINT64_C(1000)
#define MS (1000 * US)

/* Fourteen bounds, each twice the one before. */
#define DOUBLE14(first)                                                                    \
        (first), 2 * (first), 4 * (first), 8 * (first), 16 * (first), 32 * (first),        \
                64 * (first), 128 * (first), 256 * (first), 512 * (first), 1024 * (first), \
                2048 * (first), 4096 * (first), 8192 * (first)

const struct histogram_shape histogram_disk = {
        .n = 14,
        .digits = 9,
        .upper = {DOUBLE14(MS)},
};

const struct histogram_shape histogram_way = {
        .n = 16,
        .digits = 9,
        .upper = {DOUBLE14(100 * US), 16384 * 100 * US, 32768 * 100 * US},
};

const struct histogram_shape histogram_calls = {
        .n = 11,
        .digits = 9,
        .upper = {5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1000 * MS,
                  2500 * MS, 5000 * MS, 10000 * MS},
};

const struct histogram_shape histogram_sizes = {
        .n = 16,
        .upper = {DOUBLE14(1), 16384, 32768},
};

/* Most values are small, so the search begins at the first bucket. */
void histogram_add(struct histogram *h, const struct histogram_shape *s, uint64_t value)
{
        unsigned i = 0;

        while (i < s->n && value > s->upper[i])
                i++;
        h->n[i]++;
        h->sum += value;
}

uint64_t histogram_count(const struct histogram *h, const struct histogram_shape *s)
{
        uint64_t n = 0;

        for (unsigned i = 0; i <= s->n; i++)
                n += h->n[i];
        return n;
}
