/* A member that has never run has acknowledged nothing, and a leader must not take entries for
 * its own that another member has acknowledged, for example the one in whose place it was put:
 * entries would count as being on a disk that is empty (I5). */
#include "acked.h"

#include "consensus/internal.h"
#include "world.h"

#define RAN_MAX 512

/* The members that have run. */
static uint64_t ran[RAN_MAX];
static size_t n_ran;

void acked_begin(void)
{
        n_ran = 0;
}

static bool has_run(uint64_t id)
{
        for (size_t i = 0; i < n_ran; i++)
                if (ran[i] == id)
                        return true;
        return false;
}

void acked_starts(struct world *w, uint64_t id)
{
        if (has_run(id))
                return;
        if (n_ran == RAN_MAX)
                return fail_full(w, "members that have run");
        ran[n_ran++] = id;
}

void acked_look(struct world *w)
{
        const struct replica_node *n = the_leader(w);
        const struct raft_configuration *c = n ? replica_conf(n->node.replica) : NULL;

        for (unsigned i = 0; c && i < c->n; i++) {
                uint64_t id = c->servers[i].id, match;

                if (!has_run(id) && libraft_match(n->node.replica, id, &match) && match > 0)
                        fail(w,
                             "I5: leader %u takes entry %llu for acknowledged by member %llx, "
                             "which has never run",
                             n->i + 1, (unsigned long long) match, (unsigned long long) id);
        }
}
