/*
 * Forced cores. The replicas of a core are lost, or cut off, and the operator forces a survivor
 * to go on alone, by what --force-new-cluster does; later perhaps a second one, by mistake, and
 * sometimes while the majority lives on, by another one. The addresses of these replicas lead
 * to the forced cores then. In the end the operator decides for the first core after all: the
 * disks turn up again, the forced cores end, and the alarms are disarmed.
 *
 * A forced core is one replica, which goes on from a copy of the survivor's disk, with a
 * history of its own. So all that is checked of the first core still is, while it only has an
 * outage. A write that it has acknowledged is in a forced core if the survivor had it on disk.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "core/internal.h"
#include "insides.h"
#include "member/member.h"
#include "world.h"

#define ANCESTOR 7            /* the id of the first core; those of the others follow */
#define STOPS_BY (100 * MSEC) /* a core that was shown another one; it is alone */
#define GIVEN_UP_BY (10 * NSEC_PER_SEC) /* a forced core that has ended, by its agents */
#define SHOWN_AGAIN (1100 * MSEC)       /* an alarm that was disarmed comes back only then */

/* One for each stranger. */
static struct forced {
        unsigned of; /* the replica that was forced */
        uint64_t cluster;
        unsigned history;
        uint64_t applied; /* by the survivor, and durable: the histories are one up to there */
        nsec_t shown_at;  /* another one was shown to it; 0: none... */
        nsec_t disarmed_at; /* ...since then */
} forced[STRANGERS];
static struct replica_ops ops; /* the core's own, which also record what is applied */
static bool lives_on;          /* a majority did, beside a forced core */

static struct forced *forced_at(unsigned node)
{
        return &forced[node - REPLICAS_MAX];
}

static bool is_forced(const struct world *w, unsigned node)
{
        return w->forced && is_stranger(node) && w->r[node].up;
}

/* Whether a majority of the replicas is not lost. */
static bool majority_lives(const struct world *w)
{
        unsigned n_lost = 0;

        for (unsigned i = 0; i < w->n_replicas; i++)
                n_lost += w->r[i].lost;
        return n_lost <= w->n_replicas / 2;
}

/* At cluster version 0.1 a core cannot know that another one is its kin: whoever shows it one
 * only ends the writes, and the leases of a forced core end by the survivor's log. */
static bool knows_kin(const struct replica_node *n)
{
        return core_state(n->node.core)->cluster_version >= CLUSTER_0_2;
}

static bool is_alarmed(const struct replica_node *n)
{
        return state_alarmed(core_state(n->node.core), PB__ALARM_TYPE__CORRUPT);
}

/* Whether @n is the only core that is left, and our core did not live on beside it. */
static bool nobody_else(const struct world *w, const struct replica_node *n)
{
        const struct replica_node *other =
                &w->r[n->i == REPLICAS_MAX ? REPLICAS_MAX + 1 : REPLICAS_MAX];

        return !lives_on && !other->up;
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
        fail(W, "the core that replica %u was forced to begin gave up: %s",
             forced_at(((struct replica_node *) u)->i)->of + 1, why);
}

static const struct core_owner owner = {.send = on_send, .fatal = on_fatal};

static struct replica_node *node_of_core(const void *core)
{
        for (unsigned i = REPLICAS_MAX; i < NODES_MAX; i++)
                if (W->r[i].node.core == core)
                        return &W->r[i];
        abort();
}

static int seen_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                      struct view commands, size_t *left)
{
        struct replica_node *n = node_of_core(u);
        int64_t before[1024];
        size_t n_before = 0;
        struct lease *l;
        int r;

        RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id)
                if (n_before < ARRAY_SIZE(before))
                        before[n_before++] = l->id;
        r = core_replica_ops.apply(u, index, term, at, commands, left);
        for (size_t i = 0; i < n_before && n->up; i++)
                if (!leases_find(&core_state(u)->leases, before[i]))
                        check_ended_elsewhere(W, forced_at(n->i)->history, before[i],
                                              nobody_else(W, n) && knows_kin(n));
        if (r == 0)
                view_applied(forced_at(n->i)->history, core_state(u), core_state(u)->revision);
        if (r == 0 && index <= forced_at(n->i)->applied)
                check_applied(W, n, index);
        return r;
}

static const char *common_name(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        return W->restricted ? "root" : NULL;
}

static const struct api_conns conns = {.kick = wires_kick, .common_name = common_name};

/* ---- the operator ---- */

static void on_stored(void *u, uint64_t index)
{
        (void) u;
        (void) index;
}

/* What the command does. @steps: after so many of them the power fails. Returns false if the
 * directory has no replica. */
