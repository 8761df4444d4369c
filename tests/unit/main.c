/*
 * unit: runs the tests, each in a process of its own, and so many at once as there are
 * processors.
 *
 *     unit [--seed N] [--jobs N] [--slowest N] [--no-bulk] [NAME ...]
 *
 * A test that fails, crashes, ends its process or takes longer than LIMIT_S is `not ok`, with
 * the command that runs it again; the others go on. What a sanitizer finds at the end of its
 * process counts as well. With --jobs 0 all tests run in this process, for a debugger. With
 * --slowest, says at the end what took longest, and how much of a processor. With --no-bulk,
 * leaves out the tests that are marked TEST_BULK().
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rnd.h"
#include "test.h"
#include "virtual_time.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMIT_S 1500
#else
#define LIMIT_S 400
#endif

enum verdict { NONE, OK, NOT_OK, SKIPPED, N_VERDICTS };

/* One that was chosen. */
struct outcome {
        const struct test *test;
        pid_t pid; /* while it runs, otherwise 0 */
        enum verdict verdict;
        nsec_t began, wall, user, sys;
};

static struct test *tests;
static jmp_buf failed;
static struct rnd random_numbers;
static uint64_t seed;
static const char *program;

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

static const char *reason;

void test_skip(const char *why)
{
        reason = why;
        longjmp(failed, SKIPPED);
}

static enum verdict run(const struct test *t)
{
        int v;

        rnd_init(&random_numbers, seed);
        virtual_time_end(); /* of the one before, where they share a process */
        v = setjmp(failed);
        if (v == NONE) {
                t->fn();
                return OK;
        }
        if (v == SKIPPED)
                printf("skipped %s: %s\n", t->name, reason);
        return (enum verdict) v;
}

static int usage(void)
{
        fprintf(stderr,
                "usage: unit [--seed N] [--jobs N] [--slowest N] [--no-bulk] [NAME ...]\n");
        return 2;
}

static nsec_t now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static nsec_t of_timeval(struct timeval tv)
{
        return tv.tv_sec * NSEC_PER_SEC + tv.tv_usec * NSEC_PER_USEC;
}

