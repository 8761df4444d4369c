#include "world.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"

#define TTL_MIN_MS 1000
#define TTL_MAX_MS 4000
#define N_KEYS 16
#define PROMPT (2 * NSEC_PER_SEC) /* the calm after which nothing waits for a lost frame */
#define CLOCK_STEP (5 * MSEC)

static bool chance(struct world *w, unsigned percent)
{
        return rnd_between(&w->rnd, 1, 100) <= percent;
}

struct boot_time clock_of(const struct world *w, int32_t ppm)
{
        /* Every clock starts somewhere, and runs at its own rate. */
        return (struct boot_time){w->now + w->now / 1000000 * ppm + 1000 * NSEC_PER_SEC};
}

/* ---- events ---- */

enum event_kind {
        EV_FRAME,
        EV_UP,
        EV_DISK,
        EV_EXIT,
        EV_FAULT,
        EV_HEAL,
        EV_CLIENT,
        EV_EDGE,
        EV_MEMBERS,
        EV_CLOCK,
        EV_REQUEST,
        EV_REPLY
};

struct event {
        TAILQ_ENTRY(event) next;
        nsec_t at;
        enum event_kind kind;
        unsigned from, to, life;
        struct buf bytes;
        struct request *request;
        struct edge *edge;
};

TAILQ_HEAD(events, event);
static struct events events;

static struct event *post(struct world *w, nsec_t in, enum event_kind kind)
{
        struct event *e = calloc(1, sizeof(*e)), *at;

        if (!e)
                abort();
        e->at = w->now + in;
        e->kind = kind;
        TAILQ_FOREACH_REVERSE(at, &events, events, next)
        if (at->at <= e->at)
                break;
        if (at)
                TAILQ_INSERT_AFTER(&events, at, e, next);
        else
                TAILQ_INSERT_HEAD(&events, e, next);
        return e;
}

static void event_free(struct event *e)
{
        buf_fini(&e->bytes);
        free(e);
}

/* ---- replicas ---- */

void world_drive(struct world *w, struct replica_node *n)
{
        struct boot_time now = clock_of(w, n->ppm);

        if (!n->up || n->paused || *w->failure)
                return;
        replica_tick(n->replica, now);
        core_tick(n->core, now);
        core_flush(n->core, now);
        replica_flush(n->replica, now);
        api_flush(n->api, now);
}

static nsec_t true_time_of(const struct world *w, int32_t ppm, struct boot_time t)
{
        nsec_t left = boot_diff(t, clock_of(w, ppm));

        if (t.ns == BOOT_TIME_NEVER.ns)
                return INT64_MAX;
        return left <= 0 ? w->now : w->now + left + left / 1000 + 1;
}

static struct world *W; /* for the callbacks; one world at a time */

static struct replica_node *node_of(void *u)
{
        return u;
}

/* Per 1,000 frames. */
static bool seldom(struct world *w, unsigned in_1000)
{
        return w->faults.loss && !w->calm && rnd_between(&w->rnd, 1, 1000) <= in_1000;
}

static void post_frame(struct replica_node *n, unsigned to, struct view frame, nsec_t in)
{
        struct event *e = post(W, in, EV_FRAME);

        e->from = n->i;
        e->to = to;
        buf_add(&e->bytes, frame.p, frame.len);
}

/* Links are TCP: frames keep their order; a link that is slow delays all of them; one that
 * breaks loses what is sent until there is another, and what was under way may come after it,
 * or twice.
 */
static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct replica_node *n = node_of(u);
        unsigned to = (unsigned) peer - 1;
        struct sim_link *l = &W->links[n->i][to < REPLICAS_MAX ? to : 0];
        nsec_t at = W->now + (nsec_t) rnd_between(&W->rnd, 100, 3000) * NSEC_PER_USEC;

        W->counts.frames++;
        if (seldom(W, 4)) {
                nsec_t down = (nsec_t) rnd_between(&W->rnd, 1, 300) * MSEC;
                struct event *e = post(W, down, EV_UP);

                e->from = n->i;
                e->to = to;
                l->down_until = W->now + down;
                l->last = 0;
        }
        if (to >= W->n_replicas || W->cut[n->i][to] || W->now < l->down_until) {
                W->counts.lost_frames++;
                return;
        }
        if (seldom(W, 5))
                at += (nsec_t) rnd_between(&W->rnd, 1, 200) * MSEC;
        l->last = at = max_of(at, l->last + 1);
        post_frame(n, to, frame, at - W->now);
        if (seldom(W, 10))
                post_frame(n, to, frame,
                           at - W->now + (nsec_t) rnd_between(&W->rnd, 1, 100) * MSEC);
}