static bool run_command(struct world *w, struct replica_node *n, const struct replica_config *c,
                        uint64_t cluster, unsigned steps)
{
        static const struct store_ops store_ops = {.persisted = on_stored};
        struct store_error err = {""};
        struct store *s = NULL;
        uint64_t index;
        bool fresh;

        if (store_open(&s, n->disk, &(struct store_config){.directory = c->directory},
                       &store_ops, NULL, &err) < 0)
                return fail(w, "replica %u cannot be forced: %s", forced_at(n->i)->of + 1,
                            err.text),
                       false;
        fresh = store_recovered(s)->fresh || store_recovered(s)->half_restored;
        if (!fresh && store_descend(s, cluster) < 0)
                abort();
        if (!fresh && steps > 0 && replica_leave_alone(s, c, &index) < 0)
                abort();
        while (steps > 1 && sim_disk_busy(n->disk))
                sim_disk_finish(n->disk);
        if (!fresh && steps > 2 && store_descended(s) < 0)
                abort();
        if (steps < 3)
                sim_disk_crash(n->disk, &w->rnd);
        store_free(s);
        return !fresh;
}

static void end(struct world *w, struct replica_node *n)
{
        if (!n->up)
                return;
        n->up = false;
        n->wake = NEVER;
        wires_replica_down(n->i);
        node_leave(&n->node);
        node_free(&n->node);
        n->disk = disk_free(n->disk);
        (void) w;
}

static bool begin(struct world *w, struct replica_node *n)
{
        struct forced *f = forced_at(n->i);
        struct replica_peer self = {.id = W->r[f->of].id, .address = address_of(f->of)};
        struct boot_time now = clock_of(w, &n->clock);
        struct store_identity id;
        struct store_error err = {""};
        struct node_config cfg = {
                .core = {.member_id = self.id,
                         .min_ttl = w->min_ttl,
                         .timeout = w->timeout,
                         .leader_timeout = w->election,
                         .watch_progress = w->watch_progress,
                         .cache_term = CACHE_MOST,
                         .max_txn_ops = w->txn_ops,
                         .ahead_divisor = w->loops ? LOOP_PART : 0,
                         .seed = rnd_u64(&w->rnd)},
                .replica = {.id = f->of + 1,
                            .cluster_id = ANCESTOR,
                            .peers = &self,
                            .n_peers = 1,
                            .election = w->election,
                            .heartbeat = w->heartbeat,
                            .seed = rnd_u64(&w->rnd),
                            .directory = rnd_u64(&w->rnd) | 1,
                            .segment_size = w->segment_size},
                .ops = &ops,
                .owner = &owner,
                .owner_arg = n,
                .conns = &conns,
        };

        while (chance(w, 30)) {
                if (!run_command(w, n, &cfg.replica, f->cluster + 100,
                                 (unsigned) rnd_between(&w->rnd, 0, 2)))
                        break;
                cfg.replica.directory++;
        }
        if (!run_command(w, n, &cfg.replica, f->cluster, 3))
                return false;
        if (store_peek(n->disk, &id, &err) < 0)
                return fail(w, "a forced core has no identity: %s", err.text), false;
        cfg.core.cluster_id = cfg.replica.cluster_id = id.cluster_id;
        cfg.core.ancestor = id.ancestor;
        if (node_init(&n->node, &cfg, n->disk, now, &err) < 0 || node_start(&n->node) < 0)
                return fail(w, "a forced core does not start: %s", err.text), false;
        return true;
}

/* An agent's requests to that replica reach the forced core from now on. */
static void lead(struct world *w, unsigned of, unsigned to)
{
        for (unsigned i = 0; i < w->n_holders; i++) {
                w->h[i].ends[of].astray_to = to;
                w->h[i].ends[of].astray_until = NEVER;
        }
}

/* Its process ends, and does not come back before the end. */
static void lose(struct world *w, struct replica_node *n)
{
        log_debug("%.3f s: replica %u is lost", (double) w->now / 1e9, n->i + 1);
        kill_replica(w, n, chance(w, 50) ? END_POWER : END_KILL);
        n->lost = true;
}

static void force(struct world *w, struct replica_node *n, struct replica_node *from)
{
        struct forced *f = forced_at(n->i);
        *f = (struct forced){.of = from->i, .cluster = ANCESTOR + 1 + n->i - REPLICAS_MAX};
        if (from->up)
                f->applied = core_state(from->node.core)->applied;
        if (!from->lost)
                lose(w, from);
        f->applied = min_of(f->applied, from->seen.durable);
        lives_on = lives_on || majority_lives(w);
        n->disk = sim_disk_new();
        sim_disk_copy(n->disk, from->disk);
        sim_disk_fill(n->disk, false);
        n->clock = from->clock;
        f->history = view_new_history();
        if (!begin(w, n)) {
                n->disk = disk_free(n->disk);
                return;
        }
        log_debug("%.3f s: replica %u is forced: core %u", (double) w->now / 1e9, from->i + 1,
                  n->i);
        n->up = true;
        w->counts.forced++;
        w->met.forced_twice += n->i > REPLICAS_MAX && w->r[REPLICAS_MAX].up;
        w->met.forced_beside += lives_on;
        seen_check(w, from, n->node.replica);
        lead(w, from->i, n->i);
        world_drive(w, n);
}

