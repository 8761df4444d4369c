/*
 * Programs that read from a cache, and one that writes, for libtenure_cache.sh. Times are
 * microseconds of CLOCK_BOOTTIME.
 *
 * usage: cache hold KEY             until SIGTERM: "cached REVISION", "uncached REASON ERROR",
 * and of each value that was read "had VALUE LAST READS": LAST is from before the last read
 * that found it cache write KEY FROM TO    puts numbers: "wrote N BEGUN ACKED"; or "doubt N
 * WHY"; cache many PREFIX N    until SIGTERM: "all N"
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenure.h>
#include <time.h>

static struct tenure *t;
static volatile sig_atomic_t over;

static long long now_us(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (long long) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void on_term(int sig)
{
        (void) sig;
        over = 1;
}

static long long had = -1, last;
static unsigned long long reads;

static void report(void)
{
        if (had >= 0)
                printf("had %lld %lld %llu\n", had, last, reads);
        had = -1;
        reads = 0;
}

/* As often as it can, for a while. */
static void read_some(const struct tenure_cache *c, const char *key)
{
        for (int i = 0; i < 2000; i++) {
                const struct tenure_kv *kv;
                long long begun = now_us(), value;
                int r = tenure_cache_get(c, key, strlen(key), &kv);

                if (r == -EAGAIN)
                        return;
                value = r == 0 ? atoll(kv->value) : 0;
                if (value != had)
                        report();
                had = value;
                last = begun;
                reads++;
        }
}

static int hold(const char *key)
{
        struct tenure_cache *c;
        const struct tenure_event *e;

        if (tenure_cache(t, &(struct tenure_range){.key = key, .key_len = strlen(key)}, &c) < 0)
                return 1;
        while (!over) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                read_some(c, key);
                if (poll(&p, 1, tenure_cache_is_good(c) ? 0 : tenure_get_timeout(t)) < 0 &&
                    errno != EINTR)
                        return 1;
                if (tenure_dispatch(t) < 0)
                        return 1;
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_CACHED)
                                printf("cached %lld\n", (long long) e->revision);
                        else if (e->type == TENURE_UNCACHED)
                                printf("uncached %s: %d\n", e->reason, e->error);
        }
        report();
        tenure_cache_free(c);
        return 0;
}

/* Twice each of half as many keys, which are PREFIX and a number. */
static int hold_many(const char *prefix, int n)
{
        const struct tenure_event *e;
        int n_cached = 0;

        for (int i = 0; i < n; i++) {
                struct tenure_cache *c;
                char key[64];
                int len = snprintf(key, sizeof(key), "%s%d", prefix, i / 2);

                if (tenure_cache(t, &(struct tenure_range){.key = key, .key_len = (size_t) len},
                                 &c) < 0)
                        return 1;
        }
        while (!over && tenure_wait(t, 100) >= 0)
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_CACHED && ++n_cached == n)
                                printf("all %d\n", n);
        return 0;
}

static int write_numbers(const char *key, long long from, long long to)
{
        for (long long n = from; n <= to && !over; n++) {
                struct tenure_call *c;
                char value[32];
                long long begun = now_us();
                int r, len = snprintf(value, sizeof(value), "%lld", n);

                if (tenure_put(t, key, strlen(key), value, (size_t) len, 0, &c) < 0)
                        return 1;
                r = tenure_call_wait(c, -1);
                if (r == 0)
                        printf("wrote %lld %lld %lld\n", n, begun, now_us());
                else
                        printf("doubt %lld %s\n", n, tenure_call_error(c));
                tenure_call_free(c);
                while (tenure_pop_event(t))
                        ;
        }
        return 0;
}

int main(int argc, char **argv)
{
        struct sigaction act = {.sa_handler = on_term};
        int r;

        setvbuf(stdout, NULL, _IOLBF, 0);
        sigaction(SIGTERM, &act, NULL);
        if (argc < 3 || tenure_new(&t) < 0)
                return 2;
        if (tenure_start(t) < 0) {
                fprintf(stderr, "%s\n", tenure_error(t));
                return 1;
        }
        if (strcmp(argv[1], "hold") == 0)
                r = hold(argv[2]);
        else if (strcmp(argv[1], "many") == 0)
                r = argc < 4 ? 2 : hold_many(argv[2], atoi(argv[3]));
        else
                r = argc < 5 ? 2 : write_numbers(argv[2], atoll(argv[3]), atoll(argv[4]));
        tenure_free(t);
        return r;
}
