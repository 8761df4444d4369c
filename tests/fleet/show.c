/* `make run`: the fleet as a demonstration, and, with ONESHOT=1, as its own check. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet.h"

static unsigned failures;

static void verdict(bool right, const char *what)
{
        say("%s %s", right ? "  ok:   " : "  WRONG:", what);
        failures += !right;
}

static unsigned lost(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < F.n_agents; i++)
                n += F.agents[i].n_lost;
        return n;
}

static unsigned departures(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < F.n_agents; i++)
                for (unsigned j = 0; j < F.n_agents; j++)
                        n += F.agents[i].sees[j].n_left;
        return n;
}

static void show_death(void)
{
        unsigned victim = F.n_agents - 1;
        int64_t renewed, first, last, ttl = (int64_t) F.ttl_ms * 1000;
        char text[200];

        say("--- %s is killed without warning (kill -9) ---", F.agents[victim].name);
        renewed = kill_agent(victim);
        verdict(wait_left(victim, ttl + 3000000, &first, &last),
                "all the others said on D-Bus that it left");
        snprintf(text, sizeof(text),
                 "they said so %.0f to %.0f ms after its last renewal: not before its TTL of "
                 "%u ms, soon after",
                 (double) (first - renewed) / 1e3, (double) (last - renewed) / 1e3, F.ttl_ms);
        verdict(first - renewed >= ttl && last - renewed <= ttl + 200000, text);
        start_agent(victim);
        verdict(wait_until(everybody_there, NULL, 5000000),
                "it was started again, and everybody sees it");
}

/* A replica that has begun listens to clients. */
static bool listens(void *arg)
{
        const struct core *c = arg;
        struct sockaddr_in a = {
                .sin_family = AF_INET,
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                .sin_port = htons((uint16_t) atoi(strrchr(c->client_url, ':') + 1))};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool yes = fd >= 0 && connect(fd, (const void *) &a, sizeof(a)) == 0;

        if (fd >= 0)
                close(fd);
        return yes;
}

static void show_leader(void)
{
        unsigned before = departures(), before_lost = lost();
        int64_t killed;
        char text[200];
        int who = leader();

        if (who < 0) {
                verdict(false, "the core has a leader");
                return;
        }
        say("--- the core's leader, %s, is killed without warning (kill -9) ---",
            F.cores[who].name);
        killed = now_us();
        stop_process(&F.cores[who].pid, SIGKILL);
        verdict(wait_renewed(killed, 5000000, NULL),
                "every node has renewed its lease with the new leader");
        snprintf(text, sizeof(text), "the last of them %.0f ms after the kill",
                 (double) (now_us() - killed) / 1e3);
        say("          %s", text);
        wait_until(NULL, NULL, (int64_t) F.ttl_ms * 1500);
        verdict(departures() == before && lost() == before_lost,
                "no node was lost, none thought that it was");
        start_core((unsigned) who);
        verdict(wait_until(listens, &F.cores[who], 5000000), "it was started again");
}

/* The fleet as `tenurectl top` has it; each node is to be there, and held. */
static void show_table(void)
{
        char command[800], line[512];
        unsigned held = 0;
        FILE *f;

        snprintf(command, sizeof(command), "'%s/tenurectl' --bus='%s' top --once", F.bin,
                 F.agents[0].address);
        putchar('\n');
        fflush(stdout);
        f = popen(command, "re");
        while (f && fgets(line, sizeof(line), f)) {
                held += strncmp(line, "node", 4) == 0 && strstr(line, " held ");
                printf("  %s", line);
        }
        putchar('\n');
        verdict(f && pclose(f) == 0 && held == F.n_agents,
                "tenurectl top has every node, and each holds its place");
}

/* Where else to look at it. */
static void print_places(void)
{
        printf("  %s/tenurectl --bus=%s top        # this table, live\n", F.bin,
               F.agents[0].address);
        printf("  %s/        # the same in a browser\n", F.cores[0].client_url);
}

static void print_help(void)
{
        printf("\nThe fleet stays up until Ctrl-C. In another terminal, try:\n\n");
        print_places();
        printf("  %s/tenurectl --bus=%s nodes\n"
               "  %s/tenurectl --bus=%s watch\n"
               "  busctl --address=%s introspect org.tenure.Membership1 "
               "/org/tenure/Membership1\n"
               "  busctl --address=%s call org.tenure.Membership1 /org/tenure/Membership1 "
               "org.tenure.Membership1.Manager ListNodes\n"
               "  ETCDCTL_API=3 etcdctl --endpoints=%s get /tenure/ --prefix\n"
               "  ETCDCTL_API=3 etcdctl --endpoints=%s endpoint status --cluster -w table\n\n"
               "and kill something:",
               F.bin, F.agents[0].address, F.bin, F.agents[0].address, F.agents[0].address,
               F.agents[0].address, F.endpoints, F.cores[0].client_url);
        for (unsigned i = 0; i < F.n_agents; i++)
                printf(" %s=%d", F.agents[i].name, F.agents[i].pid);
        for (unsigned i = 0; i < F.n_cores; i++)
                printf(" %s=%d", F.cores[i].name, F.cores[i].pid);
        printf("\n\n");
        fflush(stdout);
}

int show(bool oneshot)
{
        say("%u core replicas and %u agents (TTL %u ms) start; data and logs in %s", F.n_cores,
            F.n_agents, F.ttl_ms, F.dir);
        fleet_start();
        verdict(wait_until(everybody_there, NULL, 15000000), "every agent sees every node");
        if (failures == 0)
                show_table();
        F.verbose = true;
        if (failures == 0)
                show_death();
        if (failures == 0)
                show_leader();
        if (failures == 0 && !F.interrupted)
                show_table();
        if (!oneshot && !F.interrupted) {
                print_help();
                while (!F.interrupted)
                        wait_until(NULL, NULL, 60000000);
                failures = 0;
        }
        say("stopping");
        F.verbose = false;
        fleet_stop();
        if (oneshot)
                printf("%s\n", failures == 0 ? "The fleet did what it promises."
                                             : "The fleet did NOT do what it promises.");
        return failures == 0 ? 0 : 1;
}