/* The process ends, as soon as nobody is inside of it. */
static void on_fatal(void *u, const char *why)
{
        struct replica_node *n = node_of(u);
        struct event *e;

        if (!n->full)
                return fail(W, "replica %u gave up: %s", n->i, why);
        log_debug("%.3f s: replica %u gives up: %s", (double) W->now / 1e9, n->i + 1, why);
        e = post(W, 0, EV_EXIT);
        e->to = n->i;
        e->life = n->life;
}

static void on_expired(void *u, int64_t lease, size_t n_keys, uint64_t term)
{
        (void) u;
        (void) lease;
        (void) n_keys;
        (void) term;
        W->counts.expiries++;
}

static void on_changed(void *u)
{
        struct replica_status s = core_status(node_of(u)->core);

        W->counts.leaders += s.leader;
        log_debug("%.3f s: replica %u in term %" PRIu64 " follows %" PRIu64 "%s",
                  (double) W->now / 1e9, node_of(u)->i + 1, s.term, s.leader_id,
                  s.ready ? ", and leads" : "");
}

static const struct core_owner owner = {
        .send = on_send, .fatal = on_fatal, .expired = on_expired, .changed = on_changed};

/* The core's own ops, with an eye on what is applied. */
static struct replica_ops seen_ops;

static int seen_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                      struct view commands)
{
        struct replica_node *n = NULL;
        int64_t before[256];
        size_t n_before = 0;
        struct lease *l;
        int r;

        for (unsigned i = 0; i < W->n_replicas; i++)
                if (W->r[i].core == u)
                        n = &W->r[i];
        RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id)
                if (n_before < ARRAY_SIZE(before))
                        before[n_before++] = l->id;
        r = core_replica_ops.apply(u, index, term, at, commands);
        RB_FOREACH (l, lease_ids, &core_state(u)->leases.by_id)
                check_renewal_applied(W, l->id, l->renewed);
        for (size_t i = 0; i < n_before; i++)
                if (!leases_find(&core_state(u)->leases, before[i]))
                        check_ended(W, before[i], true);
        check_applied(W, n, index);
        return r;
}

static void on_submit(void *arg)
{
        struct replica_node *n = arg;
        struct event *e;

        if (n->disk_armed)
                return;
        n->disk_armed = true;
        e = post(W, (nsec_t) rnd_between(&W->rnd, 50, 2000) * NSEC_PER_USEC + n->disk_delay,
                 EV_DISK);
        e->to = n->i;
        e->life = n->life;
        if (n->disk_delay > 0)
                n->stalled_until = e->at;
}

static void kick(struct rpc_conn *c, void *arg)
{
        (void) arg;
        clients_kick(c);
}

static const char *no_name(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        return NULL;
}

static const struct api_conns api_conns = {.kick = kick, .common_name = no_name};

static const char *const addresses[] = {"http://1:1", "http://2:1", "http://3:1", "http://4:1",
                                        "http://5:1"};

static void boot(struct world *w, struct replica_node *n)
{
        struct replica_peer peers[REPLICAS_MAX];
        struct store_error err = {""};
        struct boot_time now = clock_of(w, n->ppm);
        int r;

        for (unsigned i = 0; i < w->n_replicas; i++)
                peers[i] = (struct replica_peer){.id = i + 1, .address = addresses[i]};
        n->up = true;
        n->paused = n->asleep = false;
        n->life++;
        n->disk_armed = false;
        if (core_new(&n->core,
                     &(struct core_config){
                             .cluster_id = 7,
                             .member_id = n->i + 1,
                             .min_ttl = TTL_MIN_MS * MSEC,
                             .timeout = 6 * NSEC_PER_SEC,
                             .leader_timeout = 500 * MSEC,
                             .seed = rnd_u64(&w->rnd),
                     },
                     now) < 0)
                abort();
        if (api_new(&n->api, n->core, NULL, 0) < 0)
                abort();
        api_set_conns(n->api, &api_conns, NULL);
        core_set_owner(n->core, &owner, n);
        sim_disk_on_submit(n->disk, on_submit, n);
        r = replica_new(&n->replica,
                        &(struct replica_config){
                                .id = n->i + 1,
                                .cluster_id = 7,
                                .peers = peers,
                                .n_peers = w->n_replicas,
                                .election = 500 * MSEC,
                                .heartbeat = 50 * MSEC,
                                .seed = rnd_u64(&w->rnd),
                                .snapshot_entries = 60,
                                .snapshot_slice = 50 + rnd_u64(&w->rnd) % 1000,
                        },
                        n->disk, &seen_ops, n->core, now, &err);
        if (r < 0 && n->full) { /* it is tried again */
                n->up = false;
                n->core = core_free(n->core);
                n->api = api_free(n->api);
                return;
        }
        if (r < 0)
                return fail(w, "replica %u does not start: %s", n->i, err.text);
        core_attach(n->core, n->replica);
        if (replica_start(n->replica) < 0)
                fail(w, "replica %u does not start", n->i);
}

