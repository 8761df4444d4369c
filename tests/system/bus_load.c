/*
 * Many programs that ask the agent for all nodes without end, and whether its heartbeats
 * suffer. usage: bus_load ADDRESS CLIENTS SECONDS; prints calls, latencies in ms, and the
 * longest time between two renewals.
 *
 * bus_load ADDRESS hostile SECONDS: one user who means harm. Keeps 64 calls of
 * GetManagedObjects open on one connection, 1000 of WaitForRevision on another one, and runs 8
 * loops that ask for what is dear; prints how many answers it got, and how many of the waits
 * were refused.
 *
 * bus_load ADDRESS between METHOD|all: how many pings of another program the agent answers
 * after that call, and before it. They go by the numbers of its messages, not by time.
 *
 * bus_load ADDRESS listing COUNT: a simple program. Asks for all nodes, again and again, while
 * nodes a00000 and so on join; what it is told after a list has to make it whole. Prints how
 * many lists there were, and after how many of them one node or the other is not known in the
 * end.
 *
 * bus_load ADDRESS polkit: stands in for polkit; prints what it is asked, and lets whatever has
 * a service or a lock "allowed".
 */
#include <signal.h>
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

/* ---- polkit ---- */

static int check_authorization(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *kind, *action, *key, *value, *cancel;
        int may = 0, r;
        uint32_t flags;

        (void) userdata;
        (void) error;
        r = sd_bus_message_enter_container(m, 'r', "sa{sv}");
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &kind);
        if (r >= 0)
                r = sd_bus_message_skip(m, "a{sv}");
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &action);
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "{ss}");
        if (r < 0)
                return r;
        printf("%s", action);
        while (sd_bus_message_read(m, "{ss}", &key, &value) > 0) {
                printf(" %s=%s", key, value);
                may |= (strcmp(key, "service") == 0 || strcmp(key, "lock") == 0) &&
                       strcmp(value, "allowed") == 0;
        }
        r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_read(m, "us", &flags, &cancel);
        if (r < 0)
                return r;
        printf(" flags=%u\n", flags);
        fflush(stdout);
        return sd_bus_reply_method_return(m, "(bba{ss})", may, !may, 0);
}

static int polkit(const char *address)
{
        static const sd_bus_vtable vtable[] = {
                SD_BUS_VTABLE_START(0),
                SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})",
                              check_authorization, SD_BUS_VTABLE_UNPRIVILEGED),
                SD_BUS_VTABLE_END,
        };
        sd_bus *bus = open_bus(address);

        if (sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/PolicyKit1/Authority",
                                     "org.freedesktop.PolicyKit1.Authority", vtable,
                                     NULL) < 0 ||
            sd_bus_request_name(bus, "org.freedesktop.PolicyKit1", 0) < 0)
                return 1;
        printf("ready\n");
        fflush(stdout);
        for (;;) {
                int r = sd_bus_process(bus, NULL);

                if (r < 0 || (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0))
                        return 1;
        }
}

/* ---- a long answer ---- */

