/* The replicas of a world, the links between them, and their disks. */
#include <inttypes.h>
#include <stdio.h>

#include "acked.h"
#include "asker.h"
#include "base/hash.h"
#include "base/log.h"
#include "consensus/internal.h"
#include "hoard.h"
#include "reached.h"
#include "wider.h"
#include "wire/cmd.h"
#include "wire/pb.h"
#include "worker.h"
#include "world.h"

static struct replica_node *node_of(void *u)
{
        return u;
}

void world_drive(struct world *w, struct replica_node *n)
{
        struct boot_time now = clock_of(w, &n->clock);
        bool was_busy;

        if (is_stranger(n->i))
                return elsewhere_drive(w, n);
        n->wake = NEVER;
        if (!n->up || n->paused || *w->failure)
                return;
        was_busy = *core_half_applied(n->node.core);
        n->room_at = NEVER;
        {
                MEMORY(MEMORY_RUN);
                if (n->passwords)
                        (void) worker_do(n->passwords);
                node_run(&n->node, now, NULL, NULL);
                node_flush(&n->node, now);
        }
        n->wake = min_of(true_time_of(w, &n->clock, node_next(&n->node)), n->room_at);
        /* Between two slices, others have their turns; mostly short ones, because there may be
         * hundreds of slices, and leases wait for the last one. */
        if (*core_half_applied(n->node.core))
                n->wake = w->now + some_time(w, 10 * NSEC_PER_USEC,
                                             chance(w, 3) ? 3 * MSEC : 100 * NSEC_PER_USEC);
        else if (was_busy)
                wires_go_on(n);
        upgrades_look(w, n);
        swaps_look(w, n);
        seen_look(w, n);
}

/* ---- pause ---- */

void park(struct replica_node *n, struct event *e)
{
        e->next = NULL;
        *n->last_parked = e;
        n->last_parked = &e->next;
}

static struct event *parked(struct replica_node *n)
{
        struct event *e = n->parked;

        if (e)
                n->parked = e->next;
        if (!n->parked)
                n->last_parked = &n->parked;
        return e;
}

void resume(struct world *w, struct replica_node *n)
{
        struct event *e;

        if (n->asleep)
                (void) clock_wakes(w, &n->clock, w->now - n->slept_from);
        n->paused = n->asleep = false;
        n->wake = w->now;
        wires_go_on(n);
        if (w->linked)
                linked_resumes(n);
        while ((e = parked(n)))
                post_again(w, e);
}

/* Drops what waited in the sockets of a process that is gone. */
static void drop_parked(struct replica_node *n)
{
        struct event *e;

        while ((e = parked(n))) {
                if (e->request)
                        request_free(e->request);
                free(e);
        }
}

/* ---- links ---- */

/* True for @in_1000 of 1,000 frames. */
static bool seldom(struct world *w, unsigned in_1000)
{
        return w->faults.loss && !w->calm && rnd_between(&w->rnd, 1, 1000) <= in_1000;
}

/* Flips a bit of a snapshot's part, after the numbers that say which part it is; no checksum of
 * the network has noticed. Other frames between replicas are small, and a network that damages
 * those as well would be useless. */
static void damage(uint8_t *frame, size_t len)
{
        size_t from = 1 + 4 * sizeof(uint64_t);

        /* Not so often that a large snapshot never arrives intact. */
        if (W->now < W->damage_at || W->calm || *frame != FRAME_SNAPSHOT || len <= from ||
            rnd_between(&W->damage, 1, 20) > 1)
                return;
        W->damage_at = W->now + (nsec_t) rnd_between(&W->damage, 2000, 6000) * MSEC;
        frame[rnd_between(&W->damage, from, len - 1)] ^=
                (uint8_t) (1 << rnd_between(&W->damage, 0, 7));
        W->met.install_damage++;
}

/* The command of a later version, which nobody here knows. */
static const uint8_t unknown_command[] = {0x3f, 0, 0, 0};

/* The last frames that have one. */
static struct {
        uint64_t of[64]; /* hashes of term, life, number and priority */
        size_t n;
} dressed;