/* What whoever started this ignores (nohup(1), many supervisors), a test may count on. */
static void signals_reset(void)
{
        sigset_t none;
        struct sigaction sa;

        for (int signo = 1; signo < NSIG; signo++)
                if (sigaction(signo, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN)
                        signal(signo, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Where a process says what came of its test, so that none passes by ending early. */
static unsigned char *said;

noreturn_ static void child(const struct outcome *o, size_t i)
{
        enum verdict v;

        setpgid(0, 0); /* no signal of a terminal, and none is left behind */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signals_reset();
        alarm(LIMIT_S);
        v = run(o->test);
        fflush(NULL);
        said[i] = (unsigned char) v;
        if (v == NOT_OK)
                _exit(1); /* what it left unfreed says nothing */
        exit(0);          /* what a sanitizer finds at the end makes it another number */
}

static void not_ok(struct outcome *o, const char *why)
{
        const char *quote = strpbrk(program, " \t") ? "'" : "";

        o->verdict = NOT_OK;
        fprintf(stderr, "not ok %s %s%s: run it again with %s%s%s --seed %" PRIu64 " %s\n",
                o->test->file, o->test->name, why, quote, program, quote, seed, o->test->name);
}

static void judge(struct outcome *o, int status, enum verdict v)
{
        char why[100] = ""; /* if the test has said so itself */

        if (status == 0 && (v == OK || v == SKIPPED)) {
                o->verdict = v;
                return;
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
                snprintf(why, sizeof(why), ", which took longer than %d s", LIMIT_S);
        else if (WIFSIGNALED(status))
                snprintf(why, sizeof(why), ", ended by signal %d (%s)", WTERMSIG(status),
                         strsignal(WTERMSIG(status)));
        else if (v != NOT_OK)
                snprintf(why, sizeof(why), ", whose process ended with status %d",
                         WEXITSTATUS(status));
        not_ok(o, why);
}

/* Returns how many run now. */
static size_t start(struct outcome *o, size_t i)
{
        char why[100];

        fflush(NULL);
        o->began = now();
        o->pid = fork();
        if (o->pid == 0)
                child(o, i);
        if (o->pid > 0)
                return 1;
        snprintf(why, sizeof(why), ", for which fork() failed (%s)", strerror(errno));
        o->pid = 0;
        not_ok(o, why);
        return 0;
}

/* Waits until one has ended; returns how many have. */
static size_t reap(struct outcome *o, size_t n)
{
        struct rusage used;
        siginfo_t si;
        int status;

        if (waitid(P_ALL, 0, &si, WEXITED | WNOWAIT) < 0)
                return 0; /* interrupted */
        for (size_t i = 0; i < n; i++)
                if (o[i].pid == si.si_pid) {
                        kill(-si.si_pid, SIGKILL); /* what it started and did not wait for */
                        (void) !wait4(si.si_pid, &status, 0, &used);
                        o[i].pid = 0;
                        o[i].wall = now() - o[i].began;
                        o[i].user = of_timeval(used.ru_utime);
                        o[i].sys = of_timeval(used.ru_stime);
                        judge(&o[i], status, said[i]);
                        return 1;
                }
        /* A child of the program that this process was before. */
        (void) !waitpid(si.si_pid, NULL, 0);
        return 0;
}

static void run_all(struct outcome *o, size_t n, unsigned jobs)
{
        size_t running = 0;

        for (size_t i = 0; i < n; i++) {
                while (running == jobs)
                        running -= reap(o, i);
                running += start(&o[i], i);
        }
        while (running > 0)
                running -= reap(o, n);
}

static void run_here(struct outcome *o, size_t n)
{
        signals_reset();
        for (size_t i = 0; i < n; i++) {
                o[i].verdict = run(o[i].test);
                if (o[i].verdict == NOT_OK)
                        not_ok(&o[i], "");
        }
}

static int by_wall(const void *a, const void *b)
{
        const struct outcome *x = a, *y = b;

        return x->wall < y->wall ? 1 : x->wall > y->wall ? -1 : 0;
}

static void print_slowest(struct outcome *o, size_t n, size_t n_slowest, nsec_t wall)
{
        nsec_t user = 0, sys = 0;

        for (size_t i = 0; i < n; i++) {
                user += o[i].user;
                sys += o[i].sys;
        }
        qsort(o, n, sizeof(*o), by_wall);
        printf("      ms    user     sys\n");
        for (size_t i = 0; i < n && i < n_slowest; i++)
                printf("%8.1f%8.1f%8.1f  %s %s\n", (double) o[i].wall / NSEC_PER_MSEC,
                       (double) o[i].user / NSEC_PER_MSEC, (double) o[i].sys / NSEC_PER_MSEC,
                       o[i].test->file, o[i].test->name);
        printf("%8.0f%8.0f%8.0f  in all\n", (double) wall / NSEC_PER_MSEC,
               (double) user / NSEC_PER_MSEC, (double) sys / NSEC_PER_MSEC);
}

static unsigned processors(void)
{
        cpu_set_t set;

        return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned) CPU_COUNT(&set) : 1;
}

static bool exists(const char *name)
{
        for (const struct test *t = tests; t; t = t->next)
                if (strcmp(t->name, name) == 0)
                        return true;
        return false;
}

static bool chosen(const struct test *t, bool bulk, char **names, int n)
{
        if (t->bulk && !bulk)
                return false;
        for (int i = 0; i < n; i++)
                if (strcmp(t->name, names[i]) == 0)
                        return true;
        return n == 0;
}

int main(int argc, char **argv)
{
        unsigned count[N_VERDICTS] = {0}, jobs = processors();
        size_t n = 0, n_slowest = 0;
        struct outcome *o;
        nsec_t began = now();
        bool bulk = true;
        int n_names = 0;

        /* What is freed is used again rather than returned to the kernel, which would clear it
         * for the next one: that took longer than the tests. */
        mallopt(M_MMAP_MAX, 0);
        mallopt(M_TRIM_THRESHOLD, INT_MAX);
        signal(SIGCHLD, SIG_DFL); /* ignored, it would report no end (wait(2)) */
        program = argv[0];
        seed = (uint64_t) time(NULL);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
                        seed = strtoull(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
                        jobs = (unsigned) strtoul(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "--slowest") == 0 && i + 1 < argc)
                        n_slowest = strtoul(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "--no-bulk") == 0)
                        bulk = false;
                else if (strncmp(argv[i], "--", 2) == 0)
                        return usage();
                else if (exists(argv[i]))
                        argv[n_names++] = argv[i];
                else
                        return fprintf(stderr, "There is no test '%s'.\n", argv[i]), 2;
        }
        for (const struct test *t = tests; t; t = t->next)
                n += chosen(t, bulk, argv, n_names);
        o = calloc(n, sizeof(*o));
        said = mmap(NULL, n + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (!o || said == MAP_FAILED)
                return perror("memory for the tests"), 1;
        n = 0;
        for (const struct test *t = tests; t; t = t->next)
                if (chosen(t, bulk, argv, n_names))
                        o[n++].test = t;

        if (jobs == 0)
                run_here(o, n);
        else
                run_all(o, n, jobs);
        for (size_t k = 0; k < n; k++)
                count[o[k].verdict]++;
        if (n_slowest > 0)
                print_slowest(o, n, n_slowest, now() - began);
        free(o);
        printf("%u passed, %u failed, %u skipped\n", count[OK], count[NOT_OK], count[SKIPPED]);
        return count[NOT_OK] > 0 || count[OK] + count[SKIPPED] == 0;
}
