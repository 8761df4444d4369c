#include "base/arena.h"

#include <stdalign.h>

#define CHUNK_MIN 4000
#define KEEP_MAX ((size_t) 64 << 10)

struct arena_chunk {
        struct arena_chunk *next;
        size_t size;
        alignas(max_align_t) unsigned char bytes[];
};

void *arena_alloc(struct arena *a, size_t n)
{
        struct arena_chunk *c = a->chunks;
        void *p;

        n = (n + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
        if (!c || c->size - a->used < n) {
                size_t size = max_of(n, (size_t) CHUNK_MIN);

                c = malloc(sizeof(*c) + size);
                if (!c)
                        return NULL;
                c->size = size;
                c->next = a->chunks;
                a->chunks = c;
                a->used = 0;
        }
        p = c->bytes + a->used;
        a->used += n;
        return memset(p, 0, n);
}

static void chunks_free(struct arena_chunk *c)
{
        while (c) {
                struct arena_chunk *next = c->next;

                free(c);
                c = next;
        }
}

void arena_fini(struct arena *a)
{
        chunks_free(a->chunks);
        *a = (struct arena){0};
}

void arena_clear(struct arena *a)
{
        if (a->chunks && a->chunks->size > KEEP_MAX)
                return arena_fini(a);
        if (a->chunks) {
                chunks_free(a->chunks->next);
                a->chunks->next = NULL;
        }
        a->used = 0;
}
