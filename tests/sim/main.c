/*
 * sim: runs seeds, and reports the first ones that break an invariant, with the command that
 * runs them again; at the end it prints counts and, if there were many, what worlds had, which
 * coincidences occurred, and which never did.
 *
 *     sim [--seed N | --from N --seeds N | --from N --seconds N] [--aim NAME] [--all]
 *         [--reached] [--drawn] [--jobs N] [--twice] [--debug]
 *
 * With --all, a coincidence that never occurred fails the run. With --reached, so does a probe
 * that none of 3,000 worlds or more reached, unless it is listed with a reason (reached.h);
 * with the aim `nights`, one that none of 60 reached, if it is listed as theirs. With --drawn,
 * it also says of few worlds what they had (drawn.h). With --twice, each seed runs a second
 * time, with other bytes in fresh memory, and must do the same. Seeds are shared by --jobs
 * processes, as many as there are processors if not said.
 */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "drawn.h"
#include "reached.h"
#include "world.h"

#define FAILURES_MAX 3
#define JOBS_MAX 64
#define MANY 300 /* worlds, after which every coincidence should have occurred */

/* What one process has seen. */
struct part {
        struct counts total;
        struct coincidences met;
        struct reached reached;
        struct drawn drawn;
        uint64_t done;
};

/* What the processes share: a part each, the seeds, and how many of these have failed. */
static struct shared {
        struct part parts[JOBS_MAX];
        _Atomic uint64_t next, bad;
} * shared;

/* In the order of struct counts and struct coincidences. */
static const char *const names[] = {COUNTS(COUNT_NAME)};
static const char *const met_names[] = {COINCIDENCES(COUNT_NAME)};
_Static_assert(sizeof(struct counts) == ARRAY_SIZE(names) * sizeof(uint64_t),
               "a count has no name");
_Static_assert(sizeof(struct coincidences) == ARRAY_SIZE(met_names) * sizeof(uint64_t),
               "a coincidence has no name");

static void add(uint64_t *to, const void *from, size_t size)
{
        const uint64_t *v = from;

        for (size_t i = 0; i < size / sizeof(uint64_t); i++)
                to[i] += v[i];
}

static double seconds(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

static int usage(void)
{
        fprintf(stderr, "usage: sim [--seed N | --from N --seeds N | --from N --seconds N] "
                        "[--aim NAME] [--all] [--reached] [--drawn] [--twice] [--jobs N] "
                        "[--debug]\n");
        return 2;
}

/* Returns how many coincidences never occurred. */
static unsigned tell_met(const struct coincidences *met)
{
        const uint64_t *n = (const uint64_t *) met;
        unsigned never = 0;

        for (size_t i = 0; i < ARRAY_SIZE(met_names); i++)
                if (n[i] > 0)
                        printf("%10" PRIu64 " %s\n", n[i], met_names[i]);
        for (size_t i = 0; i < ARRAY_SIZE(met_names); i++)
                if (n[i] == 0) {
                        never++;
                        printf("never happened: %s\n", met_names[i]);
                }
        return never;
}

static struct world w;
static const char *program, *aim;
static bool twice;

/* That the present seed failed, and the command that runs it again. */
static size_t failure_text(char *out, size_t size, const char *why)
{
        int n = snprintf(out, size,
                         "seed %" PRIu64 " (%s) FAILED %s\n  run it again: %s --seed %" PRIu64
                         "%s%s%s%s\n",
                         w.seed, w.aim ? aim_name(&w) : "not begun", why, program, w.seed,
                         twice ? " --twice" : "", aim ? " --aim '" : "", aim ? aim : "",
                         aim ? "'" : "");

        return min_of((size_t) n, size - 1);
}

/* The program is about to end without another word. */
static void on_crash(int signo)
{
        char text[300];
        size_t n = failure_text(text, sizeof(text),
                                signo == SIGVTALRM ? "it takes too much processor time"
                                                   : sigdescr_np(signo));

        (void) !write(STDOUT_FILENO, text, n);
        raise(signo); /* SA_RESETHAND */
}

/* A sanitizer says more of its own. */
static void tell_crashes(void)
{
        static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGVTALRM};
        struct sigaction old;

        for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
                if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
                        sigaction(signals[i],
                                  &(struct sigaction){.sa_handler = on_crash,
                                                      .sa_flags = (int) SA_RESETHAND},
                                  NULL);
}

/* The first time another seed has run before, the second time this one has, and memory that
 * nobody has set is full of other bytes. */
static bool run_seed(uint64_t seed)
{
        static struct trace first, second;

        /* Of processor time; the usual world takes 0.1 s, and 1 s with a sanitizer. */
        setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value.tv_sec = aim_patience(aim)},
                  NULL);
        if (!twice)
                return world_run(&w, seed, aim);
        trace_into(&first);
        if (!world_run(&w, seed, aim))
                return false;
        trace_into(&second);
        mallopt(M_PERTURB, 0x5a);
        (void) world_run(&w, seed, aim);
        mallopt(M_PERTURB, 0);
        return !trace_differs(&first, &second, w.failure, sizeof(w.failure)) && !*w.failure;
}