static void kill_replica(struct world *w, struct replica_node *n, bool crash)
{
        if (!n->up)
                return;
        n->up = false;
        sim_disk_on_submit(n->disk, NULL, NULL);
        if (crash)
                sim_disk_crash(n->disk, &w->rnd);
        else
                while (sim_disk_busy(n->disk))
                        sim_disk_finish(n->disk);
        clients_replica_down(n->i);
        n->core = core_free(n->core);
        n->api = api_free(n->api);
        n->replica = replica_free(n->replica);
}

/* ---- clients: requests travel to a replica, and answers back; either may be lost ---- */

enum request_kind { RQ_GRANT, RQ_REGISTER, RQ_RENEW, RQ_WRITE, RQ_READ, RQ_CAS };

struct request {
        enum request_kind kind;
        struct holder *holder;
        struct edge *edge; /* or of an edge client */
        unsigned to, life;
        int64_t lease, ttl_ms, key, value, revision, found, expect;
        nsec_t sent;              /* true time */
        struct boot_time sent_at; /* the holder's clock */
        bool ok, done;
        struct core_write write;
        struct core_renewal renewal;
        struct core_read read;
};

static void reply(struct request *q)
{
        struct event *e;

        if (W->cut[q->to][q->to] || (W->faults.loss && !W->calm && chance(W, 3))) {
                free(q);
                return;
        }
        e = post(W, (nsec_t) rnd_between(&W->rnd, 100, 3000) * NSEC_PER_USEC, EV_REPLY);
        e->request = q;
}

/* All is healed, and somebody has led all the while: what a link lost before that has been
 * sent again, and nobody waits for it until a timeout. */
static void check_timeout(struct world *w, struct status st)
{
        if (st.code == status_timeout.code && strcmp(st.text, status_timeout.text) == 0 &&
            w->calm && w->now - max_of(w->lull_ended, (nsec_t) RUN_TIME) > PROMPT &&
            !w->was_lull && !w->faults.members)
                fail(w, "a write waited for its timeout, though all was well for %.1f s",
                     (double) (w->now - max_of(w->lull_ended, (nsec_t) RUN_TIME)) / 1e9);
}

static void write_done(struct core_write *cw, struct status st, struct view bytes)
{
        struct request *q = container_of(cw, struct request, write);

        q->ok = st.code == RPC_OK;
        check_timeout(W, st);
        if (q->ok && q->kind == RQ_GRANT) {
                Pb__LeaseGrantResponse *p =
                        pb__lease_grant_response__unpack(NULL, bytes.len, bytes.p);

                q->lease = p->id;
                q->ttl_ms = p->ttl_ms;
                pb_free(p);
        } else if (q->ok && q->kind == RQ_WRITE) {
                Pb__PutResponse *p = pb__put_response__unpack(NULL, bytes.len, bytes.p);

                q->revision = p->header->revision;
                pb_free(p);
        } else if (q->ok && q->kind == RQ_CAS) {
                Pb__TxnResponse *p = pb__txn_response__unpack(NULL, bytes.len, bytes.p);

                q->revision = p->header->revision;
                q->done = p->succeeded;
                pb_free(p);
        }
        reply(q);
}

static void renew_done(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        struct request *q = container_of(rn, struct request, renewal);

        q->ok = st.code == RPC_OK;
        check_timeout(W, st);
        q->ttl_ms = ttl_ms;
        reply(q);
}

static void key_name(int64_t key, char out[static 16])
{
        snprintf(out, 16, "k%02" PRId64, key);
}

/* What the replica that answers has now. */
static void look_up(struct request *q)
{
        struct state *s = core_state(W->r[q->to].core);
        char name[16];
        struct kv_key *k;

        key_name(q->key, name);
        k = kv_find(&s->kv, name, strlen(name));
        q->revision = s->revision;
        q->found = k && kv_live(k) ? k->newest->mod_revision : 0;
        if (q->found && k->newest->value_len == sizeof(q->value))
                memcpy(&q->value, k->newest->value, sizeof(q->value));
}

