/*
 * Clients that speak gRPC to the real services: watchers, who must be told every event once and
 * in order (I6), and lockers, of whom one holds at a time. Connections are the real ones of
 * rpc/, joined by a virtual network that delays, and that breaks them.
 *
 * A watcher goes from replica to replica and resumes where it ended. A locker is granted a
 * lease that it does not renew, locks, and thinks that it holds until it lets go or its lease
 * may end. Two more put some keys at once, delete them at once, and look at them: they are all
 * there, of one revision, or none is, also while a command is half applied.
 */
#include <bsd/sys/queue.h>
#include <stdio.h>

#include "service/api.h"
#include "world.h"

#define N_WATCHERS 2
#define N_LOCKERS 3
#define N_GROUPERS 2
#define GROUP 7 /* keys */
#define LOCK_TTL_S 3

struct parcel {
        STAILQ_ENTRY(parcel) next;
        nsec_t at;
        struct buf bytes;
};

STAILQ_HEAD(parcels, parcel);

/* A connection, and what is under way on it. */
struct link {
        struct rpc_conn *client, *server; /* NULL: not connected */
        unsigned to;
        struct parcels to_client, to_server;
        nsec_t last_in, last_out;        /* when the last parcel arrives */
        bool broken;                     /* ends when nobody is inside of it */
        bool client_dirty, server_dirty; /* there may be something to say */
};

struct client {
        unsigned i;
        enum { WATCHES, LOCKS, GROUPS } role;
        struct link link;
        nsec_t act_at;
        /* A watcher. */
        int64_t next; /* the revision that it wants next */
        /* A locker. */
        enum { IDLE, GRANTING, LOCKING, HOLDING, UNLOCKING } state;
        int64_t lease;
        nsec_t granted; /* when the lease was asked for */
        uint8_t key[64];
        size_t key_len;
        bool asks; /* one who groups: for the answer to a call */
};

static struct client clients[N_WATCHERS + N_LOCKERS + N_GROUPERS];

static nsec_t some(nsec_t from, nsec_t to)
{
        return (nsec_t) rnd_between(&W->rnd, (uint64_t) (from / 1000), (uint64_t) (to / 1000)) *
               1000;
}

/* ---- connections ---- */

static void parcels_clear(struct parcels *list)
{
        struct parcel *p;

        while ((p = STAILQ_FIRST(list))) {
                STAILQ_REMOVE_HEAD(list, next);
                buf_fini(&p->bytes);
                free(p);
        }
}

static void disconnect(struct client *c)
{
        c->link.client = rpc_conn_free(c->link.client);
        c->link.server = rpc_conn_free(c->link.server);
        parcels_clear(&c->link.to_client);
        parcels_clear(&c->link.to_server);
        c->link.broken = c->link.client_dirty = c->link.server_dirty = false;
        c->state = IDLE;
        c->asks = false;
        c->act_at = W->now + some(5 * MSEC, 300 * MSEC);
}

static bool connect_to(struct client *c, unsigned to)
{
        struct rpc_limits limits = {.message_max = 1 << 20, .calls_max = 100, .too_large = "x"};

        if (!W->r[to].up || W->r[to].asleep || W->cut[to][to])
                return false;
        limits.busy = api_busy(W->r[to].node.api);
        c->link.to = to;
        c->link.last_in = c->link.last_out = 0;
        if (rpc_conn_new_client(&c->link.client, "sim", false) < 0 ||
            rpc_conn_new_server(&c->link.server, &limits, api_accept, W->r[to].node.api) < 0)
                abort();
        rpc_conn_set_userdata(c->link.server, c);
        return true;
}

void clients_kick(struct rpc_conn *server)
{
        struct client *c = rpc_conn_userdata(server);

        c->link.server_dirty = true;
}

void clients_go_on(const struct replica_node *n)
{
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
                if (clients[i].link.server && &W->r[clients[i].link.to] == n)
                        clients[i].link.server_dirty = true;
}

/* What one side has to say gets on its way. */
static void collect(struct client *c, struct rpc_conn *from, struct parcels *list, nsec_t *last)
{
        MEMORY(from == c->link.server ? MEMORY_RUN : MEMORY_OURS);
        struct buf b = {0};
        struct parcel *p;
        int r;

        r = rpc_conn_output(from, &b, 1 << 16);
        (void) memory_of(MEMORY_OURS);
        if (r < 0) { /* without memory it ends */
                c->link.broken = true;
                return buf_fini(&b);
        }
        if (buf_len(&b) == 0)
                return buf_fini(&b);
        p = calloc(1, sizeof(*p));
        if (!p)
                abort();
        p->bytes = b;
        *last = p->at = max_of(*last + 1, W->now + some(100 * NSEC_PER_USEC, 3 * MSEC));
        STAILQ_INSERT_TAIL(list, p, next);
}

