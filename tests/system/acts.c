/*
 * What only the holder of a lock may do, as switchover.sh looks at it: from its first act to
 * its last one, a line "NAME BEGIN END TOKEN" in LOG each time, in microseconds of
 * CLOCK_MONOTONIC, which all processes of a machine share. Each act is its time, written into
 * a file, so that one who is killed has a last one too.
 *
 *     acts command NAME LOG [SECONDS]      until SIGTERM, and then for so long: a command of
 *                                          tenurectl lock
 *     acts tie LOCK NAME LOG               with libtenure, as the session NAME, whenever it has
 *                                          the lock, until SIGTERM
 *     acts load                            puts, 64 under way at a time, until SIGTERM
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenure.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void on_signal(int signo)
{
        (void) signo;
        over = 1;
}

static long long us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* A line in one write: several processes write to one log. */
static void note(const char *log, const char *name, long long begin, long long end,
                 long long token)
{
        char line[256];
        int n = snprintf(line, sizeof(line), "%s %lld %lld %lld\n", name, begin, end, token);
        int fd = open(log, O_WRONLY | O_APPEND | O_CREAT, 0644);

        if (fd < 0 || write(fd, line, (size_t) n) != n)
                exit(2);
        close(fd);
}

static int act_fd = -1;

static void act(long long now)
{
        char text[32];
        int n = snprintf(text, sizeof(text), "%020lld\n", now);

        if (pwrite(act_fd, text, (size_t) n, 0) != n)
                exit(2);
}

static void nap(void)
{
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

static int command(const char *name, const char *log, const char *seconds)
{
        const char *token = getenv("TENURE_LOCK_REVISION");
        long long begin = us(), last = begin, until;

        act(begin);
        while (!over) {
                last = us();
                act(last);
                nap();
        }
        for (until = us() + (long long) (atof(seconds) * 1e6); us() < until; nap()) {
                last = us();
                act(last);
        }
        note(log, name, begin, last, token ? atoll(token) : 0);
        return 0;
}

static struct tenure *t;

static void fail(void)
{
        fprintf(stderr, "acts: %s.\n", tenure_error(t));
        exit(1);
}

static int with_tie(const char *name, const char *lock_name, const char *log)
{
        long long begin = 0, last = 0, token = 0;
        const struct tenure_event *e;
        struct tenure_lock *lock;

        if (tenure_new(&t) < 0)
                return 1;
        if (tenure_hold_own(t, 5000, name) < 0 || tenure_lock(t, lock_name, name, &lock) < 0 ||
            tenure_start(t) < 0)
                fail();
        while (!over) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};
                bool asked = false;

                (void) !poll(&p, 1, begin ? 1 : 100);
                if (tenure_dispatch(t) < 0)
                        fail();
                while ((e = tenure_pop_event(t))) {
                        asked |= e->type == TENURE_ASKED;
                        if (e->type == TENURE_UNLOCKED)
                                printf("%s: %s\n", name, e->reason);
                }
                if (tenure_lock_is_held(lock) && !asked) {
                        last = us();
                        if (!begin)
                                begin = last;
                        token = tenure_lock_token(lock);
                        act(last);
                        continue;
                }
                if (begin)
                        note(log, name, begin, last, token);
                begin = 0;
                if (asked && tenure_hand_over(lock) < 0)
                        fail();
        }
        tenure_free(t);
        return 0;
}

static void begin_put(unsigned n)
{
        struct tenure_call *c;
        char key[32];
        int len = snprintf(key, sizeof(key), "load/%u", n % 1000);

        if (tenure_put(t, key, (size_t) len, key, (size_t) len, 0, &c) < 0)
                fail();
}

static int load(void)
{
        const struct tenure_event *e;
        unsigned n = 0;

        if (tenure_new(&t) < 0)
                return 1;
        if (tenure_start(t) < 0)
                fail();
        while (n < 64)
                begin_put(n++);
        while (!over && tenure_wait(t, 100) >= 0)
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_REPLY) {
                                tenure_call_free(e->call);
                                begin_put(n++);
                        }
        printf("%u puts\n", n);
        tenure_free(t);
        return 0;
}

int main(int argc, char **argv)
{
        struct sigaction sa = {.sa_handler = on_signal};
        const char *name, *log;
        char path[4096];
        bool is_tie;

        setvbuf(stdout, NULL, _IOLBF, 0);
        sigaction(SIGTERM, &sa, NULL);
        if (argc == 2 && strcmp(argv[1], "load") == 0)
                return load();
        if (argc < 4)
                return 2;
        is_tie = strcmp(argv[1], "tie") == 0 && argc == 5;
        name = argv[is_tie ? 3 : 2];
        log = argv[is_tie ? 4 : 3];
        snprintf(path, sizeof(path), "%s.%s", log, name);
        act_fd = open(path, O_WRONLY | O_CREAT, 0644);
        if (act_fd < 0)
                return 2;
        if (is_tie)
                return with_tie(name, argv[2], log);
        return command(name, log, argc > 4 ? argv[4] : "0");
}