/* Txn: if the key is as expected, then the value. */
static void pack_cas(const struct request *q, struct buf *b)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__Compare c = PB__COMPARE__INIT, *cs[] = {&c};
        char name[16];

        key_name(q->key, name);
        c.key = put.key = pb_bytes(name, strlen(name));
        c.target = PB__COMPARE__COMPARE_TARGET__MOD;
        c.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c.mod_revision = q->expect;
        put.value = pb_bytes(&q->value, sizeof(q->value));
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        txn.compare = cs;
        txn.success = ops;
        txn.n_compare = txn.n_success = 1;
        pb_append(b, &txn.base);
}

static void read_done(struct core_read *rd, struct status st)
{
        struct request *q = container_of(rd, struct request, read);

        q->ok = st.code == RPC_OK;
        if (q->ok)
                look_up(q);
        reply(q);
}

/* The request has arrived at its replica. */
static void serve(struct world *w, struct request *q)
{
        struct replica_node *n = &w->r[q->to];
        cleanup_(buf_fini) struct buf b = {0};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        char name[32];
        int r = 0;

        if (!n->up || n->life != q->life) {
                free(q);
                return;
        }
        q->write.done = write_done;
        switch (q->kind) {
        case RQ_GRANT:
                grant.id = (int64_t) (rnd_u64(&w->rnd) >> 1);
                grant.ttl_ms = q->ttl_ms;
                pb_append(&b, &grant.base);
                r = core_write(n->core, &q->write, CMD_GRANT, NULL, b.data, buf_len(&b), 0);
                break;
        case RQ_REGISTER:
        case RQ_WRITE:
                snprintf(name, sizeof(name),
                         q->kind == RQ_WRITE ? "k%02" PRId64 : "node%" PRId64, q->key);
                put.key = pb_bytes(name, strlen(name));
                put.value = pb_bytes(&q->value, sizeof(q->value));
                put.lease = q->lease;
                pb_append(&b, &put.base);
                r = core_write(n->core, &q->write, CMD_PUT, NULL, b.data, buf_len(&b), 0);
                break;
        case RQ_RENEW:
                q->renewal.done = renew_done;
                q->renewal.lease = q->lease;
                core_renew(n->core, &q->renewal);
                break;
        case RQ_CAS:
                /* On what this replica has, which may be old. */
                look_up(q);
                q->expect = q->found;
                q->value = (int64_t) rnd_u64(&w->rnd);
                pack_cas(q, &b);
                r = core_write(n->core, &q->write, CMD_TXN, NULL, b.data, buf_len(&b), 0);
                break;
        case RQ_READ:
                q->read.done = read_done;
                core_read(n->core, &q->read, 0);
                break;
        }
        if (r < 0)
                free(q);
        world_drive(w, n);
}

static struct request *ask(struct world *w, struct holder *h, enum request_kind kind,
                           unsigned to)
{
        struct request *q = calloc(1, sizeof(*q));
        struct event *e;

        if (!q)
                abort();
        q->kind = kind;
        q->holder = h;
        q->to = to;
        q->life = w->r[to].life;
        q->sent = w->now;
        if (h) {
                q->sent_at = clock_of(w, h->ppm);
                q->lease = h->session.lease;
        }
        e = post(w, (nsec_t) rnd_between(&w->rnd, 100, 3000) * NSEC_PER_USEC, EV_REQUEST);
        e->request = q;
        return q;
}

static void edge_answered(struct world *w, struct request *q)
{
        struct edge *e = q->edge;

        if (q->ok && q->kind == RQ_GRANT) {
                w->counts.grants++;
                check_granted(w, q->lease, q->ttl_ms, q->sent, NULL);
                e->lease = q->lease;
                e->ttl_ms = q->ttl_ms;
        } else if (q->ok) {
                w->counts.renewals++;
                check_renewed(w, q->lease, q->sent, q->ttl_ms);
                if (q->ttl_ms == 0)
                        e->lease = 0;
        }
}

/* Renews around the very end of the term: before it, at it, after it. */
static void edge(struct world *w, struct edge *e)
{
        struct request *q = ask(w, NULL, e->lease ? RQ_RENEW : RQ_GRANT,
                                (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));
        struct event *again;

        q->edge = e;
        q->lease = e->lease;
        q->ttl_ms = TTL_MIN_MS;
        again = post(w,
                     TTL_MIN_MS * MSEC / 100 *
                             (nsec_t) rnd_between(&w->rnd, e->lease ? 85 : 2, 101),
                     EV_EDGE);
        again->edge = e;
}

static void tell_op(struct world *w, const struct request *q, enum op_kind kind)
{
        check_op(w, &(struct op){.kind = kind,
                                 .key = q->key,
                                 .value = q->value,
                                 .expect = q->expect,
                                 .done = q->done,
                                 .found = q->found,
                                 .revision = q->revision,
                                 .begun = q->sent,
                                 .ended = w->now});
}