static bool deliver(struct client *c, struct parcels *list, struct rpc_conn *to)
{
        struct parcel *p = STAILQ_FIRST(list);
        const struct replica_node *n = &W->r[c->link.to];

        if (!p || p->at > W->now)
                return false;
        if (to == c->link.server && n->paused && !n->asleep) /* in its socket */
                return false;
        if (n->asleep || W->cut[c->link.to][c->link.to] ||
            (W->faults.loss && !W->calm && rnd_between(&W->rnd, 1, 500) == 1)) {
                c->link.broken = true;
                return false;
        }
        STAILQ_REMOVE_HEAD(list, next);
        c->link.client_dirty = c->link.server_dirty = true;
        {
                MEMORY(to == c->link.server ? MEMORY_RUN : MEMORY_OURS);
                if (rpc_conn_input(to, buf_head(&p->bytes), buf_len(&p->bytes)) < 0)
                        c->link.broken = true;
        }
        buf_fini(&p->bytes);
        free(p);
        return true;
}

/* ---- calls ---- */

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static void call(struct client *c, const char *path, const struct rpc_handler *h,
                 const ProtobufCMessage *m, bool last)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *k;

        pb_append(&b, m);
        if (rpc_call_new(c->link.client, path, true, h, c, &k) < 0 ||
            rpc_call_send(k, b.data, buf_len(&b)) < 0) {
                c->link.broken = true;
                return;
        }
        if (last)
                rpc_call_end(k);
}

/* ---- watchers ---- */

static void on_watch(struct rpc_call *k, struct view m)
{
        struct client *c = k->userdata;
        Pb__WatchResponse *p = pb__watch_response__unpack(NULL, m.len, m.p);
        int64_t at = c->next - 1;

        if (!p)
                abort();
        if (p->canceled) {
                c->link.broken = true;
                /* I6: or it is told `compacted`, and goes on from there. */
                W->met.compacted_watch += p->compact_revision > 0;
                if (p->compact_revision > c->next) {
                        check_told_compacted(c->i, c->next, p->compact_revision);
                        at = p->compact_revision - 1;
                }
        }
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__Event *e = p->events[i];

                /* Every revision has an event, and all of a revision come together. */
                if (e->kv->mod_revision != at + 1 && (e->kv->mod_revision != at || i == 0))
                        fail(W, "I6: watcher %u was told of revision %lld after %lld", c->i,
                             (long long) e->kv->mod_revision, (long long) at);
                at = e->kv->mod_revision;
                check_told(W, c->i, at, (struct view){e->kv->key.data, e->kv->key.len},
                           (struct view){e->kv->value.data, e->kv->value.len});
        }
        c->next = at + 1;
        pb_free(p);
}

static void on_status(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct client *c = k->userdata;

        (void) code;
        (void) message;
        c->link.broken = true;
}

static const struct rpc_handler watch_handler = {
        .on_message = on_watch, .on_status = on_status, .on_close = on_close};

static void watch(struct client *c)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        uint8_t zero = 0;

        create.key = create.range_end = pb_bytes(&zero, 1);
        create.start_revision = c->next;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        call(c, "/etcdserverpb.Watch/Watch", &watch_handler, &q.base, false);
        c->act_at = W->now + some(500 * MSEC, 6000 * MSEC);
        W->met.behind_watch += core_state(W->r[c->link.to].node.core)->revision + 1 < c->next;
}

/* ---- lockers ---- */

static void locker_goes_on(struct client *c);

static void on_answer(struct rpc_call *k, struct view m)
{
        struct client *c = k->userdata;

        if (c->state == GRANTING) {
                Pb__LeaseGrantResponse *p = pb__lease_grant_response__unpack(NULL, m.len, m.p);

                c->lease = p ? p->id : 0;
                pb_free(p);
        } else if (c->state == LOCKING) {
                Pb__LockResponse *p = pb__lock_response__unpack(NULL, m.len, m.p);

                if (!p || p->key.len > sizeof(c->key))
                        abort();
                memcpy(c->key, p->key.data, p->key.len);
                c->key_len = p->key.len;
                pb_free(p);
        }
}

static void on_answered(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct client *c = k->userdata;

        (void) message;
        if (code != RPC_OK || c->state == UNLOCKING) {
                c->state = IDLE;
                c->act_at = W->now + some(MSEC, 400 * MSEC);
                return;
        }
        locker_goes_on(c);
}

static const struct rpc_handler handler = {
        .on_message = on_answer, .on_status = on_answered, .on_close = on_close};

