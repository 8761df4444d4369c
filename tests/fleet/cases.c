/* `make test`: what the agents have to report, and when, round after round. Prints one line per
 * case, "ok" or "not ok", and the spread of every time it measured. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fleet.h"

/* A timeout of 500 ms is drawn up to twice that, plus the votes, which may be split once. */
#define ELECTION_US 2100000

static unsigned n_ok, n_not_ok;

/* How late a report may be on a machine that does much else. How late it is on a quiet one is
 * measured: tests/bench. */
static int64_t slack(void)
{
        return (int64_t) F.ttl_ms * 500;
}

static void result(bool ok, const char *what)
{
        printf("%s %s\n", ok ? "ok" : "not ok", what);
        fflush(stdout);
        n_ok += ok;
        n_not_ok += !ok;
}

struct counts {
        unsigned left, joined, lost, repeated;
};

static struct counts count(void)
{
        struct counts c = {0};

        for (unsigned i = 0; i < F.n_agents; i++) {
                c.lost += F.agents[i].n_lost;
                c.repeated += F.agents[i].n_repeated;
                for (unsigned j = 0; j < F.n_agents; j++) {
                        c.left += F.agents[i].sees[j].n_left;
                        c.joined += F.agents[i].sees[j].n_joined;
                }
        }
        return c;
}

static void come_back(unsigned victim)
{
        start_agent(victim);
        if (!wait_until(everybody_there, NULL, PATIENCE_US))
                die("%s does not come back", F.agents[victim].name);
}

/* SIGKILL: every other agent says so at TTL after the last renewal, not before, once, as
 * `expired`. */
static void death(unsigned round)
{
        unsigned victim = round % F.n_agents;
        int64_t first, last, renewed, ttl = (int64_t) F.ttl_ms * 1000;
        struct counts before = count(), after;
        bool reason = true, all;
        char text[200];

        renewed = kill_agent(victim);
        all = wait_left(victim, ttl + 3000000, &first, &last);
        for (unsigned i = 0; i < F.n_agents; i++)
                reason = reason && (i == victim ||
                                    strcmp(F.agents[i].sees[victim].reason, "expired") == 0);
        after = count();
        snprintf(text, sizeof(text),
                 "SIGKILL of %s: reported %.1f to %.1f ms after its last renewal, TTL %u ms",
                 F.agents[victim].name, (double) (first - renewed) / 1e3,
                 (double) (last - renewed) / 1e3, F.ttl_ms);
        result(all && reason && first - renewed >= ttl && last - renewed <= ttl + slack() &&
                       after.left == before.left + F.n_agents - 1 && after.repeated == 0,
               text);
        come_back(victim);
}

/* SIGTERM: every other agent says so at once, as `left`. */
static void leave(unsigned round)
{
        unsigned victim = (round + 1) % F.n_agents;
        int64_t first, last, began;
        bool reason = true, all;
        char text[200];

        began = now_us();
        kill(F.agents[victim].pid, SIGTERM);
        all = wait_left(victim, 3000000, &first, &last);
        stop_process(&F.agents[victim].pid, SIGTERM);
        for (unsigned i = 0; i < F.n_agents; i++)
                reason = reason &&
                         (i == victim || strcmp(F.agents[i].sees[victim].reason, "left") == 0);
        snprintf(text, sizeof(text), "SIGTERM of %s: reported %.1f to %.1f ms later, as 'left'",
                 F.agents[victim].name, (double) (first - began) / 1e3,
                 (double) (last - began) / 1e3);
        result(all && reason && last - began <= slack(), text);
        come_back(victim);
}

/* The next round needs a majority that survives its kill. */
static void restart_core(unsigned who)
{
        start_core(who);
        if (!wait_until(in_quorum, &F.cores[who], PATIENCE_US))
                die("%s has no leader after its restart", F.cores[who].name);
}

