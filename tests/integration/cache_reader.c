/*
 * Reads a key from a cache, as often as it can, until SIGTERM. Prints "cached VALUE", and for
 * each value that it has found "had VALUE LAST": LAST is the time, in microseconds of
 * CLOCK_BOOTTIME, at which the last read that found it began.
 *
 * usage: cache_reader KEY
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tenure.h>
#include <time.h>

static volatile sig_atomic_t over;
static char had[32];
static long long last;

static void on_term(int sig)
{
        (void) sig;
        over = 1;
}

static long long now_us(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (long long) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void report(void)
{
        if (*had)
                printf("had %s %lld\n", had, last);
}

static void read_some(const struct tenure_cache *c, const char *key)
{
        for (int i = 0; i < 500; i++) {
                const struct tenure_kv *kv;
                long long begun = now_us();

                if (tenure_cache_get(c, key, strlen(key), &kv) != 0)
                        return;
                if (strcmp(kv->value, had) != 0)
                        report();
                snprintf(had, sizeof(had), "%s", (const char *) kv->value);
                last = begun;
        }
}

int main(int argc, char **argv)
{
        struct sigaction act = {.sa_handler = on_term};
        const struct tenure_event *e;
        const struct tenure_kv *kv;
        struct tenure_cache *c;
        struct tenure *t;

        setvbuf(stdout, NULL, _IOLBF, 0);
        sigaction(SIGTERM, &act, NULL);
        if (argc < 2 || tenure_new(&t) < 0 || tenure_start(t) < 0 ||
            tenure_cache(t, &(struct tenure_range){.key = argv[1], .key_len = strlen(argv[1])},
                         &c) < 0)
                return 2;
        while (!over) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                poll(&p, 1, tenure_cache_is_good(c) ? 5 : tenure_get_timeout(t));
                read_some(c, argv[1]); /* before a recall is heard, if we were stopped */
                if (tenure_dispatch(t) < 0)
                        return 1;
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_CACHED && (kv = tenure_cache_kv(c, 0)))
                                printf("cached %s\n", (const char *) kv->value);
        }
        report();
        tenure_cache_free(c);
        tenure_free(t);
        return 0;
}
