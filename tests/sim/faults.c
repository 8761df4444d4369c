/* Faults at any time, and how everything is healed in the end. */
#include "world.h"

/* The latest requests, by number. */
static struct asked {
        uint64_t request, id;
        enum replica_change what;
} asked[64];

void ask_change(struct world *w, struct replica_node *n, enum replica_change what, uint64_t id)
{
        uint64_t request = ++w->requests;
        struct replica_node *of = node_of_member(id);

        if (of && !swap_settles(w, of, what == REPLICA_ADD || what == REPLICA_ADD_LEARNER))
                return;
        asked[request % ARRAY_SIZE(asked)] = (struct asked){request, id, what};
        {
                MEMORY(MEMORY_RUN);
                replica_change_members(n->node.replica, request, what, id,
                                       of ? address_of(of->i) : "");
        }
        world_drive(w, n);
}

/* A client asks some replica for a change of the members, sensible or not. */
void change_members(struct world *w)
{
        struct replica_node *n = &w->r[rnd_between(&w->rnd, 0, w->n_replicas - 1)];
        uint64_t id = w->r[rnd_between(&w->rnd, 1, w->n_replicas) - 1].id;

        if (!n->up || n->paused || w->operated)
                return;
        w->counts.changes++;
        ask_change(w, n,
                   (enum replica_change) rnd_between(&w->rnd, REPLICA_ADD, REPLICA_REMOVE), id);
}

static void has_member(uint64_t id, const char *address, bool voter, void *arg)
{
        int *role = arg;
        unsigned i = replica_at(address);

        (void) id;
        if (i < REPLICAS_MAX)
                role[i] = voter ? 2 : 1;
}

unsigned roles_of(struct replica_node *n, int role[static REPLICAS_MAX])
{
        unsigned voters = 0;

        memset(role, 0, REPLICAS_MAX * sizeof(*role));
        replica_each_peer(core_replica(n->node.core), has_member, role);
        for (unsigned i = 0; i < REPLICAS_MAX; i++)
                voters += role[i] == 2;
        return voters;
}

static void find_stray(uint64_t id, const char *address, bool voter, void *arg)
{
        uint64_t *stray = arg;

        (void) voter;
        if (replica_at(address) == REPLICAS_MAX)
                *stray = id;
}

uint64_t stray_of(struct replica_node *n)
{
        uint64_t stray = 0;

        replica_each_peer(core_replica(n->node.core), find_stray, &stray);
        return stray;
}

void check_changed(struct world *w, struct replica_node *n, uint64_t request)
{
        const struct asked *a = &asked[request % ARRAY_SIZE(asked)];
        const struct replica_node *of = node_of_member(a->id);
        int role[REPLICAS_MAX], is;

        if (a->request != request || !of)
                return;
        (void) roles_of(n, role);
        is = role[of->i];
        if (a->what == REPLICA_REMOVE    ? is != 0
            : a->what == REPLICA_PROMOTE ? is != 2
                                         : is == 0)
                fail(w, "members: change %d of replica %u was answered as done, and is not",
                     a->what, of->i);
}

/* In the end all replicas must be members again. */
bool restore_members(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                int role[REPLICAS_MAX];
                uint64_t stray;

                if (!w->r[i].up || !core_status(w->r[i].node.core).ready)
                        continue;
                if (!replaced_all(w, &w->r[i]))
                        return false;
                (void) roles_of(&w->r[i], role);
                stray = stray_of(&w->r[i]);
                if (stray) {
                        if (load_ended(w)) /* the operators had their time */
                                ask_change(w, &w->r[i], REPLICA_REMOVE, stray);
                        return false;
                }
                /* As a learner first, of which there may be one at a time. */
                for (unsigned k = 0; k < 2 * w->n_replicas; k++) {
                        unsigned who = k % w->n_replicas;

                        if (role[who] != (k < w->n_replicas))
                                continue;
                        ask_change(w, &w->r[i],
                                   role[who] ? REPLICA_PROMOTE : REPLICA_ADD_LEARNER,
                                   w->r[who].id);
                        return false;
                }
                return true;
        }
        return false;
}

struct replica_node *the_leader(struct world *w)
{
        struct replica_node *best = NULL;
        uint64_t term = 0;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_status st;

                if (!w->r[i].up || w->r[i].paused)
                        continue;
                st = core_status(w->r[i].node.core);
                if (st.ready && st.term > term) {
                        term = st.term;
                        best = &w->r[i];
                }
        }
        return best;
}

struct replica_node *replica_but(struct world *w, const struct replica_node *n)
{
        return &w->r[(n->i + rnd_between(&w->rnd, 1, max_of(w->n_replicas, 2U) - 1)) %
                     w->n_replicas];
}

void move_leader(struct world *w)
{
        struct replica_node *n = the_leader(w);

        if (!n)
                return;
        w->counts.transfers++;
        {
                MEMORY(MEMORY_RUN);
                (void) !replica_transfer(n->node.replica,
                                         w->r[rnd_between(&w->rnd, 1, w->n_replicas) - 1].id,
                                         core_now(n->node.core));
        }
        world_drive(w, n);
}

void heal(struct world *w)
{
        w->calm = true;
        memory_end();
        elsewhere_heal(w);
        forced_heal(w);
        memset(w->cut, 0, sizeof(w->cut));
        spells_end(w);
        upgrades_heal(w);
        for (unsigned i = 0; i < w->n_nodes; i++) {
                struct replica_node *n = &w->r[i];

                swap_heal(w, n);
                n->disk_delay = 0;
                fill(w, n, false);
                if (n->up && n->paused)
                        resume(w, n);
                else if (!n->up)
                        boot(w, n);
        }
}

