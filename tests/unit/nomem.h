/* Memory that runs out when a test says so: the linker redirects every allocation of our code
 * to nomem.c (-Wl,--wrap, tests.mk), which uses the sanitizers' allocator or libc's.
 * Allocations that libraries make for themselves are not affected. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* From now on, the allocation after @n more fails, and no other. */
void nomem_after(size_t n);

/* All succeed again. Returns whether that one came. */
bool nomem_end(void);
/* What the test itself does meanwhile has memory, and is not counted. */
void nomem_pause(bool pause);