static void answered(struct world *w, struct request *q)
{
        struct holder *h = q->holder;
        struct boot_time now = h ? clock_of(w, h->ppm) : (struct boot_time){0};

        if (q->edge) {
                edge_answered(w, q);
                free(q);
                return;
        }
        /* It is in its socket when it wakes up. */
        if (h && w->now < h->asleep_until) {
                post(w, h->asleep_until - w->now, EV_REPLY)->request = q;
                return;
        }
        switch (q->kind) {
        case RQ_GRANT:
                if (!q->ok) {
                        session_failed(&h->session, now);
                        break;
                }
                w->counts.grants++;
                check_granted(w, q->lease, q->ttl_ms, q->sent, h);
                if (h->alive)
                        session_granted(&h->session, q->lease, q->ttl_ms * MSEC, q->sent_at);
                break;
        case RQ_REGISTER:
                if (q->lease != h->session.lease)
                        break;
                if (q->ok)
                        session_registered(&h->session);
                else
                        session_failed(&h->session, now);
                break;
        case RQ_RENEW:
                if (!q->ok)
                        break;
                w->counts.renewals++;
                check_renewed(w, q->lease, q->sent, q->ttl_ms);
                if (q->ttl_ms > 0)
                        session_renewed(&h->session, q->lease, q->sent_at);
                else
                        session_gone(&h->session, q->lease);
                break;
        case RQ_WRITE:
                if (q->ok) {
                        w->counts.writes++;
                        check_written(w, q->key, q->value, q->revision);
                        tell_op(w, q, OP_WRITE);
                }
                break;
        case RQ_CAS:
                if (q->ok) {
                        w->counts.writes++;
                        if (q->done)
                                check_written(w, q->key, q->value, q->revision);
                        tell_op(w, q, OP_CAS);
                }
                break;
        case RQ_READ:
                if (q->ok) {
                        w->counts.reads++;
                        tell_op(w, q, OP_READ);
                }
                break;
        }
        free(q);
}

/* What the session wants, done on the simulated network; as client/hold.c does it on the real
 * one. */
static void hold(struct world *w, struct holder *h)
{
        struct boot_time now = clock_of(w, h->ppm);
        enum session_action a;
        struct request *q;

        if (w->now < h->asleep_until)
                return;
        while (h->alive && (a = session_next_action(&h->session, now)) != SESSION_WAIT) {
                unsigned to = (h->at + session_attempt(&h->session)) % w->n_replicas;

                switch (a) {
                case SESSION_GRANT:
                        ask(w, h, RQ_GRANT, to)->ttl_ms = h->session.cfg.ttl / MSEC;
                        break;
                case SESSION_REGISTER:
                        q = ask(w, h, RQ_REGISTER, to);
                        q->key = h->i;
                        break;
                case SESSION_RENEW:
                        ask(w, h, RQ_RENEW, to);
                        session_sent(&h->session, now);
                        break;
                case SESSION_RENEW_ALL:
                        for (unsigned i = 0; i < w->n_replicas; i++)
                                ask(w, h, RQ_RENEW, i);
                        session_sent(&h->session, now);
                        break;
                case SESSION_TELL_LOST:
                        w->counts.holder_losses++;
                        session_told_lost(&h->session);
                        break;
                case SESSION_REVOKE:
                case SESSION_WAIT:
                        break;
                }
        }
}

/* ---- faults ---- */

/* Somebody asks some replica for a change of the members, sensible or not. */
static void change_members(struct world *w)
{
        static uint64_t requests;
        struct replica_node *n = &w->r[rnd_between(&w->rnd, 0, w->n_replicas - 1)];
        uint64_t id = rnd_between(&w->rnd, 1, w->n_replicas);

        if (!n->up || n->paused)
                return;
        w->counts.changes++;
        replica_change_members(
                n->replica, ++requests,
                (enum replica_change) rnd_between(&w->rnd, REPLICA_ADD, REPLICA_REMOVE), id,
                addresses[id - 1]);
        world_drive(w, n);
}

static void has_member(uint64_t id, const char *address, bool voter, void *arg)
{
        int *role = arg;

        (void) address;
        role[id - 1] = voter ? 2 : 1;
}

