/*
 * Upgrades. The replicas are of the older release first: they know no cluster version but the
 * first. One after the other is replaced by the newer one, some are replaced back, and at some
 * time the upgrade is finished, by an operator or by itself. Whoever is replaced back after
 * that has to be refused: by its own directory, or by the others' links. Then it is
 * replaced once more.
 */
#include "base/log.h"
#include "consensus/internal.h"
#include "world.h"

/* An older replica that has started may introduce itself so late. */
#define INTRODUCED NSEC_PER_SEC

static struct core_order order;
static bool ordered;

static bool is_old(const struct replica_node *n)
{
        return n->version == CLUSTER_0_1;
}

bool upgrades_outdated(const struct replica_node *n)
{
        return W->raised && is_old(n);
}

void upgrades_draw(struct world *w)
{
        w->upgrades = w->seed % 5 == 2;
        w->old = w->upgrades || w->seed % 15 == 3;
        ordered = false;
        w->starts_late = w->seed % 7 == 3 && w->breaks_in == 0 ? w->n_replicas - 1 : 0;
        if (w->upgrades && chance_in(&w->damage, 50))
                w->finish_after = time_in(&w->damage, NSEC_PER_SEC, 6 * NSEC_PER_SEC);
}

static void again(struct world *w)
{
        post(w, time_in(&w->damage, 50 * MSEC, 500 * MSEC) * (w->lasting ? 100 : 1),
             EV_UPGRADE);
}

void upgrades_begin(struct world *w)
{
        if (w->upgrades)
                again(w);
}

/* The package is installed, which restarts the program. */
static void install(struct world *w, struct replica_node *n, uint32_t version)
{
        log_debug("%.3f s: replica %u becomes %s", (double) w->now / 1e9, n->i + 1,
                  version == CLUSTER_0_1 ? "an older one" : "a newer one");
        if (n->up)
                kill_replica(w, n, chance_in(&w->damage, 50) ? END_STOP : END_KILL);
        n->version = version;
        if (w->calm || chance_in(&w->damage, 80))
                boot(w, n);
}

static void done(struct core_order *o, struct status st)
{
        (void) o;
        ordered = false;
        W->counts.upgrades_finished += st.code == RPC_OK;
        W->counts.upgrades_refused += st.code == RPC_FAILED_PRECONDITION;
}

static void finish(struct world *w)
{
        struct replica_node *leader = the_leader(w);

        if (!leader || !leader->up || leader->paused || ordered)
                return;
        ordered = true;
        order = (struct core_order){.done = done};
        core_finish_upgrade(leader->node.core, &order, NSEC_PER_SEC);
        world_drive(w, leader);
}

static bool is_finished(struct world *w)
{
        struct replica_node *leader = the_leader(w);

        return leader && core_state(leader->node.core)->cluster_version > CLUSTER_0_1;
}

/* An agent becomes a newer or an older one, whatever the replicas are. */
static void go_on_with_agents(struct world *w)
{
        struct holder *h;

        if (w->n_holders == 0 || w->strangers || !chance_in(&w->damage, 40))
                return;
        h = &w->h[rnd_between(&w->damage, 0, w->n_holders - 1)];
        w->counts.agents_upgraded += h->earlier;
        w->counts.agents_downgraded += !h->earlier;
        holder_install(h, !h->earlier);
}

void upgrades_go_on(struct world *w)
{
        struct replica_node *n = &w->r[rnd_between(&w->damage, 0, w->n_replicas - 1)];

        if (w->calm || !n->made)
                return again(w);
        go_on_with_agents(w);
        if (is_old(n)) {
                w->counts.upgrades++;
                install(w, n, CLUSTER_NEWEST);
        } else if (chance_in(&w->damage, 15) && !(w->raised && !is_finished(w))) {
                w->counts.downgrades++;
                install(w, n, CLUSTER_0_1);
        } else if (!n->up) {
                boot(w, n);
        }
        if (chance_in(&w->damage, 30))
                finish(w);
        again(w);
}

void upgrades_heal(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (upgrades_outdated(&w->r[i]))
                        install(w, &w->r[i], CLUSTER_NEWEST);
        for (unsigned i = 0; i < w->n_holders; i++)
                if (w->h[i].earlier)
                        holder_install(&w->h[i], false);
}

/* ---- checks ---- */

static void check_member(uint64_t id, const char *address, bool voter, void *arg)
{
        const struct replica_node *n = node_of_member(id);

        (void) address;
        (void) voter;
        (void) arg;
        if (n && n->up && is_old(n) && W->now - n->booted_at > INTRODUCED)
                fail(W,
                     "I13: the cluster version rises while replica %u is of an older release",
                     n->i + 1);
}

static bool has_directories(const struct log_entry *e)
{
        struct raft_configuration c;
        bool any = false;

        if (message_decode_conf((struct view){e->data, e->len}, &c) < 0)
                return false;
        for (unsigned i = 0; i < c.n; i++)
                any = any || address_directory(c.servers[i].address) != 0;
        raft_configuration_close(&c);
        return any;
}

/* A new cluster's directories are recorded before its version is raised. */
static bool raises(const struct log_entry *e)
{
        struct view commands = {e->data, e->len};
        struct cmd c;

        if (e->type == RAFT_CHANGE)
                return has_directories(e);
        if (e->type != RAFT_COMMAND || view_take(&commands, 8, &(struct view){0}) < 0)
                return false;
        while (cmd_next(&commands, CLUSTER_NEWEST, &c) == 0)
                if (c.type == CMD_VERSION)
                        return true;
        return false;
}

/* The compiler binds calls within the product as it likes, so this looks at what a leader has
 * appended. */
void upgrades_look(struct world *w, struct replica_node *n)
{
        const struct replica *r = n->node.replica;
        uint64_t last = log_last(&r->log);

        if (!w->old || w->raised)
                return;
        for (uint64_t i = max_of(n->looked + 1, r->log.first); replica_leads(r) && i <= last;
             i++)
                if (raises(log_get(&r->log, i)))
                        w->raised = true;
        n->looked = last;
        if (w->raised)
                replica_each_peer(r, check_member, NULL);
}

void upgrades_end(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas && !*w->failure; i++) {
                uint32_t is = w->r[i].up ? core_state(w->r[i].node.core)->cluster_version : 0;

                if (is != 0 && !w->old && is != CLUSTER_NEWEST)
                        fail(w, "I13: a new cluster is not at the newest version at replica %u",
                             i + 1);
                if (is != 0 && w->old && !w->raised && is != CLUSTER_0_1)
                        fail(w,
                             "I13: the cluster version has risen at replica %u, which nobody "
                             "asked for",
                             i + 1);
        }
}