static bool is_dressed(uint64_t frame)
{
        for (size_t i = 0; i < min_of(dressed.n, ARRAY_SIZE(dressed.of)); i++)
                if (dressed.of[i] == frame)
                        return true;
        return false;
}

/* Whether a frame has one at its end, as often as it is sent: a frame of writes, of which
 * nobody waits for the outcome any more when all is healed: not if the clock that their timeout
 * runs by may stand still. */
static bool is_later(struct world *w, struct view frame)
{
        size_t priority = 1 + 3 * sizeof(uint64_t);
        uint64_t hash;

        if (!w->later || w->steps || frame.p[0] != FRAME_PROPOSE || frame.len <= priority ||
            frame.p[priority] != REPLICA_NORMAL)
                return false;
        hash = hash_end(hash_add(HASH_START, frame.p, priority + 1));
        if (is_dressed(hash))
                return true;
        if (w->now + w->timeout >= w->run_time || rnd_between(&w->damage, 1, 10) != 1)
                return false;
        dressed.of[dressed.n++ % ARRAY_SIZE(dressed.of)] = hash;
        return true;
}

/* Writes the frame as it arrives, and returns its size: perhaps MORE bytes more. */
#define MORE sizeof(unknown_command)
static size_t dress(struct view frame, uint8_t *out)
{
        bool later = is_later(W, frame);

        memcpy(out, frame.p, frame.len);
        if (later)
                memcpy(out + frame.len, unknown_command, MORE);
        damage(out, frame.len);
        W->met.unknown += later;
        return frame.len + (later ? MORE : 0);
}

static void post_frame(struct replica_node *n, unsigned to, struct view frame, nsec_t in)
{
        struct event *e = post_bytes(W, in, EV_FRAME, frame.len + MORE);

        e->from = n->i;
        e->to = to;
        e->from_id = n->id;
        e->to_id = W->r[to].id;
        e->life = n->life;
        e->version = n->version;
        e->len = dress(frame, e->bytes);
}

void post_hello(struct world *w, const struct replica_node *from, unsigned to, nsec_t in)
{
        struct event *e = post(w, in, EV_HELLO);

        e->from = from->i;
        e->to = to;
        e->from_id = from->id;
        e->to_id = w->r[to].id;
        e->life = from->life;
        e->version = from->version;
}

/* A link is new if one of its ends is; then its first frame introduces the sender. What an
 * earlier life sent may arrive late, and introduces nobody; if the disk was another one then,
 * it is lost. Who is refused calls again. Returns whether the frame may be delivered. */
static bool introduce(struct world *w, const struct event *e)
{
        struct replica_node *n = &w->r[e->to], *from = &w->r[e->from];
        struct sim_link *l = &w->links[e->from][e->to];
        struct introduction in = introduction_0_1;
        int r;

        if (e->from_id != from->id || e->to_id != n->id)
                return false;
        if (e->life < l->from_life)
                return w->n_swapped == 0 && e->len > 0 && e->bytes[0] != FRAME_TIME_ASK;
        if (e->life == l->from_life && l->to_life == n->life)
                return true;
        if (!from->up || from->life != e->life)
                return false;
        /* The kernel ended the links of the process before, unless the host lost its power. */
        if (l->to_life == n->life && l->from_life != e->life && !from->lost_power)
                versions_link_down(n->node.replica, from->id);
        l->from_life = e->life;
        l->to_life = n->life;
        if (e->version > CLUSTER_0_1)
                in = replica_introduction(from->node.replica, n->id);
        {
                MEMORY(MEMORY_RUN);
                r = replica_peer_introduced(n->node.replica, from->id, &in,
                                            clock_of(w, &n->clock));
        }
        w->counts.outdated += r == -EPROTONOSUPPORT;
        swaps_look(w, n);
        doubled_introduced(w, from, n, r);
        if (r == 0)
                return true;
        l->to_life = 0; /* the next link */
        if (r == -EBUSY && !l->calls) {
                l->calls = true;
                post_hello(w, from, n->i, 100 * MSEC);
        }
        return false;
}

