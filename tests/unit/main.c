#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include "base/rnd.h"
#include "test.h"

static struct test *tests;
static jmp_buf failed;
static struct rnd random_numbers;
static uint64_t seed;

void test_register(struct test *t)
{
        t->next = tests;
        tests = t;
}

uint64_t rnd(uint64_t lo, uint64_t hi)
{
        return rnd_between(&random_numbers, lo, hi);
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
        va_list ap;

        fprintf(stderr, "%s:%d: ", file, line);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fprintf(stderr, " (seed %" PRIu64 ")\n", seed);
        longjmp(failed, 1);
}

static bool run(const struct test *t)
{
        rnd_init(&random_numbers, seed);
        if (setjmp(failed) != 0) {
                fprintf(stderr, "not ok %s %s: run it again with --seed %" PRIu64 " %s\n",
                        t->file, t->name, seed, t->name);
                return false;
        }
        t->fn();
        return true;
}

int main(int argc, char **argv)
{
        unsigned ok = 0, not_ok = 0;
        const char *only = NULL;

        seed = (uint64_t) time(NULL);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
                        seed = strtoull(argv[++i], NULL, 10);
                else
                        only = argv[i];
        }
        for (const struct test *t = tests; t; t = t->next) {
                if (only && strcmp(t->name, only) != 0)
                        continue;
                if (run(t))
                        ok++;
                else
                        not_ok++;
        }
        printf("%u passed, %u failed\n", ok, not_ok);
        return not_ok > 0 || ok == 0;
}
