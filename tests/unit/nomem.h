/*
 * Memory that runs out when a test says so: the linker hands every allocation of our code to
 * nomem.c (-Wl,--wrap, tests.mk), with the sanitizers' allocator behind it or libc's. What
 * libraries allocate for themselves is not seen.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* From now on, the allocation after @n more fails, and no other. */
void nomem_after(size_t n);

/* All succeed again. Returns whether that one came. */
bool nomem_end(void);