/* In the end everybody is to be a member again. */
static void restore_members(struct world *w)
{
        static uint64_t requests = UINT64_C(1) << 32;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                int role[REPLICAS_MAX] = {0};

                if (!w->r[i].up || !core_status(w->r[i].core).ready)
                        continue;
                core_each_peer(w->r[i].core, has_member, role);
                /* A learner first: there may be one at a time. */
                for (unsigned k = 0; k < 2 * w->n_replicas; k++) {
                        unsigned who = k % w->n_replicas;

                        if (role[who] != (k < w->n_replicas))
                                continue;
                        replica_change_members(w->r[i].replica, ++requests,
                                               role[who] ? REPLICA_PROMOTE
                                                         : REPLICA_ADD_LEARNER,
                                               who + 1, addresses[who]);
                        return world_drive(w, &w->r[i]);
                }
        }
}

static void move_leader(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].up && !w->r[i].paused && core_status(w->r[i].core).ready) {
                        w->counts.transfers++;
                        (void) core_move_leader(w->r[i].core,
                                                rnd_between(&w->rnd, 1, w->n_replicas));
                        return world_drive(w, &w->r[i]);
                }
}

static void heal(struct world *w)
{
        memset(w->cut, 0, sizeof(w->cut));
        for (unsigned i = 0; i < w->n_replicas; i++) {
                w->r[i].disk_delay = 0;
                w->r[i].paused = w->r[i].asleep = w->r[i].full = false;
                sim_disk_fill(w->r[i].disk, false);
                if (!w->r[i].up)
                        boot(w, &w->r[i]);
        }
}

static void cause_fault(struct world *w)
{
        struct replica_node *n = &w->r[rnd_between(&w->rnd, 0, w->n_replicas - 1)];
        unsigned a, b;

        switch (rnd_between(&w->rnd, 0, 13)) {
        case 0:
        case 1:
                if (w->faults.crashes && n->up) {
                        w->counts.crashes++;
                        kill_replica(w, n, true);
                }
                break;
        case 2:
        case 3:
                for (unsigned i = 0; i < w->n_replicas && (w->faults.crashes || w->faults.full);
                     i++)
                        if (!w->r[i].up && chance(w, 60))
                                boot(w, &w->r[i]);
                break;
        case 4:
                if (!w->faults.partitions)
                        break;
                w->counts.partitions++;
                a = n->i;
                b = (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1);
                w->cut[a][b] = true; /* to itself: its clients cannot reach it either */
                if (chance(w, 60))
                        w->cut[b][a] = true;
                break;
        case 5:
                if (!w->faults.partitions)
                        break;
                w->counts.partitions++;
                for (unsigned i = 0; i < w->n_replicas; i++)
                        w->cut[n->i][i] = w->cut[i][n->i] = true;
                break;
        case 6:
                memset(w->cut, 0, sizeof(w->cut));
                break;
        case 7:
                if (!w->faults.stalls)
                        break;
                w->counts.stalls++;
                n->disk_delay =
                        chance(w, 50) ? 0 : (nsec_t) rnd_between(&w->rnd, 10, 1500) * MSEC;
                break;
        case 8:
                if (!w->faults.pauses)
                        break;
                w->counts.pauses++;
                n->paused = !n->paused;
                n->asleep = false;
                break;
        case 12:
                if (!w->faults.suspends)
                        break;
                w->counts.suspends++;
                if (chance(w, 50)) {
                        n->paused = n->asleep = !n->asleep;
                } else {
                        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];

                        h->asleep_until =
                                w->now + (nsec_t) rnd_between(&w->rnd, 100, 6000) * MSEC;
                }
                break;
        case 13:
                if (!w->faults.full)
                        break;
                w->counts.full++;
                n->full = !n->full;
                sim_disk_fill(n->disk, n->full);
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
                if (w->faults.deaths && chance(w, 50)) {
                        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];

                        w->counts.holder_deaths += h->alive;
                        if (!h->alive || chance(w, 60)) /* else: only a restart */
                                h->alive = !h->alive;
                        if (h->alive) {
                                struct session_config cfg = h->session.cfg;
                                struct session_place p;
                                bool held = session_place(&h->session, &p);

                                session_init(&h->session, &cfg);
                                /* A restarted agent has what its earlier life left behind. */
                                if (held && chance(w, 70)) {
                                        w->counts.resumed++;
                                        session_resume(&h->session, &p);
                                }
                        }
                }
                break;
        }
}

/* Could replica @i, and a majority with it, have worked together just now? Seen from outside.
 * With @does, their disks are not stalled and they are of one term. */
static bool could_lead(const struct world *w, unsigned i, bool does)
{
        unsigned n = 0;

        if (!w->r[i].up || w->r[i].paused)
                return false;
        for (unsigned j = 0; j < w->n_replicas; j++) {
                const struct replica_node *a = &w->r[i], *b = &w->r[j];

                if (i != j && (!b->up || b->paused || w->cut[i][j] || w->cut[j][i]))
                        continue;
                n += !does || (b->stalled_until <= w->now &&
                               core_status(b->core).term == core_status(a->core).term);
        }
        return n > w->n_replicas / 2;
}

