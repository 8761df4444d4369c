#include "base/rnd.h"

static uint64_t rotl(uint64_t x, int k)
{
        return (x << k) | (x >> (64 - k));
}

void rnd_init(struct rnd *r, uint64_t seed)
{
        /* splitmix64 spreads a small seed over the whole state. */
        for (int i = 0; i < 4; i++) {
                uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

                z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
                z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
                r->s[i] = z ^ (z >> 31);
        }
}

uint64_t rnd_u64(struct rnd *r)
{
        uint64_t out = rotl(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

        r->s[2] ^= r->s[0];
        r->s[3] ^= r->s[1];
        r->s[1] ^= r->s[2];
        r->s[0] ^= r->s[3];
        r->s[2] ^= t;
        r->s[3] = rotl(r->s[3], 45);
        return out;
}

uint64_t rnd_between(struct rnd *r, uint64_t lo, uint64_t hi)
{
        uint64_t span = hi - lo + 1;

        return span == 0 ? rnd_u64(r) : lo + rnd_u64(r) % span;
}