/* Each makes links to all others at once, and tries again. */
static void greet_all(struct world *w, const struct replica_node *n)
{
        for (unsigned i = 0; i < w->n_nodes && !w->linked; i++) {
                if (i == n->i || !w->r[i].up || w->r[i].id == n->id)
                        continue;
                if (i < w->n_replicas)
                        post_hello(w, n, i, MSEC);
                post_hello(w, &w->r[i], n->i, MSEC);
        }
}

bool on_hello(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];

        w->links[e->from][e->to].calls = false;
        if (!n->up || !w->r[e->from].up || w->r[e->from].life != e->life)
                return false;
        if (n->paused || w->r[e->from].paused || w->cut[e->from][e->to] ||
            w->now < w->links[e->from][e->to].down_until)
                post_hello(w, &w->r[e->from], e->to, 20 * MSEC);
        else
                (void) introduce(w, e);
        return false;
}

/* The real links take it, or drop it. */
static void send_linked(struct replica_node *n, uint64_t peer, struct view frame)
{
        bool lost = !linked_is_up(n, peer);
        uint8_t *bytes = malloc(frame.len + MORE);

        if (!bytes)
                abort();
        seen_frame_out(W, n, peer, frame, lost);
        W->counts.lost_frames += lost;
        linked_send(n, peer, (struct view){bytes, dress(frame, bytes)});
        free(bytes);
}

/* Whoever runs nowhere is at no end of a link, and gets nothing. */
static struct sim_link *link_to(const struct replica_node *n, uint64_t peer, unsigned *ret_to)
{
        const struct replica_node *to = doubled_at(W, node_of_member(peer));

        *ret_to = to ? to->i : REPLICAS_MAX;
        return &W->links[n->i][to ? to->i : 0];
}

/* Links are TCP: frames keep their order; a slow link delays all of them; a link that breaks
 * loses what is sent until there is another one, and what was under way may arrive after that,
 * or twice. */
static void on_send(void *u, uint64_t peer, struct view frame)
{
        MEMORY(MEMORY_OURS);
        struct replica_node *n = node_of(u);
        unsigned to;
        struct sim_link *l = link_to(n, peer, &to);
        nsec_t at = W->now + some_time(W, 100 * NSEC_PER_USEC, FRAME_MOST);
        bool lost;

        W->counts.frames++;
        trace_add(W, TRACED_FRAME, n->i << 8 | to, frame.p, frame.len);
        if (n->linked)
                return send_linked(n, peer, frame);
        if (seldom(W, 4)) {
                l->down_until = W->now + some_time(W, MSEC, 300 * MSEC);
                l->last = 0;
        }
        lost = to == REPLICAS_MAX || W->cut[n->i][to] || W->now < l->down_until;
        seen_frame_out(W, n, peer, frame, lost);
        if (lost) {
                W->counts.lost_frames++;
                l->lost = true;
                return;
        }
        if (l->lost && l->rate > 0)
                rates_break(W, n->i, to);
        if (l->lost) { /* this frame goes over a new link, of which the peer hears soon */
                struct event *e = post(W, some_time(W, 0, 20 * MSEC), EV_UP);

                l->lost = false;
                e->from = to;
                e->to = n->i;
        }
        if (seldom(W, 5))
                at += some_time(W, MSEC, FRAME_LATE);
        at += l->delay;
        if (l->rate > 0) {
                rates_put(W, n->i, to, 4 + frame.len);
                at += rates_carry(W, n->i, to, 4 + frame.len) - W->now;
                rates_see(W, n, to, frame);
        }
        l->last = at = max_of(at, l->last + 1);
        post_frame(n, to, frame, at - W->now);
        if (seldom(W, W->repeated))
                post_frame(n, to, frame, at - W->now + some_time(W, MSEC, 100 * MSEC));
}

/* A narrow link accepts nothing more while data has been under way for long. Its process wakes
 * when the link accepts something again, as from a socket. */
static size_t on_room(void *u, uint64_t peer)
{
        struct replica_node *n = node_of(u);
        unsigned to;
        const struct sim_link *l = link_to(n, peer, &to);

        if (n->linked)
                return linked_room(n, peer);
        if (W->now < l->down_until)
                return 0;
        if (l->rate > 0)
                return rates_room(W, n->i, to);
        if (l->last <= W->now + l->delay + W->narrow)
                return 1000;
        n->room_at = min_of(n->room_at, l->last - l->delay - W->narrow);
        return 0;
}