/* An outage is when nobody could have led, whatever the code does; a lull when nobody did. */
static void account(struct world *w)
{
        bool out = true, lull = true;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                out = out && !could_lead(w, i, false);
                lull = lull && !(could_lead(w, i, true) && core_status(w->r[i].core).ready);
        }
        w->outage += out ? CLOCK_STEP : 0;
        w->outages += out && !w->was_out;
        w->was_out = out;
        w->lull += lull ? CLOCK_STEP : 0;
        w->lulls += lull && !w->was_lull;
        if (lull)
                w->lull_ended = w->now;
        w->was_lull = lull;
}

/* ---- the run ---- */

static void handle(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];
        struct request *q;

        switch (e->kind) {
        case EV_FRAME:
                /* A paused process finds it in its socket when it wakes up. */
                if (n->asleep)
                        break;
                if (n->up && n->paused) {
                        struct event *again = post(w, 5 * MSEC, EV_FRAME);

                        again->from = e->from;
                        again->to = e->to;
                        again->bytes = e->bytes;
                        e->bytes = (struct buf){0};
                } else if (n->up && !w->cut[e->from][e->to]) {
                        if (replica_input(
                                    n->replica, e->from + 1,
                                    (struct view){buf_head(&e->bytes), buf_len(&e->bytes)},
                                    clock_of(w, n->ppm)) < 0)
                                fail(w, "replica %u refused a frame of replica %u", e->to,
                                     e->from);
                        world_drive(w, n);
                }
                break;
        case EV_UP:
                n = &w->r[e->from];
                if (n->up && !n->paused && !w->cut[e->from][e->to]) {
                        replica_peer_up(n->replica, e->to + 1, clock_of(w, n->ppm));
                        world_drive(w, n);
                }
                break;
        case EV_DISK:
                if (!n->up || n->life != e->life)
                        break;
                if (n->paused) { /* the disk goes on, but nobody hears of it */
                        struct event *again = post(w, 5 * MSEC, EV_DISK);

                        again->to = e->to;
                        again->life = e->life;
                        break;
                }
                n->disk_armed = false;
                sim_disk_finish(n->disk);
                if (sim_disk_busy(n->disk))
                        on_submit(n);
                world_drive(w, n);
                break;
        case EV_EXIT:
                if (n->up && n->life == e->life)
                        kill_replica(w, n, true);
                break;
        case EV_REQUEST:
                q = e->request;
                if (w->r[q->to].asleep)
                        free(q);
                else if (w->r[q->to].paused && w->r[q->to].up)
                        post(w, 5 * MSEC, EV_REQUEST)->request = q;
                else if (w->cut[q->to][q->to] || (w->faults.loss && !w->calm && chance(w, 3)))
                        free(q);
                else
                        serve(w, q);
                break;
        case EV_REPLY:
                answered(w, e->request);
                break;
        case EV_FAULT:
                if (!w->calm) {
                        cause_fault(w);
                        post(w, (nsec_t) rnd_between(&w->rnd, 20, 700) * MSEC, EV_FAULT);
                }
                break;
        case EV_HEAL:
                w->calm = true;
                heal(w);
                if (w->faults.members)
                        post(w, 0, EV_MEMBERS);
                break;
        case EV_MEMBERS:
                restore_members(w);
                post(w, 300 * MSEC, EV_MEMBERS);
                break;
        case EV_EDGE:
                if (w->now < RUN_TIME + CALM_TIME / 2)
                        edge(w, e->edge);
                break;
        case EV_CLOCK:
                account(w);
                check_undead(w);
                post(w, CLOCK_STEP, EV_CLOCK);
                break;
        case EV_CLIENT:
                q = ask(w, NULL,
                        chance(w, 40)   ? RQ_WRITE
                        : chance(w, 30) ? RQ_CAS
                                        : RQ_READ,
                        (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));
                q->key = (int64_t) rnd_between(&w->rnd, 0, N_KEYS - 1);
                q->value = (int64_t) rnd_u64(&w->rnd);
                q->lease = 0;
                if (w->now < RUN_TIME + CALM_TIME / 2)
                        post(w, (nsec_t) rnd_between(&w->rnd, 5, 150) * MSEC, EV_CLIENT);
                break;
        }
}