/* The power fails; or the process is killed, and its writes stay in the page cache. Then the
 * power may fail right after the next start, when the new process trusts what it found. */
void crash(struct world *w, struct replica_node *n)
{
        w->counts.crashes += n->up;
        if (!n->up || chance(w, 50)) {
                kill_replica(w, n, END_POWER);
                return swap_disk(w, n);
        }
        w->counts.kills++;
        kill_replica(w, n, END_KILL);
        if (chance(w, 50))
                return;
        boot(w, n);
        post(w, some_time(w, MSEC, 300 * MSEC), EV_POWER)->to = n->i;
}

/* Of five replicas sometimes two: a leader behind the cut still hears from one follower. */
void cut_off(struct world *w, struct replica_node *n, bool from_clients)
{
        unsigned with = n->i;

        w->counts.partitions++;
        if (chance(w, 50))
                tell_peers(w, n);
        if (w->n_replicas == 5 && chance(w, 50))
                with = replica_but(w, n)->i;
        for (unsigned i = 0; i < w->n_replicas; i++) {
                bool inside = i == n->i || i == with;

                if (inside && from_clients)
                        w->cut[i][i] = true;
                if (!inside)
                        w->cut[n->i][i] = w->cut[i][n->i] = w->cut[with][i] = w->cut[i][with] =
                                true;
        }
}

void stall(struct world *w, struct replica_node *n, nsec_t delay)
{
        w->counts.stalls++;
        n->disk_delay = delay;
}

void pause_node(struct world *w, struct replica_node *n, bool host)
{
        w->counts.pauses += !host;
        w->counts.suspends += host;
        n->paused = true;
        n->asleep = host;
        n->slept_from = w->now;
        n->wake = NEVER;
}

static void pause_or_resume(struct world *w, struct replica_node *n, bool host)
{
        if (n->paused)
                resume(w, n);
        else
                pause_node(w, n, host);
}

void fill(struct world *w, struct replica_node *n, bool full)
{
        w->counts.full += full;
        n->full = full;
        sim_disk_fill(n->disk, full);
}

/* Causes one of the faults that this world has. */
static void cause_one(struct world *w)
{
        struct replica_node *n = &w->r[rnd_between(&w->rnd, 0, w->n_replicas - 1)];
        unsigned a, b;

        switch (rnd_between(&w->rnd, 0, 15)) {
        case 0:
        case 1:
                if (w->faults.crashes)
                        crash(w, n);
                break;
        case 2:
        case 3:
                for (unsigned i = 0; i < w->n_replicas; i++)
                        if (!w->r[i].up && chance(w, 60))
                                boot(w, &w->r[i]);
                break;
        case 4:
                if (!w->faults.partitions)
                        break;
                w->counts.partitions++;
                a = n->i;
                b = (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1);
                w->cut[a][b] = true; /* the link to itself: its clients cannot reach it
                                      * either */
                if (chance(w, 60))
                        w->cut[b][a] = true;
                break;
        case 5:
                if (w->faults.partitions)
                        cut_off(w, n, true);
                break;
        case 6:
                memset(w->cut, 0, sizeof(w->cut));
                break;
        case 7:
                if (w->faults.stalls)
                        stall(w, n, chance(w, 50) ? 0 : some_time(w, 10 * MSEC, 1500 * MSEC));
                break;
        case 8:
                if (!w->faults.pauses)
                        break;
                pause_or_resume(w, n, false);
                break;
        case 12:
                if (!w->faults.suspends)
                        break;
                if (chance(w, 50)) {
                        pause_or_resume(w, n, true);
                } else {
                        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];

                        w->counts.suspends++;
                        h->slept_from = w->now;
                        h->asleep_until = w->now + some_time(w, 100 * MSEC, 6000 * MSEC);
                        h->wake = 0;
                }
                break;
        case 13:
                if (!w->faults.full)
                        break;
                /* Equal disks fill up together. */
                a = chance(w, 40) ? 0 : n->i;
                b = a == n->i ? n->i : w->n_replicas - 1;
                for (bool full = !n->full; a <= b; a++)
                        fill(w, &w->r[a], full);
                break;
        case 10:
                if (w->faults.members)
                        change_members(w);
                break;
        case 11:
                if (w->faults.transfers)
                        move_leader(w);
                break;
        case 9:
                if (w->faults.deaths && chance(w, 50))
                        disturb_holder(w);
                break;
        case 14:
                if (w->faults.compactions)
                        ask_compaction(w);
                break;
        case 15:
                if (w->faults.late)
                        delay_holder(w);
                break;
        }
}

void cause_fault(struct world *w)
{
        cause_one(w);
        if (w->swaps && chance(w, 10))
                swaps_copy(w);
        post(w, some_time(w, 20 * MSEC, w->fault_every), EV_FAULT);
}

void faults_draw(struct world *w)
{
        memset(asked, 0, sizeof(asked));
        /* Some worlds have every fault, some only one kind, because bugs may hide behind other
         * faults. */
        w->faults = (struct faults){
                .crashes = chance(w, 60),
                .partitions = chance(w, 60),
                .loss = chance(w, 60),
                .stalls = chance(w, 50),
                .pauses = chance(w, 50),
                .suspends = chance(w, 40),
                .full = chance(w, 30),
                .deaths = chance(w, 60),
                .late = chance(w, 60),
                .members = chance(w, 30),
                .transfers = chance(w, 30),
                .compactions = chance(w, 40),
                .memory = chance(w, 20),
        };
}
