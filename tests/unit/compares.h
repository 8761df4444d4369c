/* Counts how often our code compares bytes: the linker redirects its memcmp() to compares.c
 * (--wrap, tests.mk). So the cost of a search is counted and not timed. */
#pragma once

#include <stdint.h>

/* Of all since the start. */
uint64_t compares(void);
