/*
 * Clients that speak gRPC to the real services: watchers, who must be told every event once and
 * in order (I6), and lockers, of whom one holds the lock at a time.
 *
 * A watcher goes from replica to replica and resumes where it stopped. A locker gets a lease
 * that it does not renew, locks, and believes that it holds the lock until it lets go or its
 * lease may end. Sometimes it hands the lock over to another one that waits
 * (member/switchover.h), both as the one that requests it and as the holder. Two more put some
 * keys together, delete them together, and read them: either all are there, of one revision, or
 * none, also while a command is half applied.
 */
#include <bsd/sys/queue.h>
#include <stdio.h>

#include "asker.h"
#include "etcd/api.h"
#include "hoard.h"
#include "listeners.h"
#include "member/switchover.h"
#include "world.h"

#define N_WATCHERS 2
#define N_LOCKERS 3
#define N_GROUPERS 2
#define GROUP 7 /* keys */
#define LOCK_TTL_S 3
#define LINE_MAX_KEYS 8 /* with those of clients that are gone, until their leases end */

struct client {
        unsigned i;
        enum { WATCHES, LOCKS, GROUPS } role;
        struct wire link;
        nsec_t act_at;
        /* For a watcher. */
        int64_t next;     /* the revision that it needs next */
        struct buf parts; /* of a response that comes in parts */
        /* For a locker. */
        enum {
                IDLE,
                GRANTING,
                LOCKING,
                HOLDING,
                LOOKING, /* for a waiter to hand over to */
                ASKING,
                PUSHING,
                HANDING,
                UNLOCKING
        } state;
        int64_t lease;
        nsec_t granted; /* when it asked for the lease */
        uint8_t key[64];
        size_t key_len;
        int64_t created;           /* the key's create revision; 0: unknown */
        struct switchover request; /* request for a target; created 0: none */
        uint8_t between[LINE_MAX_KEYS][64];
        struct switchover_at pushed[LINE_MAX_KEYS];
        size_t n_between;
        int64_t mod;         /* the request's mod revision */
        bool refused;        /* its last step was refused */
        bool asks;           /* a grouper: waits for the answer to a call */
        struct prompt waits; /* for an answer, or a watcher for an event ... */
        int64_t waits_for;   /* ... of this revision */
};

static struct client clients[N_WATCHERS + N_LOCKERS + N_GROUPERS];

/* The largest token so far, and the last switchover that was accepted. */
static struct {
        int64_t token, from, to;
} lock;

static nsec_t some(nsec_t from, nsec_t to)
{
        return (nsec_t) rnd_between(&W->rnd, (uint64_t) (from / 1000), (uint64_t) (to / 1000)) *
               1000;
}

static void disconnect(void *arg)
{
        struct client *c = arg;

        wire_close(&c->link);
        prompt_end(&c->waits);
        buf_fini(&c->parts);
        c->state = IDLE;
        c->asks = false;
        c->act_at = W->now + some(5 * MSEC, 300 * MSEC);
}

/* ---- calls ---- */

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static void call_with(struct client *c, const char *path, const struct rpc_handler *h,
                      const struct buf *b, bool last)
{
        struct rpc_call *k;

        if (rpc_call_new(c->link.client, path, true, h, c, &k) < 0 ||
            rpc_call_send(k, b->data, buf_len(b)) < 0) {
                c->link.broken = true;
                return;
        }
        if (!last)
                return;
        rpc_call_end(k);
        prompt_begin(&c->waits, c->link.to, path, PROMPT_MAJORITY);
}

static void call(struct client *c, const char *path, const struct rpc_handler *h,
                 const ProtobufCMessage *m, bool last)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        call_with(c, path, h, &b, last);
}

/* ---- watchers ---- */

/* A response that is too large comes in parts, which are a message when they are put together:
 * NULL until then. */
