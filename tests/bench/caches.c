/*
 * What caches cost (tenure_cache(3)), on a core.
 *
 *     caches ENDPOINTS reads             ns for a read from a cache
 *     caches ENDPOINTS writes HOLDERS N  a key that so many have cached, written N times, each
 * time when all have it again: ms, p50 p99 caches ENDPOINTS frozen N          the same with one
 * holder that does not answer: ms, p50 and the longest
 */
#include <poll.h>
#include <stdio.h>

#include "tenure/internal.h"

#define TIES_MAX 100 /* one for every so many holders */

static struct tenure *ties[TIES_MAX], *writer;
static struct tenure_cache *caches[10000];
static size_t n_ties, n_caches;

static struct tenure *tie(const char *endpoints)
{
        struct tenure *t;

        if (tenure_new(&t) < 0 || tenure_set_endpoints(t, endpoints) < 0 || tenure_start(t) < 0)
                abort();
        return t;
}

static void turn(bool holders, int wait_ms)
{
        struct pollfd p[TIES_MAX + 1];
        size_t n = 0;

        p[n++] = (struct pollfd){.fd = tenure_get_fd(writer), .events = POLLIN};
        for (size_t i = 0; holders && i < n_ties; i++)
                p[n++] = (struct pollfd){.fd = tenure_get_fd(ties[i]), .events = POLLIN};
        poll(p, n, wait_ms);
        if (tenure_dispatch(writer) < 0)
                abort();
        while (tenure_pop_event(writer))
                ;
        for (size_t i = 0; holders && i < n_ties; i++) {
                if (p[i + 1].revents == 0)
                        continue;
                if (tenure_dispatch(ties[i]) < 0)
                        abort();
                while (tenure_pop_event(ties[i]))
                        ;
        }
}

static bool all_good(void)
{
        for (size_t i = 0; i < n_caches; i++)
                if (!tenure_cache_is_good(caches[i]))
                        return false;
        return true;
}

static int cmp(const void *a, const void *b)
{
        double x = *(const double *) a, y = *(const double *) b;

        return x < y ? -1 : x > y;
}

static void cache_all(const char *endpoints, size_t holders)
{
        n_ties = min_of(holders, (size_t) TIES_MAX);
        for (size_t i = 0; i < n_ties; i++)
                ties[i] = tie(endpoints);
        for (; n_caches < holders; n_caches++)
                if (tenure_cache(ties[n_caches % n_ties],
                                 &(struct tenure_range){.key = "bench-cache", .key_len = 11},
                                 &caches[n_caches]) < 0)
                        abort();
}

static void writes(size_t n, bool frozen)
{
        double *ms = calloc(n, sizeof(*ms));

        if (!ms)
                abort();
        for (size_t i = 0; i < n; i++) {
                struct tenure_call *c;
                struct boot_time began;

                while (!all_good())
                        turn(true, 5);
                began = boot_now();
                if (tenure_put(writer, "bench-cache", 11, &i, sizeof(i), 0, &c) < 0)
                        abort();
                while (tenure_call_result(c) == -EINPROGRESS)
                        turn(!frozen, 5);
                if (tenure_call_result(c) < 0)
                        fprintf(stderr, "caches: %s\n", tenure_call_error(c));
                ms[i] = (double) boot_diff(boot_now(), began) / 1e6;
                tenure_call_free(c);
        }
        qsort(ms, n, sizeof(*ms), cmp);
        printf("%.3f %.3f\n", ms[n / 2], frozen ? ms[n - 1] : ms[n * 99 / 100]);
}

static void reads(void)
{
        const struct tenure_kv *kv;
        unsigned long n = 0;
        struct boot_time began;

        while (!all_good())
                turn(true, 5);
        began = boot_now();
        while (boot_diff(boot_now(), began) < 2 * NSEC_PER_SEC) {
                for (int i = 0; i < 10000; i++, n++)
                        if (tenure_cache_get(caches[0], "bench-cache", 11, &kv) == -EAGAIN)
                                abort();
                turn(true, 0);
        }
        printf("%.1f\n", (double) boot_diff(boot_now(), began) / (double) n);
}

int main(int argc, char **argv)
{
        const char *mode = argc > 2 ? argv[2] : "";
        size_t holders = argc > 4 ? strtoul(argv[3], NULL, 10) : 1;

        if (argc < 3 || holders > ARRAY_SIZE(caches))
                return 2;
        writer = tie(argv[1]);
        cache_all(argv[1], holders);
        if (strcmp(mode, "reads") == 0)
                reads();
        else
                writes(strtoul(argv[argc - 1], NULL, 10), strcmp(mode, "frozen") == 0);
        return 0;
}
