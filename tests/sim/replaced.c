/*
 * Members whose disk is lost for good, in some of the worlds of swaps.c. Such a replica does
 * not get the right disk back: its directory is emptied, and it waits until the others replace
 * its member by a new one. An operator asks them to, by the real service (operators.c), or the
 * replica itself does (ReplaceLostDisk=).
 *
 * It learns its new id as tenure-core does: another replica tells it which member has its URL,
 * if that member has no directory yet. The other one may be wrong: it knows of a replacement
 * that another leader never heard of, or has lost its own disk, and knows no directories. Then
 * the operator empties the directory once more.
 */
#include "base/log.h"
#include "consensus/internal.h"
#include "world.h"

#define ASKS_AGAIN (700 * MSEC)
#define IDS_MAX 32

static struct place {
        nsec_t asks_at;          /* not sooner does it ask again */
        struct core_change lost; /* what it asks for, if `done` is set */
        uint64_t ids[IDS_MAX];   /* as which it has run */
        unsigned n;
} places[REPLICAS_MAX];

void replaced_draw(struct world *w)
{
        bool able = w->n_replicas >= 3 && !w->faults.members && !w->old && !w->linked &&
                    !w->forced && !w->lasting;

        memset(places, 0, sizeof(places));
        w->operated = w->operated || (able && w->swaps && w->seed / 10 % 2);
        w->swaps = w->swaps || (able && w->operated && w->seed / 32 % 2);
        w->replaces = able && w->swaps && w->operated;
        w->asks_itself = w->replaces && chance_in(&w->damage, 50);
        w->faults.crashes = w->faults.crashes || w->replaces;
}

void replaced_empty(struct replica_node *n)
{
        log_debug("%.3f s: the disk of replica %u is lost for good", (double) W->now / 1e9,
                  n->i + 1);
        n->gone = true;
        n->made = n->again = false;
        sim_disk_empty(n->disk);
}

struct replica_node *replaced_lost(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].gone)
                        return &w->r[i];
        return NULL;
}

/* ---- who is there now ---- */

struct there {
        unsigned i;
        uint64_t id; /* of the member there; 0: there is none */
};

static void look(uint64_t id, const char *address, bool voter, void *arg)
{
        struct there *t = arg;

        (void) voter;
        if (replica_at(address) == t->i)
                t->id = id;
}

static uint64_t member_there(const struct replica_node *by, const struct replica_node *n)
{
        struct there t = {.i = n->i};

        replica_each_peer(core_replica(by->node.core), look, &t);
        return t.id;
}

static bool has_run_as(const struct place *p, uint64_t id)
{
        for (unsigned i = 0; i < p->n; i++)
                if (p->ids[i] == id)
                        return true;
        return false;
}

static void on_done(struct core_change *ch, int outcome)
{
        ch->done = NULL;
        W->counts.replaced += outcome == 0;
}

/* Asks through replica @m. */
static void ask(struct world *w, struct replica_node *m, const struct replica_node *n,
                enum replica_change what)
{
        struct core_change *ch = &places[n->i].lost;

        if (ch->done)
                return;
        {
                MEMORY(MEMORY_RUN);
                *ch = (struct core_change){
                        .done = on_done, .what = what, .id = core_new_member_id(m->node.core)};
                strcpy(ch->address, address_of(n->i));
                if (core_change_members(m->node.core, ch, 0) < 0)
                        ch->done = NULL;
        }
        world_drive(w, m);
}

static bool is_reached(const struct world *w, const struct replica_node *m,
                       const struct replica_node *n)
{
        return m != n && m->up && !m->paused && !w->cut[m->i][n->i] && !w->cut[n->i][m->i];
}

bool replaced_joins(struct world *w, struct replica_node *n)
{
        struct place *p = &places[n->i];
        struct replica_node *m = replica_but(w, n);
        uint64_t id;

        if (w->now < p->asks_at)
                return false;
        p->asks_at = w->now + some_time(w, ASKS_AGAIN / 2, ASKS_AGAIN);
        id = is_reached(w, m, n) ? member_there(m, n) : 0;
        if (id != 0 && replica_directory(m->node.replica, id) == 0) {
                log_debug("%.3f s: replica %u starts as member %016llx", (double) w->now / 1e9,
                          n->i + 1, (unsigned long long) id);
                p->asks_at = 0;
                n->id = id;
                n->gone = false;
                n->joins = true;
                n->again = has_run_as(p, id);
                n->seen = (struct seen){0};
                return true;
        }
        post(w, p->asks_at - w->now, EV_START)->to = n->i;
        if (id != 0)
                replica_member_lost(m->node.replica, id);
        if (id != 0 && w->asks_itself)
                ask(w, m, n, REPLICA_REPLACE_LOST);
        return false;
}

bool replaced_all(struct world *w, struct replica_node *leader)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_node *n = &w->r[i];

                if (n->gone) {
                        if (load_ended(w)) /* the operators had their time */
                                ask(w, leader, n, REPLICA_REPLACE);
                        return false;
                }
                if (!n->joins || n->id == member_there(leader, n))
                        continue;
                kill_replica(w, n, END_KILL); /* it is a replacement that came to nothing */
                replaced_empty(n);
                boot(w, n);
                return false;
        }
        return true;
}

/* ---- checks ---- */

void replaced_starts(const struct replica_node *n)
{
        struct place *p = &places[n->i];

        if (has_run_as(p, n->id))
                return;
        if (p->n == IDS_MAX)
                return fail_full(W, "ids of a replica");
        p->ids[p->n++] = n->id;
}

static void check_voter(uint64_t id, const char *address, bool voter, void *arg)
{
        unsigned i = replica_at(address);

        (void) arg;
        if (voter && i < REPLICAS_MAX && !has_run_as(&places[i], id))
                fail(W, "members: %016llx votes in the place of replica %u, and never started",
                     (unsigned long long) id, i + 1);
}

void replaced_look(const struct world *w, const struct replica_node *n)
{
        if (w->replaces && replica_leads(n->node.replica))
                replica_each_peer(core_replica(n->node.core), check_voter, NULL);
}
