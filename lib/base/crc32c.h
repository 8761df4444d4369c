/*
 * CRC-32C (Castagnoli; RFC 3720 appendix B.4), the checksum of every record on disk.
 * Pure; one table of constants, or the processor's own instruction where it has one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues the checksum @crc (0 at the start) over the @n bytes at @p. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);

/* Gives the checksum of a part from those of two prefixes, without reading the part: for x <=
 * y, p[x] to p[y - 1] have the checksum crc32c(0, p, y) ^ crc32c_shift(crc32c(0, p, x), y - x).
 * Likewise, that of the whole from those of its first x bytes and of the rest. Takes about half
 * a microsecond. */
uint32_t crc32c_shift(uint32_t crc, uint64_t n);
