/* usage: unit [--seed N] [--jobs N] [NAME] */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* What the processes that share the tests have in common. */
struct shared {
        atomic_uint next; /* of the tests in order */
        atomic_uint n[N_RESULTS];
};

static void run_all(struct shared *s, const char *only)
{
        unsigned i = 0, mine = atomic_fetch_add(&s->next, 1);

        for (const struct test *t = tests; t; t = t->next) {
                if (only && strcmp(t->name, only) != 0)
                        continue;
                if (i++ != mine)
                        continue;
                atomic_fetch_add(&s->n[run(t)], 1);
                mine = atomic_fetch_add(&s->next, 1);
        }
}

int main(int argc, char **argv)
{
        struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        const char *only = NULL;
        unsigned jobs = 1;
        int status;

        seed = (uint64_t) time(NULL);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
                        seed = strtoull(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
                        jobs = (unsigned) strtoul(argv[++i], NULL, 10);
                else
                        only = argv[i];
        }
        if (s == MAP_FAILED)
                return perror("mmap"), 1;
        for (unsigned j = 1; j < jobs; j++)
                switch (fork()) {
                case -1:
                        return perror("fork"), 1;
                case 0:
                        run_all(s, only);
                        return 0; /* what a sanitizer finds at the end makes it another number
                                   */
                }
        run_all(s, only);
        while (wait(&status) > 0)
                if (status != 0) {
                        fprintf(stderr,
                                "not ok: a process of the tests ended with status %#x\n",
                                (unsigned) status);
                        s->n[NOT_OK]++;
                }
        printf("%u passed, %u failed, %u skipped\n", s->n[OK], s->n[NOT_OK], s->n[SKIPPED]);
        return s->n[NOT_OK] > 0 || s->n[OK] + s->n[SKIPPED] == 0;
}
