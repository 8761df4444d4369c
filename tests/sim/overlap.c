/*
 * Overlap, the worst case of Raft's section 5.3: entries of a leader are on their way to a slow
 * disk when the leader goes; another leader, which does not have them, is elected and
 * overwrites them. A replica that mistakes the end of the old write for that of the new entries
 * acknowledges what a crash right after it loses.
 */
#include "base/log.h"
#include "world.h"

static struct {
        int act;
        nsec_t until; /* when this act has taken too long */
        nsec_t begun;
        unsigned old, slow, next; /* the old leader; the replica that has its entries; the next
                                   * leader */
        uint64_t term;
} story;

static void join(struct world *w, unsigned a, unsigned b, bool joined)
{
        w->cut[a][b] = w->cut[b][a] = !joined;
}

static void act(struct world *w, int n, nsec_t at_most)
{
        log_debug("%.3f s: overlap, act %d", (double) w->now / 1e9, n);
        story.act = n;
        story.begun = w->now;
        story.until = w->now + at_most;
}

static void everybody_back(struct world *w)
{
        memset(w->cut, 0, sizeof(w->cut));
        for (unsigned i = 0; i < w->n_replicas; i++) {
                w->r[i].disk_delay = 0;
                if (!w->r[i].up)
                        boot(w, &w->r[i]);
                if (w->r[i].paused)
                        resume(w, &w->r[i]);
        }
}

/* The leader gets entries that reach only one other replica, which has a slow disk. */
static void entries_on_their_way(struct world *w)
{
        struct replica_node *leader = the_leader(w), *slow;

        if (!leader)
                return;
        slow = replica_but(w, leader);
        story.old = leader->i;
        story.slow = slow->i;
        story.term = core_status(leader->node.core).term;
        stall(w, slow, some_time(w, ELECTION / 2, 4 * ELECTION));
        if (chance(w, 70))
                stall(w, leader, slow->disk_delay);
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (i != leader->i && i != slow->i)
                        join(w, leader->i, i, false);
        w->counts.partitions++;
        ask_writes(w, leader->i, (unsigned) rnd_between(&w->rnd, 1, 6));
        act(w, 1, some_time(w, 8 * MSEC, 60 * MSEC));
}

/* The leader goes; with three replicas it comes back without its entries, because its vote is
 * needed. */
static void leader_goes(struct world *w)
{
        struct replica_node *old = &w->r[story.old];

        join(w, story.old, story.slow, false);
        if (w->n_replicas == 3 || chance(w, 40)) {
                crash(w, old);
                old->disk_delay = 0;
                for (unsigned i = 0; i < w->n_replicas; i++)
                        if (i != story.slow)
                                join(w, story.old, i, true);
                if (!old->up)
                        boot(w, old);
        }
        act(w, 2, 3 * NSEC_PER_SEC);
}

static void next_leads(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_status st;

                if (!w->r[i].up)
                        continue;
                st = core_status(w->r[i].node.core);
                if (!st.leader || st.term <= story.term)
                        continue;
                story.next = i;
                story.term = st.term;
                /* The others get its entries late, or not at all. */
                for (unsigned k = 0; k < w->n_replicas; k++)
                        if (k != i && k != story.slow && chance(w, 60))
                                join(w, i, k, false);
                ask_writes(w, i, (unsigned) rnd_between(&w->rnd, 1, 5));
                return act(w, 3, 3 * NSEC_PER_SEC);
        }
}

/* The new leader reported success to a client, thanks to the slow replica: both crash. */
static void both_go(struct world *w)
{
        struct replica_node *next = &w->r[story.next], *slow = &w->r[story.slow];

        if (w->now < story.until && next->seen.confirmed_at < story.begun)
                return;
        if (slow->up)
                crash(w, slow);
        memset(w->cut, 0, sizeof(w->cut));
        cut_off(w, next, true);
        slow->disk_delay = 0;
        if (!slow->up)
                boot(w, slow);
        act(w, 4, some_time(w, 2 * ELECTION, 6 * ELECTION));
}

void overlap_begin(void)
{
        story.act = 0;
        story.until = 0;
}

void overlap_go_on(struct world *w)
{
        switch (story.act) {
        case 0:
                if (w->now >= story.until)
                        entries_on_their_way(w);
                break;
        case 1:
                if (w->now >= story.until)
                        leader_goes(w);
                break;
        case 2:
                next_leads(w);
                break;
        case 3:
                both_go(w);
                break;
        }
        /* An act that takes too long is given up. */
        if (story.act > 1 && w->now >= story.until) {
                everybody_back(w);
                act(w, 0, some_time(w, 100 * MSEC, 1500 * MSEC));
        }
        post(w, some_time(w, MSEC, 8 * MSEC), EV_SCRIPT);
}
