/*
 * Other cores, to which endpoints of hosts lead for a while, as a name in DNS or an address
 * does after a mistake, or after a cluster was set up again. One is another cluster; the other
 * has our cluster's name and id, and was emptied. Each is one working replica, with nodes and
 * services of its own; it knows less than our core, as much or more, and is emptied now and
 * then.
 *
 * Each has a history of its own: places that hosts hold there, and what it tells them. There,
 * too, nobody may hold a place that is gone; and what an agent knows must come from one of the
 * cores, never from two.
 */
#include <stdio.h>

#include "base/log.h"
#include "member/member.h"
#include "world.h"

#define FOREIGN REPLICAS_MAX       /* another cluster */
#define EMPTIED (REPLICAS_MAX + 1) /* our cluster, according to its id */
#define LEASES_MAX 4096

/* The other cores that this world has: one could hide what another would show. */
static unsigned first, last;
/* Each life of such a core is a history. */
static unsigned lives[STRANGERS];
/* Which history granted which lease. */
static struct {
        int64_t id;
        unsigned history;
} granted[LEASES_MAX];
static size_t n_granted;

static unsigned life_of(const struct replica_node *n)
{
        return lives[n->i - REPLICAS_MAX];
}

/* ---- its callbacks ---- */

static void on_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) peer;
        (void) frame; /* it has no peers */
}

static void on_fatal(void *u, const char *why)
{
        fail(W, "another core, number %u, gave up: %s", ((struct replica_node *) u)->i, why);
}

static const struct core_owner owner = {.send = on_send, .fatal = on_fatal};

static struct replica_node *node_of_core(const void *core)
{
        for (unsigned i = REPLICAS_MAX; i < NODES_MAX; i++)
                if (W->r[i].node.core == core)
                        return &W->r[i];
        abort();
}

unsigned elsewhere_of_lease(int64_t id)
{
        for (size_t i = n_granted; i > 0; i--)
                if (granted[i - 1].id == id)
                        return granted[i - 1].history;
        return 0;
}

static struct replica_ops ops; /* the core's own, which also record what is applied */

static int seen_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                      struct view commands, size_t *left)
{
        unsigned life = life_of(node_of_core(u));
        int r = core_replica_ops.apply(u, index, term, at, commands, left);
        struct lease *l;

        if (r != 0)
                return r;
        view_applied(life, core_state(u), core_state(u)->revision);
        RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id)
                if (l->renewed == index && elsewhere_of_lease(l->id) == 0) {
                        if (n_granted == LEASES_MAX)
                                return fail_full(W, "leases of other cores"), 0;
                        granted[n_granted].id = l->id;
                        granted[n_granted++].history = life;
                }
        return 0;
}

static const char *no_name(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        return NULL;
}

static const struct api_conns conns = {.kick = wires_kick, .common_name = no_name};

/* ---- its content ---- */

static void on_written(struct core_write *w, struct status st, struct view bytes)
{
        (void) st;
        (void) bytes;
        free(w);
}

static void write_to(struct replica_node *n, enum cmd_type type, const ProtobufCMessage *m)
{
        struct core_write *w = calloc(1, sizeof(*w));
        cleanup_(buf_fini) struct buf b = {0};

        if (!w)
                abort();
        w->done = on_written;
        pb_append(&b, m);
        if (core_write(n->node.core, w, type, NULL, b.data, buf_len(&b), 0) < 0)
                free(w);
}

static void put_bytes(struct replica_node *n, const void *key, size_t len, const char *value,
                      int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, len);
        q.value = pb_bytes(value, strlen(value));
        q.lease = lease;
        write_to(n, CMD_PUT, &q.base);
}

static void put(struct replica_node *n, const char *key, const char *value, int64_t lease)
{
        put_bytes(n, key, strlen(key), value, lease);
}

static int64_t own_lease(const struct replica_node *n)
{
        return 1000 + life_of(n);
}

/* A node that is unknown here comes, or changes; so do its services, which also go away. */
static void change(struct world *w, struct replica_node *n)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        unsigned host = (unsigned) rnd_between(&w->rnd, HOLDERS_MAX - 3, HOLDERS_MAX - 1);
        char key[64], value[128];
        bool service = chance(w, 60);

        snprintf(key, sizeof(key),
                 service ? "/tenure/sim/services/svc0/host%u" : "/tenure/sim/nodes/host%u",
                 host);
        snprintf(value, sizeof(value),
                 service ? "{\"port\":%u}"
                         : "{\"id\":\"stranger\",\"incarnation\":\"x\",\"ttl_ms\":%u}",
                 (unsigned) rnd_between(&w->rnd, 1, 5));
        if (!service || chance(w, 60))
                return put(n, key, value, own_lease(n));
        q.key = pb_bytes(key, strlen(key));
        write_to(n, CMD_DELETE_RANGE, &q.base);
}

