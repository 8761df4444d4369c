/* says NAME [ignore] [stop MSEC]: writes down every 10 ms that it runs, in a file of its own,
 * /run/says/NAME.XXXXXX: when it began and when it ran last, in microseconds of the wall clock.
 * The file is mapped, so that a write costs nothing and is never seen by half.
 * "ignore": SIGTERM; "stop": goes on for so long after one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct life {
        _Atomic int64_t began, last;
};

static volatile sig_atomic_t notified;

static void on_term(int n)
{
        (void) n;
        notified = 1;
}

static int64_t now_us(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
        const struct timespec pause = {.tv_nsec = 10000000};
        int64_t stop_after = 0, end = INT64_MAX, now;
        struct life *life;
        char path[256];
        int fd;

        signal(SIGTERM, on_term);
        for (int i = 2; i < argc; i++)
                if (strcmp(argv[i], "ignore") == 0)
                        signal(SIGTERM, SIG_IGN);
                else if (strcmp(argv[i], "stop") == 0 && i + 1 < argc)
                        stop_after = atoll(argv[++i]) * 1000;
        snprintf(path, sizeof(path), "/run/says/%s.XXXXXX", argc > 1 ? argv[1] : "");
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0 || ftruncate(fd, sizeof(*life)) < 0) {
                perror(path);
                return 1;
        }
        life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (life == MAP_FAILED) {
                perror(path);
                return 1;
        }
        for (atomic_store(&life->began, now_us(CLOCK_REALTIME));; nanosleep(&pause, NULL)) {
                atomic_store(&life->last, now_us(CLOCK_REALTIME));
                now = now_us(CLOCK_MONOTONIC);
                if (notified && end == INT64_MAX)
                        end = now + stop_after;
                if (now >= end)
                        return 0;
        }
}
