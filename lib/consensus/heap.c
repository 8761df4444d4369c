/* libraft's allocations: when one fails the program ends. */
#include <raft.h>
#include <unistd.h>

#include "base/log.h"
#include "consensus/replica.h"

static void *got(void *p)
{
        if (p)
                return p;
        log_error("Out of memory.");
        _exit(1);
}

static void *heap_malloc(void *data, size_t n)
{
        (void) data;
        return got(malloc(n > 0 ? n : 1));
}

static void heap_free(void *data, void *p)
{
        (void) data;
        free(p);
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
        (void) data;
        return got(calloc(n > 0 ? n : 1, size > 0 ? size : 1));
}

static void *heap_realloc(void *data, void *p, size_t n)
{
        (void) data;
        return got(realloc(p, n > 0 ? n : 1));
}

static void *heap_aligned_alloc(void *data, size_t alignment, size_t n)
{
        (void) data;
        return got(aligned_alloc(alignment, n));
}

static void heap_aligned_free(void *data, size_t alignment, void *p)
{
        (void) data;
        (void) alignment;
        free(p);
}

void replica_end_without_memory(void)
{
        static struct raft_heap heap = {.malloc = heap_malloc,
                                        .free = heap_free,
                                        .calloc = heap_calloc,
                                        .realloc = heap_realloc,
                                        .aligned_alloc = heap_aligned_alloc,
                                        .aligned_free = heap_aligned_free};

        raft_heap_set(&heap);
}