static void locker_goes_on(struct client *c)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LockRequest lock = PB__LOCK_REQUEST__INIT;
        Pb__UnlockRequest unlock = PB__UNLOCK_REQUEST__INIT;
        nsec_t end;

        c->act_at = W->now + 4 * NSEC_PER_SEC; /* by then it tries elsewhere */
        switch (c->state) {
        case IDLE:
                c->state = GRANTING;
                c->granted = W->now;
                grant.ttl = LOCK_TTL_S;
                call(c, "/etcdserverpb.Lease/LeaseGrant", &handler, &grant.base, true);
                break;
        case GRANTING:
                c->state = LOCKING;
                lock.name = pb_bytes("lock", 4);
                lock.lease = c->lease;
                call(c, "/v3lockpb.Lock/Lock", &handler, &lock.base, true);
                break;
        case LOCKING:
                c->state = HOLDING;
                /* As long as it likes, or until its lease may end, by a clock that runs slow.
                 */
                end = min_of(W->now + some(MSEC, 800 * MSEC),
                             c->granted + LOCK_TTL_S * (NSEC_PER_SEC - MSEC));
                if (end > W->now)
                        check_held(W, c->i, W->now, end);
                c->act_at = max_of(end, W->now);
                break;
        case HOLDING:
                c->state = UNLOCKING;
                unlock.key = pb_bytes(c->key, c->key_len);
                call(c, "/v3lockpb.Lock/Unlock", &handler, &unlock.base, true);
                break;
        case UNLOCKING:
                break;
        }
}

/* ---- those who put and delete several keys at once ---- */

static void check_group(const struct client *c, Pb__KeyValue **kvs, size_t n, size_t of)
{
        if (n != of || (n != 0 && n != GROUP))
                return fail(W, "client %u was shown %zu of %d keys that come and go at once",
                            c->i, n, GROUP);
        for (size_t i = 1; i < n; i++)
                if (kvs[i]->mod_revision != kvs[0]->mod_revision)
                        fail(W,
                             "client %u was shown revisions %lld and %lld of keys that are "
                             "put at once",
                             c->i, (long long) kvs[0]->mod_revision,
                             (long long) kvs[i]->mod_revision);
}

static void on_range(struct rpc_call *k, struct view m)
{
        Pb__RangeResponse *p = pb__range_response__unpack(NULL, m.len, m.p);

        check_group(k->userdata, p->kvs, p->n_kvs, (size_t) p->count);
        pb_free(p);
}

static void on_looked(struct rpc_call *k, struct view m)
{
        Pb__TxnResponse *p = pb__txn_response__unpack(NULL, m.len, m.p);
        const Pb__RangeResponse *r = p->responses[0]->response_range;

        check_group(k->userdata, r->kvs, r->n_kvs, (size_t) r->count);
        pb_free(p);
}

static void on_deleted(struct rpc_call *k, struct view m)
{
        Pb__DeleteRangeResponse *p = pb__delete_range_response__unpack(NULL, m.len, m.p);

        check_group(k->userdata, p->prev_kvs, p->n_prev_kvs, (size_t) p->deleted);
        pb_free(p);
}

static void on_put(struct rpc_call *k, struct view m)
{
        (void) k;
        (void) m;
        W->counts.groups++;
}

static void on_done(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct client *c = k->userdata;

        (void) code;
        (void) message;
        c->asks = false;
        c->act_at = W->now + some(0, 200 * MSEC);
}

static void put_group(struct client *c)
{
        static const struct rpc_handler h = {
                .on_message = on_put, .on_status = on_done, .on_close = on_close};
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RequestOp ops[GROUP], *all[GROUP];
        Pb__PutRequest puts[GROUP];
        char keys[GROUP][8];

        for (unsigned i = 0; i < GROUP; i++) {
                pb__request_op__init(&ops[i]);
                pb__put_request__init(&puts[i]);
                snprintf(keys[i], sizeof(keys[i]), "group%u", i);
                puts[i].key = pb_bytes(keys[i], 6);
                ops[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                ops[i].request_put = &puts[i];
                all[i] = &ops[i];
        }
        txn.success = all;
        txn.n_success = GROUP;
        call(c, "/etcdserverpb.KV/Txn", &h, &txn.base, true);
}

static void group(struct client *c)
{
        static const struct rpc_handler range = {
                .on_message = on_range, .on_status = on_done, .on_close = on_close};
        static const struct rpc_handler look = {
                .on_message = on_looked, .on_status = on_done, .on_close = on_close};
        static const struct rpc_handler deletion = {
                .on_message = on_deleted, .on_status = on_done, .on_close = on_close};
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

        c->asks = true;
        c->act_at = W->now + 4 * NSEC_PER_SEC;
        get.key = del.key = pb_bytes("group", 5);
        get.range_end = del.range_end = pb_bytes("grouq", 5);
        get.serializable = rnd_between(&W->rnd, 0, 1) == 0;
        del.prev_kv = true;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op.request_range = &get;
        txn.success = ops;
        txn.n_success = 1;
        switch (rnd_between(&W->rnd, 0, 5)) {
        case 0:
                return put_group(c);
        case 1:
                return call(c, "/etcdserverpb.KV/DeleteRange", &deletion, &del.base, true);
        case 2: /* as it is now, and not as of a revision */
                return call(c, "/etcdserverpb.KV/Txn", &look, &txn.base, true);
        default:
                return call(c, "/etcdserverpb.KV/Range", &range, &get.base, true);
        }
}

/* ---- all of them ---- */

void clients_begin(struct world *w)
{
        (void) w;
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
                struct client *c = &clients[i];

                *c = (struct client){.i = i,
                                     .role = i < N_WATCHERS               ? WATCHES
                                             : i < N_WATCHERS + N_LOCKERS ? LOCKS
                                                                          : GROUPS,
                                     .next = 2};
                STAILQ_INIT(&c->link.to_client);
                STAILQ_INIT(&c->link.to_server);
                c->act_at = some(0, 2000 * MSEC);
        }
}