bool on_frame(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];
        uint64_t failures = memory_failures();
        bool outdated;
        int r;

        if (n->asleep || !n->up)
                return false;
        /* A paused process finds it in its socket when it goes on. */
        if (n->paused) {
                park(n, e);
                return true;
        }
        if (w->cut[e->from][e->to])
                return false;
        if (*e->bytes != FRAME_DOUBLED && !introduce(w, e))
                return false;
        seen_frame_before(n);
        outdated = e->version < core_state(n->node.core)->cluster_version &&
                   e->life == w->links[e->from][e->to].from_life;
        {
                MEMORY(MEMORY_RUN);
                r = replica_input(n->node.replica, w->r[e->from].id,
                                  (struct view){e->bytes, e->len}, clock_of(w, &n->clock));
        }
        if (r == -EPROTONOSUPPORT && w->raised &&
            (e->version == CLUSTER_0_1 || e->life < w->links[e->from][e->to].from_life))
                r = 0; /* it is too old, or became so after it had sent that */
        else if (r == -EKEYREJECTED && (w->r[e->from].refused || e->life < w->r[e->from].life))
                r = 0; /* it has another disk, or had one then */
        else if (r == 0 && outdated)
                fail(w,
                     "I13: replica %u takes part with replica %u, which is of an older release",
                     e->to + 1, e->from + 1);
        if (r < 0 && memory_failures() == failures)
                fail(w, "replica %u refused a frame of replica %u", e->to + 1, e->from + 1);
        seen_frame_after(w, n);
        world_drive(w, n);
        return false;
}

/* ---- disks ---- */

static void post_disk(struct replica_node *n, enum disk_queue q, nsec_t in)
{
        struct event *e = post(W, in + n->disk_delay, EV_DISK);

        e->to = n->i;
        e->life = n->life;
        e->queue = q;
        if (n->disk_delay > 0 && q == DISK_LOG)
                n->stalled_until = e->at;
}

static void on_submit(void *arg, enum disk_queue q)
{
        MEMORY(MEMORY_OURS);
        struct replica_node *n = arg;

        if (n->disk_begun[q] > 0)
                return;
        n->disk_begun[q] = W->now;
        post_disk(n, q, some_time(W, 50 * NSEC_PER_USEC, 2 * MSEC));
}

bool on_disk(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];
        nsec_t *begun = n->disk_begun;
        bool is_long;

        if (!n->up || n->life != e->life)
                return false;
        /* The disk goes on, but the process does not hear of it. */
        if (n->paused) {
                park(n, e);
                return true;
        }
        {
                MEMORY(MEMORY_RUN);
                is_long = sim_disk_run_at(n->disk, e->queue);
        }
        if (is_long && w->snapshot_time > 0) {
                post_disk(n, e->queue, some_time(w, 0, w->snapshot_time));
                return false;
        }
        w->met.overtaken += e->queue == DISK_LOG && begun[DISK_ASIDE] > 0 &&
                            begun[DISK_ASIDE] < begun[DISK_LOG];
        begun[e->queue] = 0;
        {
                MEMORY(MEMORY_RUN);
                sim_disk_finish_at(n->disk, e->queue);
        }
        if (sim_disk_busy_at(n->disk, e->queue))
                on_submit(n, e->queue);
        world_drive(w, n);
        return false;
}

/* ---- callbacks of the core ---- */

/* Whether it lacked memory, or its disk failed, in this life. */
static bool was_disturbed(struct replica_node *n)
{
        return memory_failures() != n->failures || n->io_errors > 0 || upgrades_outdated(n) ||
               doubled_stops(W, n) || swap_refused(n);
}

