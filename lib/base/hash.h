/* FNV-1a over 64 bits with a final mix (MurmurHash3's), for ids and state hashes. Not for
 * secrets or for hostile keys. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_add(uint64_t h, const void *p, size_t n)
{
        const uint8_t *b = p;

        for (size_t i = 0; i < n; i++)
                h = (h ^ b[i]) * UINT64_C(0x100000001b3);
        return h;
}

static inline uint64_t hash_end(uint64_t h)
{
        h ^= h >> 33;
        h *= UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 33;
        h *= UINT64_C(0xc4ceb9fe1a85ec53);
        return h ^ (h >> 33);
}
