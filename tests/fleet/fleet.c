/*
 * A fleet on one machine: N core replicas and M agents, each agent on a bus of its own, and an
 * observer on every bus.
 *
 * `make run` uses it as the demonstration, `make test` to check what the agents report on D-Bus
 * and when. Every process it starts dies with it; every file is below --dir. Times are
 * CLOCK_BOOTTIME, counted from the last renewal that the agent itself reports.
 */
#include "fleet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define ROOT "/org/tenure/Membership1"

struct fleet F = {.log_level = "info"};

int64_t now_us(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void say(const char *fmt, ...)
{
        va_list ap;

        printf("%8.3f  ", (double) (now_us() - F.began) / 1e6);
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        putchar('\n');
        fflush(stdout);
}

void die(const char *fmt, ...)
{
        va_list ap;

        fprintf(stderr, "fleet: ");
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fprintf(stderr, "; the logs are in %s\n", F.dir);
        exit(1);
}

/* ---- processes ---- */

static pid_t spawn(const char *log, char *const argv[])
{
        pid_t parent = getpid(), pid = fork();

        if (pid < 0)
                die("cannot fork: %s", strerror(errno));
        if (pid == 0) {
                int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
                sigset_t none;

                /* No process outlives us, however we end. */
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
                /* As from a login, whatever began us; but Ctrl-C is the fleet's: it ends them
                 * in order. */
                for (int n = 1; n < NSIG; n++)
                        signal(n, SIG_DFL);
                signal(SIGINT, SIG_IGN);
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                dup2(fd, STDOUT_FILENO);
                dup2(fd, STDERR_FILENO);
                execvp(argv[0], argv);
                fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
                _exit(127);
        }
        return pid;
}

void stop_process(pid_t *pid, int signo)
{
        int status;

        if (*pid <= 0)
                return;
        kill(*pid, signo);
        waitpid(*pid, &status, 0);
        *pid = 0;
}

/* Whether some test that lives has it: the file of its name has the test's pid in it. */
static bool is_reserved(int dir, const char *name)
{
        char text[32] = "", path[48];
        int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return errno != ENOENT;
        (void) !read(fd, text, sizeof(text) - 1);
        close(fd);
        snprintf(path, sizeof(path), "/proc/%ld", strtol(text, NULL, 10));
        /* What a test has left is another user's, perhaps. */
        return access(path, F_OK) == 0 || unlinkat(dir, name, 0) < 0;
}

static void reserve(int dir, const char *name)
{
        int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        /* Whoever else looks for a port reads it, whatever our umask. */
        if (fd < 0 || fchmod(fd, 0644) < 0 || dprintf(fd, "%ld", (long) getpid()) < 0)
                die("cannot reserve port %s: %s", name, strerror(errno));
        close(fd);
}

/* Of loopback, below those that the kernel gives to callers, and nobody else's while we live:
 * as tests/harness/ports.py has it. */
static uint16_t free_port(void)
{
        static const char *const path = "/tmp/tenure-ports"; /* whatever our $TMPDIR is */
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        char name[8];
        uint16_t port = 0;
        int dir;

        if (mkdir(path, 0755) == 0)
                chmod(path, 01777); /* whoever runs tests */
        dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 || flock(dir, LOCK_EX) < 0)
                die("cannot reserve a port in %s: %s", path, strerror(errno));
        while (port == 0) {
                uint16_t try = (uint16_t) (10240 + arc4random_uniform(32768 - 10240));
                int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

                a.sin_port = htons(try);
                snprintf(name, sizeof(name), "%u", try);
                if (fd < 0)
                        die("no socket: %s", strerror(errno));
                if (is_reserved(dir, name) || bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0) {
                        close(fd);
                        continue;
                }
                reserve(dir, name);
                /* Kept open until all are chosen: a program that reserves none takes none. */
                F.port_fds[F.n_port_fds++] = fd;
                port = try;
        }
        close(dir);
        return port;
}