/* The process ends as soon as no callback is running. */
static void on_fatal(void *u, const char *why)
{
        MEMORY(MEMORY_OURS);
        struct replica_node *n = node_of(u);
        struct event *e;

        if (n->linked)
                linked_fatal(n);
        if (!was_disturbed(n))
                return fail(W, "replica %u gave up: %s", n->i + 1, why);
        log_debug("%.3f s: replica %u gives up: %s", (double) W->now / 1e9, n->i + 1, why);
        W->counts.exits++;
        e = post(W, 0, EV_EXIT);
        e->to = n->i;
        e->life = n->life;
}

/* Whether all disks are full, and the replicas know it: they use the reserved space. */
static bool all_short(const struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (!w->r[i].full || !w->r[i].up ||
                    !core_status(w->r[i].node.core).short_of_room)
                        return false;
        return true;
}

static void on_expired(void *u, int64_t lease, size_t n_keys, uint64_t term)
{
        (void) u;
        (void) lease;
        (void) n_keys;
        (void) term;
        W->counts.expiries++;
        W->met.full_expiry += all_short(W);
}

static void on_changed(void *u)
{
        MEMORY(MEMORY_OURS);
        struct replica_status s = core_status(node_of(u)->node.core);

        W->counts.leaders += s.leader;
        log_debug("%.3f s: replica %u in term %" PRIu64 " follows %" PRIu64 "%s",
                  (double) W->now / 1e9, node_of(u)->i + 1, s.term, s.leader_id,
                  s.ready ? ", and leads" : "");
}

static void on_configured(void *u)
{
        struct replica_node *n = node_of(u);

        if (n->linked)
                linked_configured(n);
}

/* No `removed`: one that was removed goes on, in order to stand for election, and to be added
 * again. */
static const struct core_owner owner = {.send = on_send,
                                        .room = on_room,
                                        .fatal = on_fatal,
                                        .expired = on_expired,
                                        .changed = on_changed,
                                        .configured = on_configured};

/* The core's own ops, which also record what is applied. */
static struct replica_ops seen_ops;

static struct replica_node *node_of_core(const void *core)
{
        for (unsigned i = 0; i < W->n_nodes; i++)
                if (W->r[i].node.core == core)
                        return &W->r[i];
        abort();
}

/* A lease that is revoked has not expired. */
static void see_revoked(struct view commands)
{
        MEMORY(MEMORY_OURS);
        struct cmd c;

        while (cmd_next(&commands, CLUSTER_NEWEST, &c) == 0) {
                Pb__LeaseRevokeRequest *q = NULL;

                if (c.type == CMD_REVOKE &&
                    pb_unpack(&pb__lease_revoke_request__descriptor, c.body, &q) == 0)
                        check_revoked(q->id);
                pb_free(q);
        }
}

static int seen_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                      struct view commands, size_t *left)
{
        MEMORY(MEMORY_APPLY);
        uint64_t failed = memory_failed(MEMORY_APPLY);
        int64_t before[1024];
        size_t n_before = 0;
        struct lease *l;
        int r;

        aim_at(W, AT_APPLY, node_of_core(u));
        fillers_apply(core_state(u));
        see_revoked(commands);
        RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id) {
                if (n_before == ARRAY_SIZE(before)) {
                        fail_full(W, "leases at once");
                        break;
                }
                before[n_before++] = l->id;
        }
        r = core_replica_ops.apply(u, index, term, at, commands, left);
        (void) memory_of(MEMORY_OURS); /* until this function returns */
        W->met.alloc_apply += memory_failed(MEMORY_APPLY) - failed;
        if (r < 0)
                return r; /* the process ends */
        fillers_applied(W, core_state(u), commands);
        if (r == 0)
                RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id) {
                        if (l->renewed != index)
                                continue;
                        check_renewal_applied(W, l);
                        W->met.full_renewal += all_short(W);
                }
        if (r == 0)
                view_applied(0, core_state(u), core_state(u)->revision);
        if (r == 0)
                hoard_applied(W, core_state(u), core_state(u)->revision);
        for (size_t i = 0; i < n_before; i++)
                if (!leases_find(&core_state(u)->leases, before[i]))
                        check_ended(W, before[i], true);
        W->met.apply_slice += r > 0;
        if (r == 0 && wider_apply(index, at, commands) < 0)
                fail(W, "I4: the state machine with wider structs cannot apply entry %" PRIu64,
                     index);
        if (r == 0)
                check_applied(W, node_of_core(u), index);
        if (r == 0 && !is_stranger(node_of_core(u)->i)) {
                named_applied(W, core_state(u));
                caches_applied(core_state(u));
                guards_applied(W, node_of_core(u), index);
        }
        return r;
}