static struct replica_node *survivor(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].made && !w->r[i].right_disk && forced[0].of != i)
                        return &w->r[i];
        return NULL;
}

static void disarm(struct world *w, struct replica_node *n)
{
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};

        if (!n || !n->up || n->paused || !is_alarmed(n))
                return;
        log_debug("%.3f s: the alarm of core %u is disarmed", (double) w->now / 1e9, n->i);
        q.action = PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
        q.alarm = PB__ALARM_TYPE__CORRUPT;
        pb_append(&body, &q.base);
        w->counts.disarmed++;
        if (is_stranger(n->i)) {
                forced_at(n->i)->shown_at = 0;
                forced_at(n->i)->disarmed_at = w->now;
        }
        (void) !core_propose_own(n->node.core, CMD_ALARM, &body);
        world_drive(w, n);
}

void on_forced(struct world *w)
{
        struct replica_node *one = &w->r[REPLICAS_MAX], *two = one + 1, *from;
        bool spares;

        post(w, some_time(w, 200 * MSEC, 2500 * MSEC), EV_FORCED);
        if (w->calm)
                return disarm(w, the_leader(w));
        from = survivor(w);
        spares = chance(w, 30);
        if (forced[0].cluster == 0) {
                for (unsigned i = 0; i < w->n_replicas && !spares; i++)
                        if (&w->r[i] != from && chance(w, 90))
                                lose(w, &w->r[i]);
                if (from)
                        force(w, one, from);
        } else if (forced[1].cluster == 0 && chance(w, 40)) {
                if (from)
                        force(w, two, from);
        } else if (two->up && chance(w, 15)) {
                end(w, chance(w, 50) ? one : two);
        } else if (chance(w, 20)) {
                disarm(w, one->up ? one : two);
        }
}

void forced_heal(struct world *w)
{
        for (unsigned i = REPLICAS_MAX; w->forced && i < NODES_MAX; i++)
                end(w, &w->r[i]);
        for (unsigned i = 0; i < w->n_replicas; i++)
                w->r[i].lost = false;
}

/* ---- checks ---- */

bool forced_has_stopped(const struct world *w)
{
        for (unsigned i = 0; w->forced && i < w->n_replicas; i++)
                if (w->r[i].up && is_alarmed(&w->r[i]))
                        return true;
        return false;
}

unsigned forced_home(const struct holder *h)
{
        uint64_t core = insides_of(h->member).core;

        for (unsigned i = 0; i < STRANGERS; i++)
                if (forced[i].cluster != 0 && forced[i].cluster == core)
                        return forced[i].history;
        return 0;
}

void forced_shown(unsigned node, uint64_t core, uint64_t ancestor)
{
        struct forced *f = is_forced(W, node) ? forced_at(node) : NULL;

        if (f && knows_kin(&W->r[node]) && core != f->cluster && ancestor == ANCESTOR &&
            f->shown_at == 0 &&
            (f->disarmed_at == 0 || W->now > f->disarmed_at + SHOWN_AGAIN)) {
                W->met.sibling_met++;
                f->shown_at = W->now;
        }
}

/* I10: whoever meets both cores ends one of them. */
void forced_renewed(const struct holder *h, nsec_t sent)
{
        for (unsigned i = 0; i < STRANGERS; i++)
                if (forced[i].cluster != 0 && forced[i].history == h->home &&
                    forced[i].shown_at > 0 && sent > forced[i].shown_at + STOPS_BY)
                        fail(W,
                             "I10: holder %u renews in a core that was shown another one at "
                             "%.3f s",
                             h->i, (double) forced[i].shown_at / 1e9);
}

void forced_draw(struct world *w)
{
        w->forced = w->forced || w->seed % 9 == 5;
}

void forced_fit(struct world *w)
{
        const char *aim = aim_name(w);

        w->forced = w->forced && !w->lasting && w->n_replicas >= 3 &&
                    strcmp(aim, "alone") != 0 && strcmp(aim, "overlap") != 0;
        if (!w->forced)
                return;
        w->strangers = w->fenced = false;
        w->quota = 0; /* whoever fills it gives up where nobody is served */
}

void forced_begin(struct world *w)
{
        memset(forced, 0, sizeof(forced));
        lives_on = false;
        forced[0].of = forced[1].of = REPLICAS_MAX;
        if (!w->forced)
                return;
        ops = core_replica_ops;
        ops.apply = seen_apply;
        w->end_time += GIVEN_UP_BY;
        post(w, some_time(w, 1500 * MSEC, 5000 * MSEC), EV_FORCED);
}
