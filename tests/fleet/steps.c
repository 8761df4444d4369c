/* Steps of a test: faults of a fleet, and what has to be seen afterwards. */
#include <signal.h>
#include <stdio.h>

#include "fleet.h"

bool everybody_there(void *unused)
{
        (void) unused;
        for (unsigned i = 0; i < F.n_agents; i++)
                for (unsigned j = 0; j < F.n_agents; j++)
                        if (F.agents[i].pid > 0 && F.agents[j].pid > 0 &&
                            !F.agents[i].sees[j].there)
                                return false;
        return true;
}

int64_t kill_agent(unsigned victim)
{
        int64_t half = (int64_t) F.ttl_ms * 500, first = last_renewal(victim), renewed = first;

        /* One that was answered at once - a grant may have waited for a leader - and not long
         * ago: it renews at TTL/2, and well before that, what it names as its last renewal is
         * the last one. */
        for (int i = 0; i < 2000 && (renewed == first || now_us() - renewed > half / 2); i++) {
                wait_until(NULL, NULL, 5000);
                renewed = last_renewal(victim);
        }
        stop_process(&F.agents[victim].pid, SIGKILL);
        return renewed;
}

static bool all_said_left(void *arg)
{
        unsigned victim = *(unsigned *) arg;

        for (unsigned i = 0; i < F.n_agents; i++)
                if (i != victim && F.agents[i].pid > 0 && F.agents[i].sees[victim].there)
                        return false;
        return true;
}

bool wait_left(unsigned victim, int64_t usec, int64_t *ret_first, int64_t *ret_last)
{
        bool all = wait_until(all_said_left, &victim, usec);

        *ret_first = INT64_MAX;
        *ret_last = 0;
        for (unsigned i = 0; i < F.n_agents; i++) {
                int64_t at = F.agents[i].sees[victim].left_at;

                if (i == victim || F.agents[i].pid <= 0)
                        continue;
                *ret_first = at < *ret_first ? at : *ret_first;
                *ret_last = at > *ret_last ? at : *ret_last;
        }
        return all;
}

struct renewals {
        int64_t since, last;
        bool seen[AGENTS_MAX];
};

static bool all_renewed(void *arg)
{
        struct renewals *r = arg;
        bool all = true;

        for (unsigned i = 0; i < F.n_agents; i++) {
                int64_t at;

                if (F.agents[i].pid <= 0 || r->seen[i])
                        continue;
                at = last_renewal(i);
                r->seen[i] = at > r->since;
                all = all && r->seen[i];
                r->last = at > r->last ? at : r->last;
        }
        return all;
}

bool wait_renewed(int64_t since, int64_t usec, int64_t *ret_last)
{
        struct renewals r = {.since = since, .last = since};
        bool all = wait_until(all_renewed, &r, usec);

        if (ret_last)
                *ret_last = r.last;
        return all;
}