/* A key that no agent wrote: its bytes begin with a node's name, and it is no node's. */
static const char stray[] = "/tenure/sim/nodes/host1\0elsewhere";

static void go_on(struct world *w, struct replica_node *n, unsigned revisions)
{
        while (revisions-- > 0)
                put_bytes(n, stray, sizeof(stray) - 1, "{}", 0);
        change(w, n);
        world_drive(w, n);
}

/* The revision of our core. */
static int64_t our_revision(const struct world *w)
{
        int64_t most = 1;

        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].up)
                        most = max_of(most, core_state(w->r[i].node.core)->revision);
        return most;
}

/* ---- its lives ---- */

static void stop(struct world *w, struct replica_node *n)
{
        if (!n->up)
                return;
        n->up = false;
        n->wake = NEVER;
        wires_replica_down(n->i);
        node_leave(&n->node);
        node_free(&n->node);
        n->disk = disk_free(n->disk);
        w->counts.emptied++;
}

static void begin(struct world *w, struct replica_node *n)
{
        struct replica_peer self = {.id = n->i, .address = "http://9:1"};
        uint64_t id = n->i == FOREIGN ? 8 : 7;
        struct boot_time now = clock_of(w, &n->clock);
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        struct store_error err;
        struct node_config cfg = {
                .core = {.cluster_id = id,
                         .member_id = n->i,
                         .min_ttl = TTL_MIN_MS * MSEC,
                         .timeout = 6 * NSEC_PER_SEC,
                         .leader_timeout = 500 * MSEC,
                         .watch_progress = 600 * NSEC_PER_SEC,
                         .cache_term = 3 * NSEC_PER_SEC,
                         .max_txn_ops = 128,
                         .seed = rnd_u64(&w->rnd)},
                .replica = {.id = n->i,
                            .cluster_id = id,
                            .peers = &self,
                            .n_peers = 1,
                            .election = ELECTION,
                            .heartbeat = 50 * MSEC,
                            .seed = rnd_u64(&w->rnd),
                            .segment_size = 64 << 10},
                .ops = &ops,
                .owner = &owner,
                .owner_arg = n,
                .conns = &conns,
        };
        unsigned known;

        lives[n->i - REPLICAS_MAX] = view_new_history();
        n->disk = sim_disk_new();
        if (node_init(&n->node, &cfg, n->disk, now, &err) < 0 || node_start(&n->node) < 0)
                abort();
        n->up = true;
        grant.id = own_lease(n);
        grant.ttl_ms = 3600 * 1000;
        write_to(n, CMD_GRANT, &grant.base);
        known = chance(w, 40) ? 0
                : chance(w, 50)
                        ? (unsigned) our_revision(w)
                        : (unsigned) our_revision(w) + (unsigned) rnd_between(&w->rnd, 0, 200);
        log_debug("%.3f s: core %u begins its life %u", (double) w->now / 1e9, n->i,
                  life_of(n));
        go_on(w, n, known);
}

void elsewhere_drive(struct world *w, struct replica_node *n)
{
        struct boot_time now = clock_of(w, &n->clock);
        bool wrote = n->up;

        while (wrote) {
                node_run(&n->node, now, NULL, NULL);
                node_flush(&n->node, now);
                wrote = sim_disk_busy(n->disk);
                while (sim_disk_busy(n->disk))
                        sim_disk_finish(n->disk);
        }
        if (n->up)
                n->wake = *core_half_applied(n->node.core)
                                  ? w->now + 100 * NSEC_PER_USEC
                                  : true_time_of(w, &n->clock, node_next(&n->node));
}

bool elsewhere_is_over(unsigned history, int64_t lease)
{
        for (unsigned i = REPLICAS_MAX; W->strangers && i < NODES_MAX; i++)
                if (W->r[i].up && life_of(&W->r[i]) == history)
                        return !leases_find(&core_state(W->r[i].node.core)->leases, lease);
        return false;
}

/* ---- endpoints that lead there ---- */