static void release_ports(void)
{
        while (F.n_port_fds > 0)
                close(F.port_fds[--F.n_port_fds]);
}

void start_core(unsigned i)
{
        struct core *c = &F.cores[i];
        char bin[600], data[600], log[600];
        struct stat st;
        char *argv[] = {bin,
                        "--name",
                        c->name,
                        "--data-dir",
                        data,
                        "--listen-client-urls",
                        c->client_url,
                        "--listen-peer-urls",
                        c->peer_url,
                        "--initial-cluster",
                        F.initial_cluster,
                        "--log-level",
                        F.log_level,
                        NULL};

        snprintf(bin, sizeof(bin), "%s/tenure-core", F.bin);
        snprintf(data, sizeof(data), "%s/%s", F.dir, c->name);
        snprintf(log, sizeof(log), "%s/%s.log", F.dir, c->name);
        c->log_from = stat(log, &st) == 0 ? st.st_size : 0;
        c->pid = spawn(log, argv);
}

void start_agent(unsigned i)
{
        struct agent *a = &F.agents[i];
        char bin[600], log[600], id[33], ttl[16];
        char *argv[] = {bin,     "--endpoints", F.endpoints, "--node-name",
                        a->name, "--node-id",   id,          "--ttl",
                        ttl,     "--log-level", F.log_level, NULL};

        snprintf(bin, sizeof(bin), "%s/tenured", F.bin);
        snprintf(log, sizeof(log), "%s/%s.log", F.dir, a->name);
        snprintf(id, sizeof(id), "%032x", i + 1);
        snprintf(ttl, sizeof(ttl), "%ums", F.ttl_ms);
        /* A new agent tells from the start. */
        for (unsigned k = 0; k < F.n_agents; k++) {
                a->sees[k].revision = 0;
                a->sees[k].there = false;
        }
        setenv("DBUS_SYSTEM_BUS_ADDRESS", a->address, 1);
        a->pid = spawn(log, argv);
        unsetenv("DBUS_SYSTEM_BUS_ADDRESS");
}

static void start_bus(unsigned i)
{
        struct agent *a = &F.agents[i];
        char conf[600], arg[640], log[600];
        char *argv[] = {"dbus-daemon", arg, "--nofork", "--nopidfile", NULL};
        FILE *f;

        snprintf(conf, sizeof(conf), "%s/%s-bus.conf", F.dir, a->name);
        snprintf(log, sizeof(log), "%s/%s-bus.log", F.dir, a->name);
        snprintf(arg, sizeof(arg), "--config-file=%s", conf);
        /* Abstract: no file, and no limit on how deep we were cloned. */
        snprintf(a->address, sizeof(a->address), "unix:abstract=tenure-fleet-%d-%s", getpid(),
                 a->name);
        f = fopen(conf, "we");
        if (!f)
                die("cannot write %s: %s", conf, strerror(errno));
        fprintf(f,
                "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration "
                "1.0//EN\"\n"
                " \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n"
                "<busconfig><type>session</type><listen>%s</listen><policy "
                "context=\"default\">\n"
                "<allow send_destination=\"*\" eavesdrop=\"true\"/><allow "
                "eavesdrop=\"true\"/><allow own=\"*\"/>\n"
                "</policy></busconfig>\n",
                a->address);
        fclose(f);
        a->bus_pid = spawn(log, argv);
}

/* ---- spectators ---- */

