#include "member/rendezvous.h"

#include "base/hash.h"

#define FRACTION 28 /* bits */

uint64_t rendezvous_hash(const char *name)
{
        return hash_end(hash_add(HASH_START, name, strlen(name)));
}

/* log2 of @n, which is not 0. The fraction is found bit by bit: squaring a number between 1 and
 * 2 doubles its logarithm, and the result is 2 or more if the next bit is 1. Truncation is the
 * same on every machine. */
static uint64_t log2_of(uint64_t n)
{
        unsigned whole = 63 - (unsigned) __builtin_clzll(n);
        uint64_t x = (n << (63 - whole)) >> 32; /* here 1 is represented as 2^31 */
        uint64_t fraction = 0;

        for (unsigned i = 0; i < FRACTION; i++) {
                x = (x * x) >> 31;
                fraction <<= 1;
                if (x >> 32) {
                        fraction |= 1;
                        x >>= 1;
                }
        }
        return (uint64_t) whole << FRACTION | fraction;
}

uint64_t rendezvous_log(uint64_t task, uint64_t member)
{
        /* Hash twice, since names of tasks resemble each other, as names of members do. */
        uint64_t h = hash_end(hash_end(task ^ member) + member);
        uint64_t log = ((uint64_t) 64 << FRACTION) - log2_of(h | 1);

        return max_of(log, UINT64_C(1));
}