static nsec_t next_wakeup(struct world *w)
{
        nsec_t at = INT64_MAX;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_node *n = &w->r[i];

                if (n->up && !n->paused)
                        at = min_of(at, true_time_of(w, n->ppm,
                                                     boot_min(boot_min(replica_next(n->replica),
                                                                       core_next(n->core)),
                                                              api_next(n->api))));
        }
        for (unsigned i = 0; i < w->n_holders; i++)
                if (w->h[i].alive)
                        at = min_of(at, max_of(w->h[i].asleep_until,
                                               true_time_of(w, w->h[i].ppm,
                                                            session_wakeup(&w->h[i].session))));
        return at;
}

static void set_up(struct world *w, uint64_t seed)
{
        *w = (struct world){.seed = seed, .trace = w->trace};
        W = w;
        rnd_init(&w->rnd, seed);
        TAILQ_INIT(&events);
        check_reset();
        seen_ops = core_replica_ops;
        seen_ops.apply = seen_apply;
        w->n_replicas = chance(w, 15) ? 1 : chance(w, 75) ? 3 : 5;
        w->n_holders = (unsigned) rnd_between(&w->rnd, 1, HOLDERS_MAX);
        /* Some worlds have every fault, some only one kind: bugs hide behind others. */
        w->faults = (struct faults){
                .crashes = chance(w, 60),
                .partitions = chance(w, 60),
                .loss = chance(w, 60),
                .stalls = chance(w, 50),
                .pauses = chance(w, 50),
                .suspends = chance(w, 40),
                .full = chance(w, 30),
                .deaths = chance(w, 60),
                .members = chance(w, 30),
                .transfers = chance(w, 30),
        };
        clients_begin(w);
        for (unsigned i = 0; i < w->n_replicas; i++) {
                w->r[i] = (struct replica_node){
                        .i = i,
                        .disk = sim_disk_new(),
                        .ppm = (int32_t) rnd_between(&w->rnd, 0, 1000) - 500,
                };
                boot(w, &w->r[i]);
        }
        for (unsigned i = 0; i < w->n_holders; i++) {
                struct session_config cfg = {
                        .ttl = (nsec_t) rnd_between(&w->rnd, TTL_MIN_MS, TTL_MAX_MS) * MSEC,
                        .drift_ppm = 1000,
                        .retry = 50 * MSEC,
                };

                w->h[i] = (struct holder){
                        .i = i,
                        .alive = true,
                        .ppm = (int32_t) rnd_between(&w->rnd, 0, 1000) - 500,
                        .at = (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1),
                };
                session_init(&w->h[i].session, &cfg);
        }
        post(w, (nsec_t) rnd_between(&w->rnd, 1, 2000) * MSEC, EV_FAULT);
        post(w, RUN_TIME, EV_HEAL);
        post(w, 0, EV_CLIENT);
        post(w, 0, EV_CLOCK);
        for (unsigned i = 0; i < HOLDERS_MAX && chance(w, 70); i++)
                post(w, (nsec_t) i * 100 * MSEC, EV_EDGE)->edge = &w->edges[i];
}

static void tear_down(struct world *w)
{
        struct event *e;

        clients_end();
        for (unsigned i = 0; i < w->n_replicas; i++) {
                kill_replica(w, &w->r[i], false);
                w->r[i].disk = disk_free(w->r[i].disk);
        }
        /* Requests on their way to a replica, or answers on the way back; those inside a core
         * were answered just now. */
        while ((e = TAILQ_FIRST(&events))) {
                TAILQ_REMOVE(&events, e, next);
                free(e->request);
                event_free(e);
        }
}

bool world_run(struct world *w, uint64_t seed)
{
        uint64_t at_one_time = 0;

        set_up(w, seed);
        while (w->now < RUN_TIME + CALM_TIME && !*w->failure) {
                struct event *e = TAILQ_FIRST(&events);
                nsec_t wake = min_of(next_wakeup(w), clients_next()),
                       next = min_of(wake, e ? e->at : INT64_MAX);

                at_one_time = next > w->now ? 0 : at_one_time + 1;
                if (at_one_time > 100000)
                        fail(w, "time stands still");
                w->now = max_of(w->now, next);
                w->counts.events++;
                if (e && e->at <= w->now) {
                        TAILQ_REMOVE(&events, e, next);
                        handle(w, e);
                        event_free(e);
                } else {
                        for (unsigned i = 0; i < w->n_replicas; i++)
                                if (w->r[i].up && !w->r[i].paused)
                                        world_drive(w, &w->r[i]);
                }
                for (unsigned i = 0; i < w->n_holders && !*w->failure; i++)
                        hold(w, &w->h[i]);
                if (!*w->failure)
                        clients_run();
        }
        if (!*w->failure)
                check_end(w);
        tear_down(w);
        return !*w->failure;
}
