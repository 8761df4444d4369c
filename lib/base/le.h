/* Fixed-width integers in files and on peer links: little endian, of any alignment. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void le32_put(uint8_t *p, uint32_t v)
{
        v = htole32(v);
        memcpy(p, &v, sizeof(v));
}

static inline void le64_put(uint8_t *p, uint64_t v)
{
        v = htole64(v);
        memcpy(p, &v, sizeof(v));
}

static inline uint32_t le32_get(const uint8_t *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return le32toh(v);
}

static inline uint64_t le64_get(const uint8_t *p)
{
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        return le64toh(v);
}