/* Runs seeds that no other process has, until there are none. */
static void run_some(struct part *p, uint64_t first, uint64_t n, double limit)
{
        double began = seconds(), reported = began;
        uint64_t mine;
        char text[1024];

        while (atomic_load(&shared->bad) < FAILURES_MAX &&
               (limit == 0 || seconds() - began < limit) &&
               (mine = atomic_fetch_add(&shared->next, 1)) < n) {
                reached_begin();
                if (!run_seed(first + mine)) {
                        atomic_fetch_add(&shared->bad, 1);
                        failure_text(text, sizeof(text), w.failure);
                        fputs(text, stdout);
                        fflush(stdout);
                }
                p->done++;
                reached_end(&p->reached);
                drawn_see(&p->drawn, &w);
                add((uint64_t *) &p->total, &w.counts, sizeof(p->total));
                add((uint64_t *) &p->met, &w.met, sizeof(p->met));
                if (p == shared->parts && seconds() - reported > 30) {
                        reported = seconds();
                        printf("... %" PRIu64 " seeds in %.0f s\n", mine + 1, reported - began);
                        fflush(stdout);
                }
        }
}

/* One job is this process, for a debugger. */
static int run_all(unsigned jobs, uint64_t first, uint64_t n, double limit)
{
        int status;

        if (jobs <= 1)
                return run_some(&shared->parts[0], first, n, limit), 0;
        for (unsigned j = 0; j < jobs; j++)
                switch (fork()) {
                case -1:
                        return perror("sim: fork"), -1;
                case 0:
                        run_some(&shared->parts[j], first, n, limit);
                        exit(0); /* what a sanitizer finds at the end makes it another number */
                }
        while (wait(&status) > 0)
                if (status != 0) {
                        printf("a process of worlds FAILED: status %#x\n", (unsigned) status);
                        atomic_fetch_add(&shared->bad, 1);
                }
        return 0;
}

int main(int argc, char **argv)
{
        uint64_t seed = 1, n = 100, done = 0;
        double limit = 0, began = seconds();
        unsigned never = 0, jobs = 0;
        struct counts total = {0};
        struct coincidences met = {0};
        static struct reached reached;
        static struct drawn drawn;
        bool all = false, reaches = false, tells = false;
        size_t unreached = 0;

        log_set_level(LOG_CRIT); /* errors are what the faults are for */
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
                        seed = strtoull(argv[++i], NULL, 10);
                        n = 1;
                } else if (strcmp(argv[i], "--from") == 0 && i + 1 < argc) {
                        seed = strtoull(argv[++i], NULL, 10);
                } else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc) {
                        n = strtoull(argv[++i], NULL, 10);
                } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
                        limit = strtod(argv[++i], NULL);
                        n = UINT64_MAX;
                } else if (strcmp(argv[i], "--aim") == 0 && i + 1 < argc) {
                        aim = argv[++i];
                        if (!aim_known(aim))
                                return usage();
                } else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc) {
                        jobs = (unsigned) strtoul(argv[++i], NULL, 10);
                } else if (strcmp(argv[i], "--all") == 0) {
                        all = true;
                } else if (strcmp(argv[i], "--reached") == 0) {
                        reaches = true;
                } else if (strcmp(argv[i], "--drawn") == 0) {
                        tells = true;
                } else if (strcmp(argv[i], "--twice") == 0) {
                        twice = true;
                } else if (strcmp(argv[i], "--debug") == 0) {
                        log_set_level(LOG_DEBUG);
                        jobs = 1;
                } else {
                        return usage();
                }
        }
        if (jobs == 0)
                jobs = (unsigned) sysconf(_SC_NPROCESSORS_ONLN);
        if (jobs > JOBS_MAX)
                jobs = JOBS_MAX;
        if (jobs > n)
                jobs = (unsigned) n;
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
        if (shared == MAP_FAILED)
                return perror("sim: mmap"), 1;
        program = argv[0];
        tell_crashes();
        fflush(stdout);
        if (run_all(jobs, seed, n, limit) < 0)
                return 1;

        for (unsigned j = 0; j < jobs; j++) {
                done += shared->parts[j].done;
                add((uint64_t *) &total, &shared->parts[j].total, sizeof(total));
                add((uint64_t *) &met, &shared->parts[j].met, sizeof(met));
                add((uint64_t *) &reached, &shared->parts[j].reached, sizeof(reached));
                add((uint64_t *) &drawn, &shared->parts[j].drawn, sizeof(drawn));
        }
        printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " failed, in %.1f s;", done, seed,
               shared->bad, seconds() - began);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                printf("%s %s %" PRIu64, i > 0 ? "," : "", names[i],
                       ((const uint64_t *) &total)[i]);
        puts("");
        if (done >= MANY || tells)
                drawn_tell(&drawn);
        if (done >= MANY || all)
                never = tell_met(&met);
        if (reaches)
                unreached = reached_tell(&reached, done, aim_is_long(aim));
        return shared->bad > 0 || (all && never) || unreached > 0 ? 1 : 0;
}