static Pb__WatchResponse *whole(struct client *c, struct view m)
{
        Pb__WatchResponse *p = pb__watch_response__unpack(NULL, m.len, m.p);

        if (!p)
                abort();
        if (!p->fragment && buf_len(&c->parts) == 0)
                return p;
        W->counts.parts += !p->fragment;
        buf_add(&c->parts, m.p, m.len);
        if (p->fragment)
                return pb_free(p);
        pb_free(p);
        p = pb__watch_response__unpack(NULL, buf_len(&c->parts), buf_head(&c->parts));
        buf_clear(&c->parts);
        return p;
}

static void on_watch(struct rpc_call *k, struct view m)
{
        struct client *c = k->userdata;
        Pb__WatchResponse *p = whole(c, m);
        int64_t at = c->next - 1;

        if (!p)
                return;
        if (p->canceled) {
                c->link.broken = true;
                /* I6: or it is told that the revision was compacted, and continues after
                 * that. */
                W->met.compacted_watch += p->compact_revision > 0;
                if (p->compact_revision > c->next) {
                        check_compacted(c->i, c->next, p->compact_revision);
                        hoard_skipped(c->i, p->compact_revision);
                        at = p->compact_revision - 1;
                }
        }
        /* That everything before has been delivered; see watch_progress. */
        if (p->n_events == 0 && !p->created && !p->canceled) {
                W->counts.progress++;
                if (p->header->revision >= c->next)
                        fail(W,
                             "I6: watcher %u was told that all is delivered up to revision "
                             "%lld, and lacks %lld",
                             c->i, (long long) p->header->revision, (long long) c->next);
        }
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__Event *e = p->events[i];
                struct view key = {e->kv->key.data, e->kv->key.len},
                            value = {e->kv->value.data, e->kv->value.len};

                /* Every revision has an event, and all events of a revision come together. */
                if (e->kv->mod_revision != at + 1 && (e->kv->mod_revision != at || i == 0))
                        fail(W, "I6: watcher %u was told of revision %lld after %lld", c->i,
                             (long long) e->kv->mod_revision, (long long) at);
                at = e->kv->mod_revision;
                check_delivered(W, c->i, at, key, value);
                hoard_told(W, c->i, at, key, value, e->type == PB__EVENT__EVENT_TYPE__PUT);
        }
        c->next = at + 1;
        if (c->next > c->waits_for)
                prompt_end(&c->waits);
        pb_free(p);
}

void clients_see_write(int64_t revision)
{
        for (unsigned i = 0; i < N_WATCHERS; i++) {
                struct client *c = &clients[i];

                if (!c->link.client || c->next > revision || c->waits.what)
                        continue;
                prompt_begin(&c->waits, c->link.to, "an event", PROMPT_MAJORITY);
                c->waits_for = revision;
        }
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
        create.progress_notify = true;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        call(c, "/etcdserverpb.Watch/Watch", &watch_handler, &q.base, false);
        c->act_at = W->now + some(500 * MSEC, 6000 * MSEC);
        W->met.behind_watch += core_state(W->r[c->link.to].node.core)->revision + 1 < c->next;
}

/* ---- lockers ---- */

#define LOCK "lock"

static void locker_goes_on(struct client *c);

static struct switchover_at own_of(const struct client *c)
{
        return (struct switchover_at){.key = c->key, .len = c->key_len, .created = c->created};
}

/* Chooses one of the waiters as the target, and notes those before it. */
static void choose_target(struct client *c, struct view m)
{
        Pb__RangeResponse *p = pb__range_response__unpack(NULL, m.len, m.p);
        size_t at;

        c->request = (struct switchover){.created = 0};
        c->n_between = 0;
        if (p->n_kvs < 2 || p->n_kvs > LINE_MAX_KEYS ||
            p->kvs[0]->create_revision != c->created)
                goto out;
        at = (size_t) rnd_between(&W->rnd, 1, p->n_kvs - 1);
        c->request.created = p->kvs[at]->create_revision;
        c->request.within_ms = 1;
        memcpy(c->request.key, p->kvs[at]->key.data, p->kvs[at]->key.len);
        for (size_t i = 1; i < at; i++) {
                struct switchover_at *b = &c->pushed[c->n_between];

                b->key = memcpy(c->between[c->n_between++], p->kvs[i]->key.data,
                                p->kvs[i]->key.len);
                b->len = p->kvs[i]->key.len;
        }
out:
        pb_free(p);
}