static const struct call {
        const char *path, *interface, *method;
        bool page;
} dear[] = {{PATH, MANAGER, "ListNodes", false},
            {PATH, MANAGER, "ListServices", false},
            {PATH, MANAGER, "Describe", false},
            {PATH "/node", "org.freedesktop.DBus.Introspectable", "Introspect", false},
            {PATH "/service", "org.freedesktop.DBus.Introspectable", "Introspect", false},
            {PATH, MANAGER, "GetNodes", true},
            {PATH, MANAGER, "GetServices", true},
            {PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", false}};
#define N_DEAR (sizeof(dear) / sizeof(dear[0]))
#define PINGS 120 /* a bus lets nobody wait for more than 128 answers */

static sd_bus_message *call_of(sd_bus *bus, const struct call *c, uint32_t limit)
{
        sd_bus_message *m;

        if (sd_bus_message_new_method_call(bus, &m, NAME, c->path, c->interface, c->method) <
                    0 ||
            (c->page && sd_bus_message_append(m, "ou", "/", limit) < 0))
                exit(1);
        return m;
}

struct flood {
        sd_bus *bus;
        unsigned answers, refused;
};

static int on_wait(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct flood *f = userdata;

        (void) error;
        f->refused += sd_bus_message_is_method_error(m, SD_BUS_ERROR_LIMITS_EXCEEDED) > 0;
        return 0;
}

/* The number among the agent's messages, or 0: an error. */
static int on_answer(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        uint64_t **at = userdata;

        (void) error;
        if (sd_bus_message_is_method_error(m, NULL) || sd_bus_message_get_cookie(m, *at) < 0)
                exit(1);
        (*at)++;
        return 0;
}

/* To nobody but the bus; what has been sent before has been passed on when it answers. */
static pid_t agent_pid(sd_bus *bus)
{
        sd_bus_message *m;
        uint32_t pid;

        if (sd_bus_call_method(bus, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                               "org.freedesktop.DBus", "GetConnectionUnixProcessID", NULL, &m,
                               "s", NAME) < 0 ||
            sd_bus_message_read(m, "u", &pid) < 0)
                exit(1);
        sd_bus_message_unref(m);
        return (pid_t) pid;
}

static void between(const char *address, const struct call *c)
{
        static uint64_t numbers[PINGS], number;
        const struct call page = {PATH, MANAGER, "GetNodes", true};
        sd_bus *bus = open_bus(address);
        uint64_t *ping = numbers, *answer = &number;
        sd_bus_message *m = call_of(bus, &page, 1);
        struct flood f = {.bus = bus};
        pid_t pid = agent_pid(bus);
        unsigned before = 0;

        /* He is known, as long as something of his is there: it is not asked who asks. */
        if (sd_bus_call_method_async(bus, NULL, NAME, PATH, MANAGER, "WaitForRevision", on_wait,
                                     &f, "xt", INT64_MAX, UINT64_C(3600000000)) < 0 ||
            sd_bus_call(bus, m, 0, NULL, NULL) < 0)
                exit(1);
        sd_bus_message_unref(m);
        m = call_of(bus, c, UINT32_MAX);
        kill(pid, SIGSTOP);
        if (sd_bus_call_async(bus, NULL, m, on_answer, &answer, 60000000) < 0)
                exit(1);
        sd_bus_message_unref(m);
        for (int i = 0; i < PINGS; i++)
                if (sd_bus_call_method_async(bus, NULL, NAME, PATH, "org.freedesktop.DBus.Peer",
                                             "Ping", on_answer, &ping, "") < 0)
                        exit(1);
        agent_pid(bus);
        kill(pid, SIGCONT);
        while (answer == &number || ping < numbers + PINGS) {
                int r = sd_bus_process(bus, NULL);

                if (r < 0 || (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0))
                        exit(1);
        }
        for (int i = 0; i < PINGS; i++)
                before += numbers[i] < number;
        printf("%s.%s %u\n", strrchr(c->path, '/') + 1, c->method, before);
        sd_bus_flush_close_unref(bus);
}

/* ---- who goes by a list, and by the news after it ---- */

#define CROWD_MAX 2000
#define LISTS_MAX 2000

/* What one would know who had asked for that list alone. */
struct view {
        bool known[CROWD_MAX];
        unsigned n;
};
static struct view views[LISTS_MAX];

static void know(struct view *v, const char *name, bool there)
{
        int i = name[0] == 'a' ? atoi(name + 1) : CROWD_MAX;

        if (i >= CROWD_MAX || v->known[i] == there)
                return;
        v->known[i] = there;
        v->n += there ? 1 : -1u;
}

static int on_news(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        unsigned *n = userdata;
        const char *name;

        (void) error;
        if (sd_bus_message_read(m, "s", &name) >= 0)
                for (unsigned i = 0; i < *n; i++)
                        know(&views[i], name,
                             sd_bus_message_is_signal(m, MANAGER, "NodeJoined"));
        return 0;
}

static int on_list(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        unsigned *n = userdata;
        const char *name;

        (void) error;
        if (sd_bus_message_enter_container(m, 'a', "(ssxo)") < 0)
                exit(1);
        while (sd_bus_message_enter_container(m, 'r', "ssxo") > 0) {
                if (sd_bus_message_read(m, "s", &name) < 0 ||
                    sd_bus_message_skip(m, "sxo") < 0 || sd_bus_message_exit_container(m) < 0)
                        exit(1);
                know(&views[*n], name, true);
        }
        (*n)++;
        return 0;
}

static int on_revision(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        bool *done = userdata;

        (void) m;
        (void) error;
        *done = true;
        return 0;
}

static void take(sd_bus *bus)
{
        int r = sd_bus_process(bus, NULL);

        if (r < 0 || (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0))
                exit(1);
}

static int listing(const char *address, unsigned crowd)
{
        sd_bus *bus = open_bus(address);
        unsigned n = 0, asked = 0, less = 0;
        bool done = false;
        int64_t revision;

        if (sd_bus_match_signal(bus, NULL, NAME, PATH, MANAGER, "NodeJoined", on_news, &n) <
                    0 ||
            sd_bus_match_signal(bus, NULL, NAME, PATH, MANAGER, "NodeLeft", on_news, &n) < 0)
                return 1;
        while (n < LISTS_MAX && (n == 0 || views[0].n < crowd)) {
                if (asked == n) {
                        asked++;
                        if (sd_bus_call_method_async(bus, NULL, NAME, PATH, MANAGER,
                                                     "ListNodes", on_list, &n, "") < 0)
                                return 1;
                }
                take(bus);
        }
        /* Once more in the middle of a list, and it may not be answered before that. */
        if (sd_bus_get_property_trivial(bus, NAME, PATH, MANAGER, "Revision", NULL, 'x',
                                        &revision) < 0 ||
            sd_bus_call_method_async(bus, NULL, NAME, PATH, MANAGER, "WaitForRevision",
                                     on_revision, &done, "xt", revision,
                                     UINT64_C(20000000)) < 0)
                return 1;
        while (!done)
                take(bus);
        for (unsigned i = 0; i < n; i++)
                less += views[i].n < crowd;
        printf("%u lists, %u that lack something\n", n, less);
        sd_bus_flush_close_unref(bus);
        return 0;
}

/* ---- one who means harm ---- */

static int on_objects(sd_bus_message *m, void *userdata, sd_bus_error *error);

static void ask_objects(struct flood *f)
{
        if (sd_bus_call_method_async(f->bus, NULL, NAME, PATH,
                                     "org.freedesktop.DBus.ObjectManager", "GetManagedObjects",
                                     on_objects, f, "") < 0)
                exit(1);
}

static int on_objects(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct flood *f = userdata;

        (void) error;
        if (sd_bus_message_is_method_error(m, NULL)) {
                f->refused++;
                return 0; /* or it would only be refused again */
        }
        f->answers++;
        ask_objects(f);
        return 0;
}

static void serve(struct flood *f, double until)
{
        while (now_ms(CLOCK_MONOTONIC) < until) {
                int r = sd_bus_process(f->bus, NULL);

                if (r < 0)
                        exit(1);
                if (r == 0 && sd_bus_wait(f->bus, 100000) < 0)
                        exit(1);
        }
}

static void hostile(const char *address, int i, double until)
{
        struct flood f = {.bus = open_bus(address)};

        if (i == 0) {
                for (int k = 0; k < 64; k++)
                        ask_objects(&f);
                serve(&f, until);
                printf("objects: %u answers, %u refused\n", f.answers, f.refused);
        } else if (i == 1) {
                for (int k = 0; k < 1000; k++)
                        if (sd_bus_call_method_async(f.bus, NULL, NAME, PATH, MANAGER,
                                                     "WaitForRevision", on_wait, &f, "xt",
                                                     INT64_MAX, UINT64_C(3600000000)) < 0)
                                exit(1);
                serve(&f, until);
                printf("waits: %u refused\n", f.refused);
        } else {
                while (now_ms(CLOCK_MONOTONIC) < until) {
                        sd_bus_message *m = call_of(f.bus, &dear[f.answers % N_DEAR], 0);

                        (void) sd_bus_call(f.bus, m, 0, NULL, NULL);
                        sd_bus_message_unref(m);
                        f.answers++;
                }
                printf("loop: %u answers\n", f.answers);
        }
        fflush(stdout);
        sd_bus_close_unref(f.bus);
        exit(0);
}

static int all_hostile(const char *address, double until)
{
        int status, failed = 0;

        for (int i = 0; i < 10; i++)
                if (fork() == 0)
                        hostile(address, i, until);
        while (wait(&status) > 0)
                failed += status != 0;
        return failed > 0;
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

        if (argc == 3 && strcmp(argv[2], "polkit") == 0)
                return polkit(argv[1]);
        if (argc != 4 || s == MAP_FAILED)
                return 2;
        if (strcmp(argv[2], "between") == 0) {
                for (size_t i = 0; i < N_DEAR; i++)
                        if (strcmp(argv[3], "all") == 0 || strcmp(argv[3], dear[i].method) == 0)
                                between(argv[1], &dear[i]);
                return 0;
        }
        if (strcmp(argv[2], "listing") == 0)
                return listing(argv[1], (unsigned) atoi(argv[3]));
        until = now_ms(CLOCK_MONOTONIC) + atof(argv[3]) * 1e3;
        if (strcmp(argv[2], "hostile") == 0)
                return all_hostile(argv[1], until);
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
