/*
 * CRC-32C (Castagnoli; RFC 3720 appendix B.4), the checksum of every record on disk.
 * Pure; one table of constants, or the processor's own instruction where it has one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Goes on from @crc (0 at the start) over @n bytes at @p. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);

/* For the checksum of any part of some bytes without reading it: for x <= y the one of p[x] to
 * p[y - 1] is crc32c(0, p, y) ^ crc32c_shift(crc32c(0, p, x), y - x). About half a
 * microsecond. */
uint32_t crc32c_shift(uint32_t crc, uint32_t n);