/* What the request says to those that take part, if it still is as this client wrote it, at the
 * replica that answered. */
static void check_request(const struct client *c, enum switchover_part part)
{
        cleanup_(buf_fini) struct buf key = {0};
        struct core *core = W->r[c->link.to].node.core;
        struct switchover_at own = own_of(c), target = {.key = c->request.key,
                                                        .len = strlen(c->request.key),
                                                        .created = c->request.created};
        struct switchover s;
        struct kv_key *k;

        switchover_key(LOCK, &key);
        k = core ? kv_find(&core_state(core)->kv, buf_head(&key), buf_len(&key)) : NULL;
        if (!k || !kv_live(k) || k->newest->mod_revision != c->mod)
                return;
        if (switchover_read(&s, k->newest->value, k->newest->value_len) < 0 ||
            switchover_judge(&s, &own) != part ||
            switchover_judge(&s, &target) != SWITCHOVER_TARGET)
                fail(W, "locks: the switchover that client %u asked for means something else",
                     c->i);
}

static void on_step(struct client *c, const Pb__TxnResponse *p)
{
        struct switchover_at own = own_of(c);
        enum switchover_end end;

        if (c->state == HANDING) {
                if (switchover_ended(p, &own, &end) < 0)
                        fail(W, "locks: client %u is not told what it has handed over", c->i);
                c->refused = end == SWITCHOVER_KEPT;
                W->counts.handed += end == SWITCHOVER_DONE;
                return;
        }
        c->refused = !p->succeeded;
        c->mod = p->header->revision;
        if (c->state == PUSHING && (switchover_pushed(p, &c->request) == 0) != p->succeeded)
                fail(W, "locks: client %u is not told whether its switchover was accepted",
                     c->i);
        if ((c->state == ASKING || c->state == PUSHING) && p->succeeded)
                check_request(c, c->state == ASKING ? SWITCHOVER_ASKED : SWITCHOVER_ACCEPTED);
        if (c->state == PUSHING && p->succeeded) {
                lock.from = c->created;
                lock.to = c->request.created;
        }
}

/* The create revision, according to the replica that answered. */
static int64_t created_of(const struct client *c)
{
        struct core *core = W->r[c->link.to].node.core;
        struct kv_key *k = core ? kv_find(&core_state(core)->kv, c->key, c->key_len) : NULL;

        return k && kv_live(k) ? k->newest->create_revision : 0;
}

static void check_token(struct client *c)
{
        c->created = created_of(c);
        if (c->created == 0)
                return;
        if (c->created <= lock.token)
                fail(W, "locks: client %u holds by token %lld, after %lld", c->i,
                     (long long) c->created, (long long) lock.token);
        if (c->created > lock.from && c->created < lock.to)
                fail(W, "locks: client %u, which came with %lld, was passed over for %lld",
                     c->i, (long long) c->created, (long long) lock.to);
        lock.token = c->created;
}

/* The next step of a switchover. */
static void hand_over(struct client *c, const struct rpc_handler *h)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct switchover_at own = own_of(c);

        if (c->state == ASKING)
                switchover_ask(LOCK, &c->request, &own, c->lease, &b);
        else if (c->state == PUSHING)
                switchover_push(LOCK, &c->request, &own, c->pushed, c->n_between, true, c->mod,
                                c->lease, &b);
        else if (c->state == HANDING)
                switchover_hand_over(&c->request, &own, &b);
        else
                switchover_withdraw(LOCK, c->mod, &b);
        call_with(c, "/etcdserverpb.KV/Txn", h, &b, true);
}