static int find_agent(const char *name)
{
        for (unsigned i = 0; i < F.n_agents; i++)
                if (strcmp(F.agents[i].name, name) == 0)
                        return (int) i;
        return -1;
}

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *member = sd_bus_message_get_member(m), *name = "", *id, *reason = "";
        struct agent *a = userdata;
        int64_t revision = 0, at = now_us();
        int i, r;

        (void) error;
        if (strcmp(member, "LeaseLost") == 0) {
                a->n_lost++;
                r = sd_bus_message_read(m, "s", &reason);
                if (F.verbose)
                        say("%s: lost its own place: %s", a->name, reason);
                return r < 0 ? r : 0;
        }
        if (strcmp(member, "NodeJoined") != 0 && strcmp(member, "NodeLeft") != 0)
                return 0;
        r = strcmp(member, "NodeLeft") == 0
                    ? sd_bus_message_read(m, "sssx", &name, &id, &reason, &revision)
                    : sd_bus_message_read(m, "ssx", &name, &id, &revision);
        if (r < 0)
                return r;
        i = find_agent(name);
        if (i < 0)
                return 0;
        /* No event twice, none out of order; who takes its own place over leaves and joins at
         * one revision. */
        if (revision < a->sees[i].revision ||
            (revision == a->sees[i].revision &&
             (strcmp(member, "NodeJoined") != 0 || a->sees[i].there)))
                a->n_repeated++;
        a->sees[i].revision = revision;
        if (strcmp(member, "NodeJoined") == 0) {
                a->sees[i].there = true;
                a->sees[i].n_joined++;
        } else {
                a->sees[i].there = false;
                a->sees[i].n_left++;
                a->sees[i].left_at = at;
                snprintf(a->sees[i].reason, sizeof(a->sees[i].reason), "%s", reason);
        }
        if (F.verbose && *reason)
                say("%s says on D-Bus: %s left (%s)", a->name, name, reason);
        return 0;
}

static void spectate(unsigned i)
{
        struct agent *a = &F.agents[i];
        int64_t limit = now_us() + PATIENCE_US;
        int r;

        for (;;) {
                r = sd_bus_new(&a->bus);
                if (r >= 0)
                        r = sd_bus_set_address(a->bus, a->address);
                if (r >= 0)
                        r = sd_bus_set_bus_client(a->bus, true);
                if (r >= 0)
                        r = sd_bus_start(a->bus);
                if (r >= 0)
                        break;
                a->bus = sd_bus_unref(a->bus);
                if (now_us() > limit)
                        die("no bus at %s: %s", a->address, strerror(-r));
                poll(NULL, 0, 5); /* nothing tells when a daemon listens */
        }
        r = sd_bus_match_signal(a->bus, NULL, NAME, ROOT, MANAGER, NULL, on_signal, a);
        if (r < 0)
                die("cannot subscribe: %s", strerror(-r));
}

/* Handles what the buses have; waits for at most @usec. */
static void turn(int64_t usec)
{
        struct pollfd p[AGENTS_MAX];
        bool busy = false;

        for (unsigned i = 0; i < F.n_agents; i++) {
                int r;

                while ((r = sd_bus_process(F.agents[i].bus, NULL)) > 0)
                        busy = true;
                if (r < 0)
                        die("the bus of %s broke: %s", F.agents[i].name, strerror(-r));
                p[i] = (struct pollfd){.fd = sd_bus_get_fd(F.agents[i].bus),
                                       .events = (short) sd_bus_get_events(F.agents[i].bus)};
        }
        if (!busy && poll(p, F.n_agents, (int) (usec / 1000) + 1) < 0 && errno != EINTR)
                die("poll: %s", strerror(errno));
}

bool wait_until(bool (*done)(void *arg), void *arg, int64_t usec)
{
        int64_t limit = now_us() + usec;

        for (;;) {
                int64_t left = limit - now_us();

                if (done && done(arg))
                        return true;
                if (left <= 0 || F.interrupted)
                        return false;
                turn(left < 20000 ? left : 20000);
        }
}

int64_t last_renewal(unsigned i)
{
        uint64_t usec = 0;

        if (sd_bus_get_property_trivial(F.agents[i].bus, NAME, ROOT, MANAGER, "LastRenewalUSec",
                                        NULL, 't', &usec) < 0)
                return 0;
        return (int64_t) usec;
}

