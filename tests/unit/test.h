/*
 * A test is a function that registers itself; it fails at its first CHECK that does not hold,
 * and the others go on; SKIP() ends one that cannot run here. All randomness comes from rnd(),
 * seeded by --seed, which a failure prints.
 *
 * A TEST_BULK() moves 100 MB or more. Sanitizers spend their time on the pages of such a test,
 * so `make test` runs it without them, and `make nightly` with them.
 */
#pragma once

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"

struct test {
        const char *file, *name;
        void (*fn)(void);
        bool bulk;
        struct test *next;
};

void test_register(struct test *t);
void test_fail(const char *file, int line, const char *fmt, ...) printf_(3, 4) noreturn_;
void test_skip(const char *why) noreturn_;

/* A number in [lo, hi]. */
uint64_t rnd(uint64_t lo, uint64_t hi);

#define TEST_OF(name_, bulk_)                                                         \
        static void test_##name_(void);                                               \
        __attribute__((constructor)) static void register_##name_(void)               \
        {                                                                             \
                static struct test t = {__FILE__, #name_, test_##name_, bulk_, NULL}; \
                                                                                      \
                test_register(&t);                                                    \
        }                                                                             \
        static void test_##name_(void)
#define TEST(name_) TEST_OF(name_, false)
#define TEST_BULK(name_) TEST_OF(name_, true)

#define SKIP(why) test_skip(why)

#define CHECK(cond)                                                 \
        do {                                                        \
                if (!(cond))                                        \
                        test_fail(__FILE__, __LINE__, "%s", #cond); \
        } while (0)

#define CHECK_EQ(a, b)                                                                       \
        do {                                                                                 \
                int64_t _x = (int64_t) (a), _y = (int64_t) (b);                              \
                if (_x != _y)                                                                \
                        test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", not %" PRId64, #a, \
                                  _x, _y);                                                   \
        } while (0)

#define CHECK_STR(a, b)                                                                        \
        do {                                                                                   \
                const char *_x = (a), *_y = (b);                                               \
                if (strcmp(_x, _y) != 0)                                                       \
                        test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #a, _x, _y); \
        } while (0)
