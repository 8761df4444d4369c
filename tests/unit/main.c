#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include "base/rnd.h"
#include "test.h"

enum result { OK, NOT_OK, SKIPPED, N_RESULTS };

static struct test *tests;
static jmp_buf failed;
static struct rnd random_numbers;
static uint64_t seed;
static const char *reason;

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
        longjmp(failed, NOT_OK);
}

void test_skip(const char *why)
{
        reason = why;
        longjmp(failed, SKIPPED);
}

static enum result run(const struct test *t)
{
        rnd_init(&random_numbers, seed);
        switch (setjmp(failed)) {
        case OK:
                t->fn();
                return OK;
        case SKIPPED:
                printf("skipped %s: %s\n", t->name, reason);
                return SKIPPED;
        default:
                fprintf(stderr, "not ok %s %s: run it again with --seed %" PRIu64 " %s\n",
                        t->file, t->name, seed, t->name);
                return NOT_OK;
        }
}

int main(int argc, char **argv)
{
        unsigned n[N_RESULTS] = {0};
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
                n[run(t)]++;
        }
        printf("%u passed, %u failed, %u skipped\n", n[OK], n[NOT_OK], n[SKIPPED]);
        return n[NOT_OK] > 0 || n[OK] + n[SKIPPED] == 0;
}