void state_of(unsigned i, char *out, size_t size)
{
        char *s = NULL;

        snprintf(out, size, "?");
        if (sd_bus_get_property_string(F.agents[i].bus, NAME, ROOT, MANAGER, "State", NULL,
                                       &s) >= 0)
                snprintf(out, size, "%s", s);
        free(s);
}

/* ---- ---- */

/* The highest term of which the log of replica @i says @what, from @from on; 0: of none. */
static unsigned long term_of(unsigned i, off_t from, const char *what)
{
        char path[600], *line = NULL;
        unsigned long best = 0;
        size_t cap = 0;
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s.log", F.dir, F.cores[i].name);
        f = fopen(path, "re");
        if (f && fseeko(f, from, SEEK_SET) < 0)
                die("cannot read %s: %s", path, strerror(errno));
        while (f && getline(&line, &cap, f) > 0) {
                const char *s = strstr(line, what);
                unsigned long term = s ? strtoul(s + strlen(what), NULL, 10) : 0;

                best = term > best ? term : best;
        }
        free(line);
        if (f)
                fclose(f);
        return best;
}

/* The leader, as the logs tell: the highest term in which somebody said that it leads. */
int leader(void)
{
        unsigned long best = 0;
        int who = -1;

        for (unsigned i = 0; i < F.n_cores; i++) {
                unsigned long term = F.cores[i].pid > 0 ? term_of(i, 0, "leads now (term ") : 0;

                if (term > best) {
                        best = term;
                        who = (int) i;
                }
        }
        return who;
}

bool in_quorum(void *core)
{
        const struct core *c = core;

        /* "This replica leads now (term 2).", "Following core1 (term 2)." */
        return term_of((unsigned) (c - F.cores), c->log_from, " (term ") > 0;
}

static void remove_tree(const char *dir)
{
        char command[700];

        snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
        if (system(command) != 0)
                die("cannot empty %s", dir);
}

void fleet_start(void)
{
        size_t n = 0, m = 0;

        remove_tree(F.dir);
        if (mkdir(F.dir, 0755) < 0)
                die("cannot make %s: %s", F.dir, strerror(errno));
        for (unsigned i = 0; i < F.n_cores; i++) {
                struct core *c = &F.cores[i];

                snprintf(c->name, sizeof(c->name), "core%u", i + 1);
                snprintf(c->client_url, sizeof(c->client_url), "http://127.0.0.1:%u",
                         free_port());
                snprintf(c->peer_url, sizeof(c->peer_url), "http://127.0.0.1:%u", free_port());
                n += (size_t) snprintf(F.initial_cluster + n, sizeof(F.initial_cluster) - n,
                                       "%s%s=%s", i ? "," : "", c->name, c->peer_url);
                m += (size_t) snprintf(F.own_endpoints + m, sizeof(F.own_endpoints) - m, "%s%s",
                                       i ? "," : "", c->client_url);
        }
        release_ports();
        if (F.n_cores > 0)
                snprintf(F.endpoints, sizeof(F.endpoints), "%s", F.own_endpoints);
        for (unsigned i = 0; i < F.n_cores; i++)
                start_core(i);
        for (unsigned i = 0; i < F.n_agents; i++) {
                snprintf(F.agents[i].name, sizeof(F.agents[i].name), "node%u", i + 1);
                start_bus(i);
        }
        for (unsigned i = 0; i < F.n_agents; i++)
                spectate(i);
        for (unsigned i = 0; i < F.n_agents; i++)
                start_agent(i);
}

void fleet_stop(void)
{
        for (unsigned i = 0; i < F.n_agents; i++)
                stop_process(&F.agents[i].pid, SIGTERM);
        for (unsigned i = 0; i < F.n_cores; i++)
                stop_process(&F.cores[i].pid, SIGKILL);
        for (unsigned i = 0; i < F.n_agents; i++) {
                F.agents[i].bus = sd_bus_close_unref(F.agents[i].bus);
                stop_process(&F.agents[i].bus_pid, SIGTERM);
        }
}
