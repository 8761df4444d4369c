/* FNV-1a over 64 bits with a final mix (MurmurHash3's), for ids and state hashes. Not for
 * secrets or for hostile keys. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_add(uint64_t h, const void *p, size_t n)
{
        const uint8_t *b = p;

        for (size_t i = 0; i < n; i++)
                h = (h ^ b[i]) * UINT64_C(0x100000001b3);
        return h;
}

/* Hashes eight bytes at a time, with another result than hash_add(): for large inputs, within
 * one process. */
static inline uint64_t hash_add_words(uint64_t h, const void *p, size_t n)
{
        const uint8_t *b = p;
        uint64_t word;

        for (; n >= sizeof(word); b += sizeof(word), n -= sizeof(word)) {
                memcpy(&word, b, sizeof(word));
                h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
                h ^= h >> 32;
        }
        return hash_add(h, b, n);
}

static inline uint64_t hash_end(uint64_t h)
{
        h ^= h >> 33;
        h *= UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 33;
        h *= UINT64_C(0xc4ceb9fe1a85ec53);
        return h ^ (h >> 33);
}
