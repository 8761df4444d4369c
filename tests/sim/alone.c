/*
 * Alone: members are removed, some of them behind a cut link so that they do not hear of it,
 * until one is left. That one serves alone, crashes, and starts again by itself, while the
 * removed ones are back with their old disks, members as far as they know, and stand for
 * election. Then they are added, and it all begins again.
 */
#include "world.h"

static struct {
        enum act { SHRINKS, SERVES, GROWS } act;
        nsec_t until;
        bool in_peace; /* it serves without a crash */
} story;

void alone_begin(void)
{
        story.act = SHRINKS;
        story.until = NEVER;
}

static void act(struct world *w, enum act what, nsec_t least, nsec_t most)
{
        story.act = what;
        story.until = w->now + some_time(w, least, most);
}

static void remove_one(struct world *w, struct replica_node *leader, unsigned voters,
                       const int *role)
{
        struct replica_node *n = replica_but(w, leader);

        if (voters == 1) {
                story.in_peace = chance(w, 50);
                return act(w, SERVES, 100 * MSEC, story.in_peace ? 4000 * MSEC : 2000 * MSEC);
        }
        ask_reads(w, leader->i, 2); /* some will wait for one that is removed */
        if (role[n->i] == 0)
                return;
        /* With three voters left, the other one is needed. */
        if (chance(w, 40))
                cut_off(w, n, false);
        w->counts.changes++;
        ask_change(w, leader, REPLICA_REMOVE, n->id);
}

static void serve(struct world *w, struct replica_node *leader)
{
        if (chance(w, 40))
                memset(w->cut, 0, sizeof(w->cut)); /* the removed ones are reachable again */
        if (chance(w, 50))
                ask_writes(w, leader->i, (unsigned) rnd_between(&w->rnd, 1, 4));
        if (!story.in_peace && chance(w, 20))
                crash(w, leader);
        if (w->now >= story.until)
                act(w, GROWS, 100 * MSEC, 1500 * MSEC);
}

static void add_one(struct world *w, struct replica_node *leader, unsigned voters,
                    const int *role)
{
        struct replica_node *n = replica_but(w, leader);

        if (voters == w->n_replicas || w->now >= story.until)
                return act(w, SHRINKS, 0, 0);
        memset(w->cut, 0, sizeof(w->cut));
        if (role[n->i] == 2)
                return;
        w->counts.changes++;
        ask_change(w, leader,
                   role[n->i] == 1 ? REPLICA_PROMOTE
                   : chance(w, 50) ? REPLICA_ADD
                                   : REPLICA_ADD_LEARNER,
                   n->id);
}

void alone_go_on(struct world *w)
{
        struct replica_node *leader = the_leader(w);
        int role[REPLICAS_MAX];
        unsigned voters = leader ? roles_of(leader, role) : 0;

        for (unsigned i = 0; i < w->n_replicas; i++)
                if (!w->r[i].up && chance(w, 20))
                        boot(w, &w->r[i]);
        if (!leader) {
                if (chance(w, 5))
                        memset(w->cut, 0, sizeof(w->cut));
        } else if (story.act == SHRINKS) {
                remove_one(w, leader, voters, role);
        } else if (story.act == SERVES) {
                serve(w, leader);
        } else {
                add_one(w, leader, voters, role);
        }
        if (leader && leader->up && chance(w, 5) && !(story.act == SERVES && story.in_peace))
                crash(w, chance(w, 50) ? leader : replica_but(w, leader));
        if (chance(w, 3))
                move_leader(w);
        post(w, some_time(w, 3 * MSEC, 60 * MSEC), EV_SCRIPT);
}