void clients_replica_down(unsigned i)
{
        for (unsigned k = 0; k < ARRAY_SIZE(clients); k++)
                if (clients[k].link.server && clients[k].link.to == i)
                        disconnect(&clients[k]);
}

void clients_end(void)
{
        for (unsigned k = 0; k < ARRAY_SIZE(clients); k++)
                disconnect(&clients[k]);
}

static void act(struct client *c)
{
        unsigned to = (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1);

        c->act_at = W->now + some(20 * MSEC, 200 * MSEC);
        c->link.client_dirty = true;
        /* In the end watchers get to hear of all there was. */
        if (c->role != WATCHES && c->state == IDLE && load_ended(W))
                return;
        if (!c->link.client) {
                if (!connect_to(c, to))
                        return;
                if (c->role == WATCHES)
                        watch(c);
                else if (c->role == LOCKS)
                        locker_goes_on(c);
        } else if (c->role == WATCHES || (c->state != IDLE && c->state != HOLDING) || c->asks) {
                c->link.broken = true; /* it has been here for long enough, or waited */
        } else if (c->role == LOCKS) {
                locker_goes_on(c);
        } else if (rnd_between(&W->rnd, 0, 30) == 0) {
                c->link.broken = true;
        } else {
                group(c);
        }
}

/* What arrives at a paused process waits for it. */
static nsec_t next_of(const struct client *c)
{
        const struct parcel *in = STAILQ_FIRST(&c->link.to_client),
                            *out = STAILQ_FIRST(&c->link.to_server);
        const struct replica_node *n = &W->r[c->link.to];
        nsec_t at = min_of(c->act_at, in ? in->at : NEVER);

        return out && !(n->paused && !n->asleep) ? min_of(at, out->at) : at;
}

static bool is_due(const struct client *c)
{
        return c->link.broken || next_of(c) <= W->now || c->link.client_dirty ||
               (c->link.server_dirty && !W->r[c->link.to].paused);
}

void clients_run(void)
{
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
                struct client *c = &clients[i];
                const struct replica_node *n = &W->r[c->link.to];
                bool served = false;

                if (!is_due(c))
                        continue;
                while (c->link.client && !c->link.broken &&
                       deliver(c, &c->link.to_client, c->link.client))
                        ;
                while (c->link.client && !c->link.broken &&
                       deliver(c, &c->link.to_server, c->link.server))
                        served = true;
                if (served)
                        world_drive(W, &W->r[c->link.to]);
                if (c->act_at <= W->now && !c->link.broken)
                        act(c);
                if (c->link.broken)
                        disconnect(c);
                if (c->link.client && c->link.client_dirty)
                        collect(c, c->link.client, &c->link.to_server, &c->link.last_out);
                c->link.client_dirty = false;
                /* Who is paused says it when it wakes up. */
                if (c->link.client && c->link.server_dirty && !n->paused) {
                        bool waited = rpc_conn_can_go_on(c->link.server);

                        c->link.server_dirty = false;
                        collect(c, c->link.server, &c->link.to_client, &c->link.last_in);
                        if (waited)
                                world_drive(W, &W->r[c->link.to]);
                }
                if (c->link.broken)
                        disconnect(c);
        }
}

nsec_t clients_next(void)
{
        nsec_t at = NEVER;

        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
                at = min_of(at, next_of(&clients[i]));
        return at;
}

bool clients_all_told(int64_t revision)
{
        for (unsigned i = 0; i < N_WATCHERS; i++)
                if (clients[i].next <= revision)
                        return false;
        return true;
}