static int seen_load(void *u, struct view snapshot)
{
        MEMORY(MEMORY_LOAD);

        aim_at(W, AT_LOAD, node_of_core(u));
        return core_replica_ops.load(u, snapshot);
}

static int seen_load_more(void *u, size_t *left, const char **ret_wrong)
{
        MEMORY(MEMORY_LOAD);
        int r;

        /* A few keys in each millisecond are as slow as a bad disk, for a large state. */
        if (W->calm)
                *left = max_of(*left, (size_t) 1000 + W->hoard);
        r = core_replica_ops.load_more(u, left, ret_wrong);
        (void) memory_of(MEMORY_OURS); /* until this function returns */
        W->met.load_slice += r > 0;
        return r;
}

static void seen_drop(void *u)
{
        W->met.load_dropped += seen_loading(node_of_core(u));
        core_replica_ops.drop(u);
}

static void seen_changed_members(void *u, uint64_t request, int outcome)
{
        struct replica_node *n = node_of_core(u);

        core_replica_ops.changed_members(u, request, outcome);
        if (outcome == 0 && core_status(n->node.core).leader)
                check_changed(W, n, request);
}

/* Where there are users, all other clients show a certificate. */
static const char *common_name(struct rpc_conn *c, void *arg)
{
        const struct wire *k = rpc_conn_userdata(c);

        (void) arg;
        return W->restricted && !k->nameless ? "root" : NULL;
}

static const struct api_conns api_conns = {
        .kick = wires_kick, .common_name = common_name, .turn = wire_turn};

/* ---- from start to end ---- */

static const char *const addresses[] = {"http://1:1", "http://2:1", "http://3:1", "http://4:1",
                                        "http://5:1"};

const char *address_of(unsigned i)
{
        return addresses[i];
}

unsigned replica_at(const char *address)
{
        unsigned i = 0;

        while (i < REPLICAS_MAX && strcmp(addresses[i], address) != 0)
                i++;
        return i;
}

struct replica_node *node_of_member(uint64_t id)
{
        for (unsigned i = 0; i < W->n_replicas; i++)
                if (W->r[i].id == id)
                        return &W->r[i];
        return NULL;
}

/* A setting in whole milliseconds, drawn separately, so that other worlds stay the same. */
static nsec_t some_of(struct world *w, nsec_t least, nsec_t most)
{
        return (nsec_t) rnd_between(&w->damage, (uint64_t) (least / MSEC),
                                    (uint64_t) (most / MSEC)) *
               MSEC;
}

