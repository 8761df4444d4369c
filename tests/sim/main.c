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
        printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64
               " failed, in %.1f s; events %" PRIu64 ", frames %" PRIu64 " (lost %" PRIu64
               "), crashes %" PRIu64 ", partitions %" PRIu64 ", stalls %" PRIu64
               ", pauses %" PRIu64 ", suspends %" PRIu64 ", full disks %" PRIu64
               ", changes of members %" PRIu64 ", leaders moved %" PRIu64 ", leaders %" PRIu64
               ", grants %" PRIu64 ", renewals %" PRIu64 ", expiries %" PRIu64
               ", writes %" PRIu64 ", reads %" PRIu64 ", holders' deaths %" PRIu64
               " and losses %" PRIu64 "\n",
               done, seed, bad, seconds() - began, total.events, total.frames,
               total.lost_frames, total.crashes, total.partitions, total.stalls, total.pauses,
               total.suspends, total.full, total.changes, total.transfers, total.leaders,
               total.grants, total.renewals, total.expiries, total.writes, total.reads,
               total.holder_deaths, total.holder_losses);
        return bad ? 1 : 0;
}
