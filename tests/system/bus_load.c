/*
 * Many programs that ask the agent for all nodes without end, and whether its heartbeats
 * suffer. usage: bus_load ADDRESS CLIENTS SECONDS; prints calls, latencies in ms, and the
 * longest time between two renewals.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <time.h>
#include <unistd.h>

#define NAME "org.tenure.Membership1"
#define PATH "/org/tenure/Membership1"
#define MANAGER NAME ".Manager"
#define SAMPLES_MAX 100000

struct shared {
        unsigned n;
        float ms[SAMPLES_MAX];
};

static double now_ms(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (double) ts.tv_sec * 1e3 + (double) ts.tv_nsec / 1e6;
}

static sd_bus *open_bus(const char *address)
{
        sd_bus *bus;

        if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address) < 0 ||
            sd_bus_set_bus_client(bus, true) < 0 || sd_bus_start(bus) < 0) {
                fprintf(stderr, "bus_load: cannot reach %s.\n", address);
                exit(1);
        }
        return bus;
}

static void ask(const char *address, double until, struct shared *s)
{
        sd_bus *bus = open_bus(address);

        while (now_ms(CLOCK_MONOTONIC) < until) {
                double t = now_ms(CLOCK_MONOTONIC);
                sd_bus_message *m = NULL;
                unsigned i;

                if (sd_bus_call_method(bus, NAME, PATH, MANAGER, "ListNodes", NULL, &m, "") < 0)
                        exit(1);
                sd_bus_message_unref(m);
                i = __atomic_fetch_add(&s->n, 1, __ATOMIC_RELAXED);
                if (i < SAMPLES_MAX)
                        s->ms[i] = (float) (now_ms(CLOCK_MONOTONIC) - t);
        }
        sd_bus_flush_close_unref(bus);
        exit(0);
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *) a, y = *(const float *) b;

        return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
        struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        double until, gap = 0;
        uint64_t last = 0, renewed;
        unsigned failed = 0, n;
        sd_bus *bus;
        int status;

        if (argc != 4 || s == MAP_FAILED)
                return 2;
        until = now_ms(CLOCK_MONOTONIC) + atof(argv[3]) * 1e3;
        for (int i = 0; i < atoi(argv[2]); i++)
                if (fork() == 0)
                        ask(argv[1], until, s);
        bus = open_bus(argv[1]);
        while (now_ms(CLOCK_MONOTONIC) < until) {
                if (sd_bus_get_property_trivial(bus, NAME, PATH, MANAGER, "LastRenewalUSec",
                                                NULL, 't', &renewed) < 0)
                        failed++;
                else if (last != 0 && renewed != last && (double) (renewed - last) / 1e3 > gap)
                        gap = (double) (renewed - last) / 1e3;
                last = renewed;
                usleep(50000);
        }
        sd_bus_flush_close_unref(bus);
        while (wait(&status) > 0)
                failed += status != 0;
        n = s->n < SAMPLES_MAX ? s->n : SAMPLES_MAX;
        qsort(s->ms, n, sizeof(float), by_value);
        printf("calls %u p50 %.2f p99 %.2f gap %.0f failed %u\n", s->n, (double) s->ms[n / 2],
               (double) s->ms[n * 99 / 100], gap, failed);
        return failed > 0;
}
