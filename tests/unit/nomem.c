#include "nomem.h"

#include <stdint.h>
#include <string.h>

static size_t left = SIZE_MAX;
static bool came, paused;

void nomem_pause(bool pause)
{
        paused = pause;
}

void nomem_after(size_t n)
{
        left = n;
        came = false;
}

bool nomem_end(void)
{
        left = SIZE_MAX;
        return came;
}

static bool fails(void)
{
        if (left == SIZE_MAX || paused)
                return false;
        if (left-- > 0)
                return false;
        left = SIZE_MAX;
        came = true;
        return true;
}

/* The names that the linker redirects to (ld(1), --wrap). */
#define WRAP(type, name, params, args)                      \
        type __real_##name params;                          \
        type __wrap_##name params;                          \
        type __wrap_##name params                           \
        {                                                   \
                return fails() ? NULL : __real_##name args; \
        }

WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size))
WRAP(char *, strdup, (const char *s), (s))
WRAP(char *, strndup, (const char *s, size_t n), (s, n))
