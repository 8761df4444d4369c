/*
 * The basics: attributes, ownership helpers and small arithmetic that every folder uses.
 *
 * Includes nothing of ours, keeps no state, allocates nothing.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define must_check_ __attribute__((warn_unused_result))
#define cleanup_(f) __attribute__((cleanup(f)))
#define printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define unused_ __attribute__((unused))
#define noreturn_ __attribute__((noreturn))

/* Defines @func##p for cleanup_(); @func accepts NULL and returns NULL. */
#define DEFINE_CLEANUP(type, func)          \
        static inline void func##p(type *p) \
        {                                   \
                if (*p)                     \
                        *p = func(*p);      \
        }

static inline void freep(void *p)
{
        free(*(void **) p);
}

/* Hands a pointer over: the variable becomes NULL, so that its cleanup does nothing. */
#define take_ptr(p)                        \
        __extension__({                    \
                __typeof__(p) *_pp = &(p); \
                __typeof__(p) _p = *_pp;   \
                *_pp = NULL;               \
                _p;                        \
        })

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) \
        ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

/* min and max of two values of one type; each argument is evaluated once. */
#define min_of(a, b)                               \
        __extension__({                            \
                __typeof__(a) _min_a = (a);        \
                __typeof__(a) _min_b = (b);        \
                _min_a < _min_b ? _min_a : _min_b; \
        })
#define max_of(a, b)                               \
        __extension__({                            \
                __typeof__(a) _max_a = (a);        \
                __typeof__(a) _max_b = (b);        \
                _max_a > _max_b ? _max_a : _max_b; \
        })

/* @a - @b, or 0 if that would be negative. */
static inline size_t sub_sat(size_t a, size_t b)
{
        return a - min_of(a, b);
}

/* Compares two strings of bytes like memcmp(); if one is a prefix of the other, the shorter one
 * sorts first. */
static inline int bytes_cmp(const void *a, size_t a_len, const void *b, size_t b_len)
{
        size_t n = a_len < b_len ? a_len : b_len;
        int r = n > 0 ? memcmp(a, b, n) : 0;

        if (r != 0)
                return r;
        return a_len < b_len ? -1 : a_len > b_len;
}

#define ARRAY_SMALL ((size_t) 1024)    /* elements; fewer are not worth shrinking */
#define ARRAY_STEP ((size_t) 16 << 20) /* bytes that are freed at once: 2 to 3 ms */

/* Grows the array at *@array, of @size-byte elements, so that @need fit. Returns 0 or -ENOMEM.
 */
must_check_ static inline int array_reserve(void *array, size_t *cap, size_t need, size_t size)
{
        void **p = array;
        size_t n = *cap > 0 ? *cap : 8;
        void *grown;

        if (need <= *cap)
                return 0;
        while (n < need)
                n *= 2;
        grown = reallocarray(*p, n, size);
        if (!grown)
                return -ENOMEM;
        *p = grown;
        *cap = n;
        return 0;
}

/* Gives memory back once the @n elements in use need no more than an eighth of the array; a
 * large array shrinks step by step, since it takes the kernel long to free its pages. If memory
 * runs out, the array stays as it is. */
static inline void array_shrink(void *array, size_t *cap, size_t n, size_t size)
{
        void **p = array, *smaller;
        size_t need = max_of(2 * n, ARRAY_SMALL), step = ARRAY_STEP / size, fewer;

        if (*cap <= ARRAY_SMALL || n > *cap / 8)
                return;
        fewer = *cap > need + step ? *cap - step : need;
        smaller = reallocarray(*p, fewer, size);
        if (!smaller)
                return;
        *p = smaller;
        *cap = fewer;
}

/* Inserts a zeroed element at index @at, and increments *@n. Returns 0 or -ENOMEM. */
must_check_ static inline int array_insert(void *array, size_t *n, size_t *cap, size_t size,
                                           size_t at)
{
        char *items;

        if (array_reserve(array, cap, *n + 1, size) < 0)
                return -ENOMEM;
        items = *(char **) array;
        memmove(items + (at + 1) * size, items + at * size, (*n - at) * size);
        memset(items + at * size, 0, size);
        (*n)++;
        return 0;
}

/* Removes the element at index @at, whose content the caller has freed, and decrements *@n. */
static inline void array_remove(void *array, size_t *n, size_t size, size_t at)
{
        char *items = array;

        memmove(items + at * size, items + (at + 1) * size, (*n - at - 1) * size);
        (*n)--;
}