static int start(struct world *w, struct replica_node *n, struct store_error *err)
{
        MEMORY(MEMORY_START);
        struct replica_peer peers[REPLICAS_MAX];
        struct boot_time now = clock_of(w, &n->clock);
        nsec_t heartbeat = w->heartbeat, election = w->election;
        struct node_config cfg;
        int r;

        aim_at(w, AT_START, n);
        acked_starts(w, n->id);
        n->n_covered = 0;
        if (w->drawn && rnd_between(&w->damage, 1, 3) == 1) {
                heartbeat = some_of(w, BEAT_LEAST, heartbeat);
                election = some_of(w, 5 * heartbeat, election);
        }
        if (w->restricted && worker_new(&n->passwords, NULL, "") < 0)
                return -ENOMEM;
        for (unsigned i = 0; i < w->n_replicas; i++)
                peers[i] = (struct replica_peer){.id = n->joins ? w->r[i].id : i + 1,
                                                 .address = addresses[i]};
        cfg = (struct node_config){
                .core = {.cluster_id = 7,
                         .member_id = n->id,
                         .version = n->version,
                         .finish_after = w->finish_after,
                         .min_ttl = w->min_ttl,
                         .timeout = w->timeout,
                         .leader_timeout = w->election,
                         .watch_progress = w->watch_progress,
                         .cache_term = w->tuned ? w->cache_term : CACHE_MOST,
                         .max_txn_ops = w->txn_ops,
                         .lease_tie = w->restricted ? LEASE_TIE_ALL : LEASE_TIE_NONE,
                         .compact_age = w->compact_age,
                         .ahead_divisor = w->loops ? LOOP_PART : 0,
                         .waiting_max = w->greedy ? FEW_WAIT : 0,
                         .quota = w->quota,
                         .compact_keep = w->compact_keep,
                         .seed = rnd_u64(&w->rnd)},
                .replica = {.id = n->id,
                            .cluster_id = 7,
                            .version = n->version,
                            .join = n->joins,
                            .peers = peers,
                            .n_peers = w->n_replicas,
                            .election = election,
                            .heartbeat = heartbeat,
                            .seed = rnd_u64(&w->rnd),
                            .snapshot_entries = w->snapshot_entries,
                            .snapshot_bytes = w->snapshot_bytes,
                            .snapshot_slice = (300 + rnd_u64(&w->rnd) % 1000) *
                                              (w->bulk || w->hoard > 0 || w->dozes ? 64 : 1),
                            .log_bytes = w->log_bytes,
                            .queued_bytes = w->queued_bytes,
                            .message_bytes = 30 + rnd_u64(&w->rnd) % 1000,
                            .segment_size = w->segment_size,
                            .apply_slice = w->apply_slice,
                            .any_change = w->any_change},
                .ops = &seen_ops,
                .owner = &owner,
                .owner_arg = n,
                .conns = &api_conns,
                .name = w->any_change ? NULL : "replica",
                .client_urls = "",
                .passwords = n->passwords,
                .token_ttl = w->token_ttl,
        };
        /* 0.1.0 gave directories no ids. */
        if (w->rated && w->as_shipped)
                cfg.replica.snapshot_slice = cfg.replica.message_bytes = 0;
        else if (w->rated)
                cfg.replica.snapshot_slice *= 64;
        cfg.replica.directory = n->version == CLUSTER_0_1 ? 0 : cfg.replica.seed;
        sim_disk_on_submit(n->disk, on_submit, n);
        r = node_init(&n->node, &cfg, n->watched_disk, now, err);
        if (r == 0)
                r = node_start(&n->node);
        return r == 0 && w->linked ? linked_start(n) : r;
}

static void discard(struct replica_node *n)
{
        reached_api(n->node.api);
        n->passwords = worker_free(n->passwords);
        node_leave(&n->node);
        linked_stop(n);
        node_free(&n->node);
}

void boot(struct world *w, struct replica_node *n)
{
        struct store_error err = {""};
        uint64_t failed = memory_failed(MEMORY_START);
        int r;

        if (n->lost)
                return;
        swap_back(n);
        if (n->gone && !replaced_joins(w, n))
                return;
        replaced_starts(n);
        n->up = true;
        n->lost_power =
                n->dark && w->now - n->dark_at >= NSEC_PER_SEC; /* no host starts sooner */
        n->paused = n->asleep = n->dark = false;
        n->life++;
        n->booted_at = w->now;
        memset(n->disk_begun, 0, sizeof(n->disk_begun));
        n->refuses_since = 0;
        n->failures = memory_failures();
        n->io_errors = 0;
        n->wake = w->now;
        r = start(w, n, &err);
        w->met.alloc_start += memory_failed(MEMORY_START) - failed;
        if (r == 0) {
                n->made = true;
                greet_all(w, n);
                return seen_start(w, n);
        }
        /* If a first start failed, there may be no room for the next one. */
        if (!was_disturbed(n) && (n->made || !n->full))
                return fail(w, "replica %u does not start: %s", n->i + 1, err.text);
        /* The start is tried again later. */
        n->up = false;
        n->wake = NEVER;
        if (w->linked)
                linked_process_ends(n, false);
        sim_disk_on_submit(n->disk, NULL, NULL);
        while (sim_disk_busy(n->disk))
                sim_disk_crash(n->disk, &w->rnd);
        discard(n);
        if (n->refused && w->calm)
                boot(w, n);
}