unsigned elsewhere_leads(const struct holder_end *e)
{
        return W->now < e->astray_until && !W->calm ? e->astray_to : e->to;
}

void elsewhere_asked(struct holder *h, unsigned to)
{
        const struct replica_node *n = &W->r[to];
        int64_t knows = member_nodes(h->member)->revision;
        bool holds = h->home == 0 && holder_holds(h, 0);

        if (!n->up || W->forced)
                return;
        h->met_emptied |= to == EMPTIED;
        W->met.foreign_held += to == FOREIGN && holds;
        W->met.emptied_held += to == EMPTIED && holds;
        W->met.emptied_ahead += to == EMPTIED && knows > 0 &&
                                core_state(n->node.core)->revision > knows &&
                                !(h->view.may & 1u << life_of(n));
}

static void lead(struct world *w, struct holder *h, unsigned end, unsigned to, nsec_t until)
{
        bool away = chance(w, 40), breaks = chance(w, 70), listed = away && chance(w, 50);

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct holder_end *e = &h->ends[i];

                if (end < w->n_replicas && i != end)
                        continue;
                w->counts.astray++;
                h->heard &= ~(1u << i);
                e->astray_to = to;
                e->astray_until = until;
                e->moved_away = away;
                if (listed && h->alive && w->now >= h->asleep_until) {
                        ends_replace(h, i);
                } else if (breaks && e->wire.client) {
                        e->wire.broken = true;
                        h->wake = 0;
                }
        }
}

void elsewhere_lead(struct world *w)
{
        struct replica_node *n = &w->r[rnd_between(&w->rnd, first, last)];
        unsigned end = chance(w, 65) ? REPLICAS_MAX
                                     : (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1),
                 one = (unsigned) rnd_between(&w->rnd, 0, w->n_holders - 1);
        bool everybody = chance(w, 50);
        nsec_t until = w->now + some_time(w, 300 * MSEC, 9000 * MSEC);

        if (!w->strangers)
                return;
        if (chance(w, 30) && view_histories_left())
                stop(w, n);
        if (!n->up && view_histories_left())
                begin(w, n);
        if (!n->up)
                return;
        log_debug("%.3f s: %s of %s lead to core %u until %.3f s", (double) w->now / 1e9,
                  end < w->n_replicas ? "one" : "all", everybody ? "everybody" : "one holder",
                  n->i, (double) until / 1e9);
        for (unsigned i = 0; i < w->n_holders; i++)
                if (everybody || i == one)
                        lead(w, &w->h[i], end, n->i, until);
}

/* The name leads to the right core again: sooner or later the connections end. */
static void find_back(struct world *w, struct holder *h)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct holder_end *e = &h->ends[i];

                if (e->wire.client && e->wire.to == EMPTIED)
                        h->met_emptied = true;
                if (!e->wire.client || !is_stranger(e->wire.to) || w->now < e->astray_until ||
                    chance(w, 70))
                        continue;
                if (e->moved_away && w->now >= h->asleep_until && chance(w, 30)) {
                        ends_replace(h, i);
                } else {
                        e->wire.broken = true;
                        h->wake = 0;
                }
        }
}

void elsewhere_go_on(struct world *w)
{
        if (w->calm)
                return;
        if (chance(w, 5))
                elsewhere_lead(w);
        for (unsigned i = 0; i < w->n_holders; i++)
                find_back(w, &w->h[i]);
        for (unsigned i = REPLICAS_MAX; i < NODES_MAX; i++)
                if (w->r[i].up && chance(w, 50))
                        go_on(w, &w->r[i], (unsigned) rnd_between(&w->rnd, 0, 20));
        post(w, some_time(w, 30 * MSEC, 400 * MSEC), EV_ELSEWHERE);
}

void elsewhere_heal(struct world *w)
{
        for (unsigned i = REPLICAS_MAX; w->strangers && i < NODES_MAX; i++)
                stop(w, &w->r[i]);
}

void elsewhere_begin(struct world *w)
{
        ops = core_replica_ops;
        ops.apply = seen_apply;
        n_granted = 0;
        for (unsigned i = REPLICAS_MAX; i < NODES_MAX; i++)
                w->r[i] = (struct replica_node){.i = i, .wake = NEVER};
        if (!w->strangers)
                return;
        first = chance(w, 30) ? EMPTIED : FOREIGN;
        last = chance(w, 40) ? first : EMPTIED;
        post(w, some_time(w, 500 * MSEC, 4000 * MSEC), EV_ELSEWHERE);
}
