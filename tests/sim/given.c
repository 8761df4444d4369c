/* What is shared is given back (core/shares.h): once all is well, there are moments in which
 * nothing waits at a replica, and then nothing counts as waiting. What is counted in all of
 * these moments was forgotten: no request would ever get it again, and in the end all are
 * refused. */
#include "given.h"

#include "core/shares.h"
#include "world.h"

static const char *const names[N_POTS] = {
        [POT_READS] = "reads",
        [POT_WRITES] = "writes",
        [POT_WRITE_BYTES] = "bytes of writes",
        [POT_CHANGES] = "changes of members",
        [POT_CACHED] = "cached ranges",
        [POT_OWN_READS] = "reads of the core's own",
        [POT_OWN_WRITES] = "writes of the core's own",
};

/* Of each replica in its present life, the least of each pot that was seen. */
static struct {
        unsigned life;
        size_t least[N_POTS];
} seen[REPLICAS_MAX];

void given_begin(void)
{
        memset(seen, 0, sizeof(seen));
}

/* A range stays cached while its term runs, and is known in the state for longer. A frame of
 * commands that has one of a later version is dropped: whoever has to learn what has become of
 * the others waits until the term ends. */
static size_t taken(const struct world *w, const struct replica_node *n, size_t pot)
{
        struct core *c = n->node.core;
        size_t is = core_shares(c)->pots[pot].n;

        if (pot == POT_CACHED)
                return sub_sat(is, core_state(c)->cached.n);
        return w->later && (pot == POT_WRITES || pot == POT_WRITE_BYTES ||
                            pot == POT_OWN_WRITES)
                       ? 0
                       : is;
}

void given_look(struct world *w)
{
        if (well_for(w) <= 0)
                return;
        for (unsigned i = 0; i < w->n_replicas; i++) {
                const struct replica_node *n = &w->r[i];

                if (!n->up)
                        continue;
                for (size_t pot = 0; pot < N_POTS; pot++)
                        seen[i].least[pot] =
                                seen[i].life == n->life
                                        ? min_of(seen[i].least[pot], taken(w, n, pot))
                                        : taken(w, n, pot);
                seen[i].life = n->life;
        }
}

void given_check(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                for (size_t pot = 0; pot < N_POTS; pot++)
                        if (w->r[i].up && w->r[i].life == seen[i].life &&
                            seen[i].least[pot] > 0)
                                fail(w, "shares: %zu %s at replica %u are never given back",
                                     seen[i].least[pot], names[pot], i + 1);
}