/* The kernel closes its sockets, or a middlebox resets its connections. */
void tell_peers(struct world *w, const struct replica_node *n)
{
        if (w->linked && w->hints && n->up)
                linked_break(n, NODES_MAX);
        for (unsigned i = 0; i < w->n_replicas && w->hints && !w->linked; i++) {
                struct event *e;

                if (i == n->i || !w->r[i].up)
                        continue;
                e = post(w, some_time(w, 100 * NSEC_PER_USEC, 3 * MSEC), EV_DOWN);
                e->from = n->i;
                e->to = i;
        }
}

bool on_link(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];
        uint64_t from = w->r[e->from].id;

        if (!n->up || n->asleep)
                return false;
        if (n->paused) {
                park(n, e);
                return true;
        }
        if (e->kind == EV_DOWN && w->doubles && w->links[e->from][e->to].to_life != n->life)
                return false;     /* that was not the link of the member */
        if (e->kind == EV_DOWN) { /* and is made again */
                w->links[e->from][e->to].to_life = 0;
                if (w->r[e->from].up)
                        post_hello(w, &w->r[e->from], e->to, 20 * MSEC);
        }
        {
                MEMORY(MEMORY_RUN);
                if (e->kind == EV_DOWN)
                        replica_peer_down(n->node.replica, from, clock_of(w, &n->clock));
                else
                        replica_peer_up(n->node.replica, from, clock_of(w, &n->clock));
        }
        world_drive(w, n);
        return false;
}

void kill_replica(struct world *w, struct replica_node *n, enum end how)
{
        if (how == END_POWER && !n->dark)
                n->dark_at = w->now;
        n->dark = n->dark || how == END_POWER;
        if (w->linked)
                linked_process_ends(n, how == END_POWER);
        if (!n->up) {
                if (how == END_POWER)
                        sim_disk_crash(n->disk, &w->rnd); /* writes of an earlier life */
                return;
        }
        if (how != END_STOP && !w->linked)
                tell_peers(w, n);
        if (how != END_STOP)
                seen_crash(w, n);
        n->up = false;
        n->wake = NEVER;
        sim_disk_on_submit(n->disk, NULL, NULL);
        if (how == END_POWER)
                sim_disk_crash(n->disk, &w->rnd);
        else if (how == END_KILL)
                w->met.unsynced_start += sim_disk_kill(n->disk, &w->rnd);
        else
                while (sim_disk_busy(n->disk))
                        sim_disk_finish(n->disk);
        wires_replica_down(n->i);
        probers_replica_down(n->i);
        discard(n);
        drop_parked(n);
}

void nodes_begin(struct world *w)
{
        dressed.n = 0;
        seen_ops = core_replica_ops;
        seen_ops.apply = seen_apply;
        seen_ops.load = seen_load;
        seen_ops.load_more = seen_load_more;
        seen_ops.drop = seen_drop;
        seen_ops.changed_members = seen_changed_members;
        wider_begin();
        for (unsigned i = 0; i < w->n_replicas; i++)
                w->r[i].id = i + 1;
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_node *n = &w->r[i];

                *n = (struct replica_node){
                        .i = i,
                        .id = i + 1,
                        .version = w->old ? CLUSTER_0_1 : CLUSTER_NEWEST,
                        .disk = sim_disk_new(),
                        .clock.ppm = (int32_t) rnd_between(&w->rnd, 0, 1000) - 500};
                n->watched_disk = watched_disk_new(n->disk, n);
                n->last_parked = &n->parked;
                if (i > 0 && w->starts_late == i)
                        post(w, time_in(&w->damage, 0, 3000 * MSEC), EV_START)->to = i;
                else
                        boot(w, n);
        }
}

void nodes_end(struct world *w)
{
        for (unsigned i = 0; i < w->n_nodes; i++) {
                kill_replica(w, &w->r[i], END_STOP);
                drop_parked(&w->r[i]);
                w->r[i].watched_disk = disk_free(w->r[i].watched_disk);
                w->r[i].right_disk = disk_free(w->r[i].right_disk);
        }
        wider_end();
}