static void look_for_target(struct client *c, const struct rpc_handler *h)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0};
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        switchover_range(LOCK, &from, &to);
        q.key = pb_bytes(from.data, buf_len(&from));
        q.range_end = pb_bytes(to.data, buf_len(&to));
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__CREATE;
        q.keys_only = true;
        call(c, "/etcdserverpb.KV/Range", h, &q.base, true);
}

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
        } else if (c->state == LOOKING) {
                choose_target(c, m);
        } else if (c->state != UNLOCKING) {
                Pb__TxnResponse *p = pb__txn_response__unpack(NULL, m.len, m.p);

                on_step(c, p);
                pb_free(p);
        }
}

static void on_answered(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct client *c = k->userdata;

        (void) message;
        prompt_end(&c->waits);
        if (code != RPC_OK || c->state == UNLOCKING) {
                c->state = IDLE;
                c->act_at = W->now + some(MSEC, 400 * MSEC);
                return;
        }
        locker_goes_on(c);
}

static const struct rpc_handler handler = {
        .on_message = on_answer, .on_status = on_answered, .on_close = on_close};

static void unlock_it(struct client *c)
{
        Pb__UnlockRequest unlock = PB__UNLOCK_REQUEST__INIT;

        c->state = UNLOCKING;
        unlock.key = pb_bytes(c->key, c->key_len);
        call(c, "/v3lockpb.Lock/Unlock", &handler, &unlock.base, true);
}

/* Whether another key of the lock is older than this client's, or it has none, where it waits.
 */
static bool is_behind_another(struct prompt *p)
{
        const struct client *c = container_of(p, struct client, waits);
        const struct state *s = core_state(W->r[c->link.to].node.core);
        ProtobufCBinaryData from = pb_bytes(LOCK "/", strlen(LOCK "/")),
                            end = pb_bytes(LOCK "0", strlen(LOCK "0"));
        struct kv_span span = kv_span(&from, &end);
        const struct kv_version *first = NULL;

        for (struct kv_key *k = kv_live_first(&s->kv, &span); k; k = kv_live_next(&span, k))
                if (!first || k->newest->create_revision < first->create_revision)
                        first = k->newest;
        return !first || first->lease != c->lease;
}

static void locker_goes_on(struct client *c)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;
        nsec_t end;

        c->act_at = W->now + 4 * NSEC_PER_SEC; /* by then it tries another replica */
        switch (c->state) {
        case IDLE:
                c->state = GRANTING;
                c->granted = W->now;
                grant.ttl = LOCK_TTL_S;
                call(c, "/etcdserverpb.Lease/LeaseGrant", &handler, &grant.base, true);
                break;
        case GRANTING:
                c->state = LOCKING;
                q.name = pb_bytes(LOCK, strlen(LOCK));
                q.lease = c->lease;
                call(c, "/v3lockpb.Lock/Lock", &handler, &q.base, true);
                c->waits.excused = is_behind_another;
                c->waits.lasts = true;
                break;
        case LOCKING:
                c->state = HOLDING;
                /* For as long as it likes, or until its lease may end, by a slow clock. */
                end = min_of(W->now + some(MSEC, 800 * MSEC),
                             c->granted + LOCK_TTL_S * (NSEC_PER_SEC - MSEC));
                c->created = 0;
                if (end > W->now) {
                        check_held(W, c->i, W->now, end);
                        check_token(c);
                }
                c->act_at = max_of(end, W->now);
                break;
        case HOLDING:
                if (c->created > 0 && rnd_between(&W->rnd, 0, 1) == 0) {
                        c->state = LOOKING;
                        look_for_target(c, &handler);
                } else {
                        unlock_it(c);
                }
                break;
        case LOOKING:
                if (c->request.created == 0)
                        return unlock_it(c);
                c->state = ASKING;
                hand_over(c, &handler);
                break;
        case ASKING:
        case PUSHING:
                /* The request was refused, or the target is gone: we keep the key until it
                 * expires. */
                if (c->refused)
                        return unlock_it(c);
                c->state = c->state == ASKING ? PUSHING : HANDING;
                hand_over(c, &handler);
                break;
        case HANDING:
                if (c->refused)
                        return unlock_it(c);
                c->state = UNLOCKING;
                hand_over(c, &handler);
                break;
        case UNLOCKING:
                break;
        }
}