/* kill -9 of the leader: nobody is lost, nobody thinks so, keep-alives go on (A9, A32). */
static void lead(void)
{
        struct counts before = count(), after;
        int who = leader();
        int64_t killed, took, last;
        char text[200];
        bool renewed;

        if (who < 0)
                die("there is no leader");
        killed = now_us();
        stop_process(&F.cores[who].pid, SIGKILL);
        renewed = wait_renewed(killed, (int64_t) F.ttl_ms * 1000 + 3000000, &last);
        took = now_us() - killed;
        wait_until(NULL, NULL, (int64_t) F.ttl_ms * 1500);
        after = count();
        snprintf(
                text, sizeof(text),
                "SIGKILL of the leader %s: all renewed %.0f ms later, the last by what it sent "
                "after %.0f ms; nobody was lost",
                F.cores[who].name, (double) took / 1e3, (double) (last - killed) / 1e3);
        result(renewed && after.left == before.left && after.lost == before.lost &&
                       after.repeated == 0,
               text);
        restart_core((unsigned) who);
}

/* A node and the leader die in the same moment: reported within TTL + election, each event
 * once. */
static void both(unsigned round)
{
        unsigned victim = (round + 2) % F.n_agents;
        int64_t first, last, renewed, ttl = (int64_t) F.ttl_ms * 1000;
        struct counts before = count(), after;
        int who = leader();
        char text[200];
        bool all;

        if (who < 0)
                die("there is no leader");
        renewed = kill_agent(victim);
        stop_process(&F.cores[who].pid, SIGKILL);
        all = wait_left(victim, ttl + 5000000, &first, &last);
        wait_until(NULL, NULL, 500000);
        after = count();
        snprintf(text, sizeof(text),
                 "SIGKILL of %s and of the leader %s: reported %.0f to %.0f ms after its last "
                 "renewal; %u others lost their place",
                 F.agents[victim].name, F.cores[who].name, (double) (first - renewed) / 1e3,
                 (double) (last - renewed) / 1e3, after.lost - before.lost);
        result(all && first - renewed >= ttl && last - renewed <= ttl + ELECTION_US + slack() &&
                       after.left == before.left + F.n_agents - 1 &&
                       after.lost == before.lost && after.repeated == 0,
               text);
        restart_core((unsigned) who);
        come_back(victim);
}

static bool one_renewed(void *since)
{
        for (unsigned i = 0; i < F.n_agents; i++)
                if (last_renewal(i) > *(int64_t *) since)
                        return true;
        return false;
}

/* kill -9 of every replica, and a restart: leases and keys are there, nobody was lost, though
 * the outage was one for all. */
static void restart_all(void)
{
        int64_t killed, back, took, half = (int64_t) F.ttl_ms * 500;
        struct counts before = count(), after;
        bool renewed, brief;
        char text[200];

        killed = now_us();
        for (unsigned i = 0; i < F.n_cores; i++)
                stop_process(&F.cores[i].pid, SIGKILL);
        for (unsigned i = 0; i < F.n_cores; i++)
                start_core(i);
        renewed = wait_until(one_renewed, &killed, PATIENCE_US);
        back = now_us() - killed;
        renewed =
                wait_renewed(killed, (int64_t) F.ttl_ms * 1000 + PATIENCE_US, NULL) && renewed;
        took = now_us() - killed;
        wait_until(NULL, NULL, (int64_t) F.ttl_ms * 1500);
        after = count();
        /* Every agent had half of its TTL left, and a little less where its request was on its
         * way; it asks again each 0.6 s at least. If the replicas took longer than that, one
         * whose deadline passed gave up, rightly. */
        brief = back < half - 800000 || took < half - 100000;
        snprintf(text, sizeof(text),
                 "SIGKILL and restart of all replicas: all renewed %.0f ms later%s",
                 (double) took / 1e3,
                 brief ? ", and nobody was lost" : "; who was lost is not judged");
        result(renewed && after.repeated == 0 &&
                       (!brief || (after.left == before.left && after.lost == before.lost)),
               text);
        if (!wait_until(everybody_there, NULL, PATIENCE_US))
                die("not everybody came back");
}

int cases(unsigned rounds)
{
        bool own_core = F.n_cores > 0;

        fleet_start();
        result(wait_until(everybody_there, NULL, PATIENCE_US), "every agent sees every node");
        for (unsigned round = 0; round < rounds && n_not_ok == 0; round++) {
                if (own_core) /* a real etcd revokes in its own time */
                        death(round);
                leave(round);
                if (own_core && F.n_cores > 1) {
                        lead();
                        both(round);
                }
        }
        if (own_core && n_not_ok == 0)
                restart_all();
        fleet_stop();
        printf("%u passed, %u failed\n", n_ok, n_not_ok);
        return n_not_ok == 0 ? 0 : 1;
}
