/*
 * sim: runs seeds, and tells the first that shows what must not happen, with the line that runs
 * it again.
 *
 *     sim [--seed N | --from N --seeds N | --from N --seconds N] [--debug]
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "world.h"

static struct counts total;

/* As struct counts has them. */
static const char *const names[] = {COUNTS(COUNT_NAME)};
_Static_assert(sizeof(total) == ARRAY_SIZE(names) * sizeof(uint64_t), "a count has no name");

static void add(const struct counts *c)
{
        const uint64_t *from = (const uint64_t *) c;
        uint64_t *to = (uint64_t *) &total;

        for (size_t i = 0; i < sizeof(*c) / sizeof(uint64_t); i++)
                to[i] += from[i];
}

static double seconds(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
        static struct world w;
        uint64_t seed = 1, n = 100, done = 0, bad = 0;
        double limit = 0, began = seconds(), told = began;

        log_set_level(LOG_ERR); /* the rest is what the faults are for */
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
                } else if (strcmp(argv[i], "--debug") == 0) {
                        log_set_level(LOG_DEBUG);
                } else {
                        fprintf(stderr, "usage: sim [--seed N | --from N --seeds N | --from N "
                                        "--seconds N] [--debug]\n");
                        return 2;
                }
        }
        for (; done < n && bad < 3 && (limit == 0 || seconds() - began < limit); done++) {
                if (!world_run(&w, seed + done)) {
                        bad++;
                        printf("seed %" PRIu64 " FAILED %s\n  run it again: %s --seed %" PRIu64
                               "\n",
                               w.seed, w.failure, argv[0], w.seed);
                        fflush(stdout);
                }
                add(&w.counts);
                if (seconds() - told > 30) {
                        told = seconds();
                        printf("... %" PRIu64 " seeds in %.0f s\n", done + 1, told - began);
                        fflush(stdout);
                }
        }
        printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " failed, in %.1f s;", done, seed,
               bad, seconds() - began);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                printf("%s %s %" PRIu64, i > 0 ? "," : "", names[i],
                       ((const uint64_t *) &total)[i]);
        puts("");
        return bad ? 1 : 0;
}