/* ---- groupers: put and delete several keys at once ---- */

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
        prompt_end(&c->waits);
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
        case 2: /* reads the present state, rather than a revision */
                return call(c, "/etcdserverpb.KV/Txn", &look, &txn.base, true);
        default:
                return call(c, "/etcdserverpb.KV/Range", &range, &get.base, true);
        }
}

/* ---- all of them ---- */

void clients_begin(struct world *w)
{
        memset(&lock, 0, sizeof(lock));
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
                struct client *c = &clients[i];

                *c = (struct client){.i = i,
                                     .role = i < N_WATCHERS               ? WATCHES
                                             : i < N_WATCHERS + N_LOCKERS ? LOCKS
                                                                          : GROUPS,
                                     .next = 2};
                wire_init(&c->link, NULL, NULL);
                c->act_at = some(0, 2000 * MSEC);
                if ((c->role == LOCKS && !(w->does & USUAL_LOCKS)) ||
                    (c->role == GROUPS && !(w->does & USUAL_GROUPS)))
                        c->act_at = NEVER;
        }
        caches_begin();
        greedy_begin(w);
        probers_begin();
        named_begin(w);
        guards_begin(w);
        operators_begin(w);
        visitors_begin(w);
        fillers_begin(w);
        users_begin(w);
        bulk_begin(w);
        hoarders_begin(w);
        dozers_begin(w);
}

void clients_end(void)
{
        for (unsigned k = 0; k < ARRAY_SIZE(clients); k++)
                disconnect(&clients[k]);
        caches_end();
        listeners_end();
        greedy_end();
        probers_end();
        askers_end();
}

static void act(void *arg)
{
        struct client *c = arg;
        unsigned to = (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1);

        c->act_at = W->now + some(20 * MSEC, 200 * MSEC);
        c->link.client_dirty = true;
        /* At the end, watchers still have to be told everything. */
        if (c->role != WATCHES && c->state == IDLE && load_ended(W))
                return;
        if (c->role == WATCHES && c->link.client && W->nights > 0 && load_ended(W)) {
                c->act_at = W->now + NSEC_PER_SEC; /* it rests */
                return;
        }
        if (!c->link.client) {
                if (!wire_connect(&c->link, to))
                        return;
                if (c->role == WATCHES)
                        watch(c);
                else if (c->role == LOCKS)
                        locker_goes_on(c);
        } else if (c->role == WATCHES || (c->state != IDLE && c->state != HOLDING) || c->asks) {
                c->link.broken = true; /* it has been connected for long enough, or has waited
                                        * too long */
        } else if (c->role == LOCKS) {
                locker_goes_on(c);
        } else if (rnd_between(&W->rnd, 0, 30) == 0) {
                c->link.broken = true;
        } else {
                group(c);
        }
}

void clients_go_on(void)
{
        caches_go_on();
}

void clients_run(void)
{
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
                struct client *c = &clients[i];

                wire_run(&c->link, &c->act_at, act, disconnect, c);
        }
        caches_run();
        listeners_run();
        greedy_run();
        probers_run();
        askers_run();
}

nsec_t clients_next(void)
{
        nsec_t at = min_of(askers_next(), caches_next());

        at = min_of(at, listeners_next());
        at = min_of(at, probers_next());
        at = min_of(at, greedy_next());
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++) {
                at = min_of(at, clients[i].act_at);
                at = min_of(at, wire_next(&clients[i].link));
        }
        return at;
}

bool clients_caught_up(int64_t revision)
{
        for (unsigned i = 0; i < N_WATCHERS; i++)
                if (clients[i].next <= revision)
                        return false;
        return true;
}
