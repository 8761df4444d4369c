/*
 * Members of a group that share work: the real member/work.h, which learns what the core has by
 * reads instead of a watch. Each has a lease that it does not renew, and relies on what it has
 * until that lease may end. It sends one request at a time, to any replica, and may be paused
 * at any time, or lose a connection with a request on it, which is then carried out later, or
 * not.
 *
 * I12: while a member has begun a task and not ended it, and its lease has not ended by its own
 * clock, no other member has the task. And once all is well, each task is somebody's. They are
 * in one of eight worlds, so that the seeds of other worlds stay the same; in half of these the
 * tasks have names.
 */
#include <stdio.h>

#include "etcd/api.h"
#include "member/work.h"
#include "world.h"

#define SHARERS 3
#define TASKS 5
#define TTL_S 3
#define MEMBERS_KEY "share/members/"
#define TASKS_KEY "share/tasks/"

enum asks { NOTHING, LEASE, PLACE, LOOK, TAKE, GIVE };

static struct sharer {
        unsigned i;
        char name[8];
        struct wire link;
        nsec_t act_at;
        enum asks asks; /* the request whose answer it waits for */
        struct prompt waits;
        struct work_task *task;
        struct work work;
        bool listed;
        nsec_t granted; /* when it asked for the lease */
        nsec_t deadline;
} sharers[SHARERS];

static bool there;
/* Since when nobody has a task; 0: somebody has. */
static nsec_t orphaned[TASKS];

/* By then each has got a lease again, after its longest pause. */
#define ALL_BACK ((TTL_S + 2) * NSEC_PER_SEC)
/* A task that is handed over is nobody's in between; and a member with a new lease takes its
 * tasks one after the other, while it also looks. */
#define ORPHANED_MOST (2500 * MSEC)

static nsec_t some(nsec_t from, nsec_t to)
{
        return (nsec_t) rnd_between(&W->rnd, (uint64_t) (from / 1000), (uint64_t) (to / 1000)) *
               1000;
}

static struct boot_time instant(void)
{
        return (struct boot_time){.ns = W->now};
}

/* ---- what it knows ---- */

static void forget(struct sharer *s)
{
        s->listed = false;
        s->deadline = 0;
        work_hold(&s->work, 0);
        for (size_t i = 0; i < TASKS; i++)
                if (s->work.tasks[i].run != WORK_IDLE)
                        work_ended(&s->work.tasks[i]);
}

static bool holds(const struct sharer *s)
{
        return s->work.lease != 0 && W->now < s->deadline;
}

static void begin(struct sharer *s, struct work_task *t)
{
        size_t i = (size_t) (t - s->work.tasks);

        work_began(t);
        W->counts.shared++;
        for (unsigned k = 0; k < SHARERS; k++)
                if (k != s->i && sharers[k].work.tasks[i].run != WORK_IDLE &&
                    holds(&sharers[k]))
                        fail(W, "I12: member %u begins task %s, and member %u has it", s->i,
                             t->name, k);
}

/* Does what needs no core, and decides what to request next. */
static void decide(struct sharer *s)
{
        s->asks = LOOK;
        s->task = NULL;
        work_assign(&s->work);
        for (size_t i = 0; i < TASKS; i++) {
                struct work_task *t = &s->work.tasks[i];

                if (t->run == WORK_STOPS && rnd_between(&W->rnd, 0, 1))
                        work_ended(t);
                switch (work_next_step(&s->work, t, instant())) {
                case WORK_BEGIN:
                        begin(s, t);
                        break;
                case WORK_END:
                        work_stops(t);
                        break;
                case WORK_TAKE:
                        s->asks = TAKE;
                        s->task = t;
                        break;
                case WORK_GIVE:
                        s->asks = GIVE;
                        s->task = t;
                        break;
                case WORK_NOTHING:
                        break;
                }
        }
        /* It also has to see what others do meanwhile. */
        if (rnd_between(&W->rnd, 0, 2) == 0) {
                s->asks = LOOK;
                s->task = NULL;
        }
}

/* ---- answers ---- */

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static void look_at(struct sharer *s, const Pb__RangeResponse *p)
{
        work_look(&s->work);
        for (size_t i = 0; i < p->n_kvs; i++) {
                const Pb__KeyValue *kv = p->kvs[i];

                if (work_seen(&s->work, (struct view){kv->key.data + 6, kv->key.len - 6},
                              (struct view){kv->value.data, kv->value.len}, kv->lease,
                              kv->create_revision, instant()) < 0)
                        abort();
        }
        work_looked(&s->work);
}

static void on_answer(struct rpc_call *k, struct view m)
{
        struct sharer *s = k->userdata;
        Pb__LeaseGrantResponse *g;
        Pb__RangeResponse *r;
        Pb__TxnResponse *t;

        switch (s->asks) {
        case LEASE:
                g = pb__lease_grant_response__unpack(NULL, m.len, m.p);
                s->deadline = s->granted + TTL_S * (NSEC_PER_SEC - MSEC);
                work_hold(&s->work, g ? g->id : 0);
                pb_free(g);
                break;
        case PLACE:
                s->listed = true;
                break;
        case LOOK:
                r = pb__range_response__unpack(NULL, m.len, m.p);
                if (r)
                        look_at(s, r);
                pb_free(r);
                break;
        case TAKE: /* the next look shows which tasks were taken */
        case GIVE:
                t = pb__txn_response__unpack(NULL, m.len, m.p);
                if (t && t->succeeded)
                        s->task = NULL;
                pb_free(t);
                break;
        case NOTHING:
                break;
        }
}

static void answered(struct sharer *s)
{
        prompt_end(&s->waits);
        if (s->task)
                work_refused(s->task, s->asks == TAKE ? WORK_TAKE : WORK_GIVE);
        s->task = NULL;
        s->asks = NOTHING;
}

static void on_status(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct sharer *s = k->userdata;

        (void) message;
        if (code != RPC_OK && s->asks == PLACE)
                forget(s);
        answered(s);
        s->act_at = W->now + some(0, 60 * MSEC);
}

static const struct rpc_handler handler = {
        .on_message = on_answer, .on_status = on_status, .on_close = on_close};

static void disconnect(void *arg)
{
        struct sharer *s = arg;

        wire_close(&s->link);
        answered(s);
        s->act_at = W->now + some(5 * MSEC, 100 * MSEC);
}

/* ---- requests ---- */

static void call(struct sharer *s, const char *path, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *k;

        pb_append(&b, m);
        if (rpc_call_new(s->link.client, path, true, &handler, s, &k) < 0 ||
            rpc_call_send(k, b.data, buf_len(&b)) < 0) {
                s->link.broken = true;
                return;
        }
        rpc_call_end(k);
        prompt_begin(&s->waits, s->link.to, path, PROMPT_MAJORITY);
}

static void ask_lease(struct sharer *s)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        s->granted = W->now;
        q.ttl = TTL_S;
        call(s, "/etcdserverpb.Lease/LeaseGrant", &q.base);
}

static void ask_place(struct sharer *s)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf value = {0};
        char key[40];
        int n = snprintf(key, sizeof(key), MEMBERS_KEY "%s", s->name);

        work_record_write(&s->work.self.record, &value);
        q.key = pb_bytes(key, (size_t) n);
        q.value = pb_bytes(buf_head(&value), buf_len(&value));
        q.lease = s->work.lease;
        call(s, "/etcdserverpb.KV/Put", &q.base);
}

static void ask_look(struct sharer *s)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        q.key = pb_bytes("share/", 6);
        q.range_end = pb_bytes("share0", 6);
        call(s, "/etcdserverpb.KV/Range", &q.base);
}

static void ask_task(struct sharer *s, bool take)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare created = PB__COMPARE__INIT, listed = PB__COMPARE__INIT,
                    *cs[] = {&created, &listed};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        char key[40], self[40];
        int n = snprintf(key, sizeof(key), TASKS_KEY "%s", s->task->name),
            m = snprintf(self, sizeof(self), MEMBERS_KEY "%s", s->name);

        work_asked(s->task, take ? WORK_TAKE : WORK_GIVE);
        created.key = put.key = del.key = pb_bytes(key, (size_t) n);
        created.target = PB__COMPARE__COMPARE_TARGET__CREATE;
        created.target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        created.create_revision = take ? 0 : s->task->given;
        listed.key = pb_bytes(self, (size_t) m);
        listed.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        listed.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        listed.lease = s->work.lease;
        put.lease = s->work.lease;
        op.request_case = take ? PB__REQUEST_OP__REQUEST_REQUEST_PUT
                               : PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        if (take)
                op.request_put = &put;
        else
                op.request_delete_range = &del;
        q.compare = cs;
        q.n_compare = take ? 2 : 1;
        q.success = ops;
        q.n_success = 1;
        call(s, "/etcdserverpb.KV/Txn", &q.base);
}

static void go_on(struct sharer *s)
{
        s->act_at = W->now + 3 * NSEC_PER_SEC; /* by then it tries another replica */
        if (s->work.lease != 0 && !holds(s))
                forget(s);
        if (s->work.lease == 0)
                s->asks = LEASE;
        else if (!s->listed)
                s->asks = PLACE;
        else
                decide(s);
        if (s->asks == LEASE)
                ask_lease(s);
        else if (s->asks == PLACE)
                ask_place(s);
        else if (s->asks == LOOK)
                ask_look(s);
        else
                ask_task(s, s->asks == TAKE);
}

/* ---- all of them ---- */

void sharers_begin(struct world *w)
{
        static const char *const names[TASKS] = {"backup", "billing", "mail", "reports",
                                                 "scrub"};
        const char *bad;

        there = w->seed % 8 == 5;
        memset(orphaned, 0, sizeof(orphaned));
        for (unsigned i = 0; there && i < SHARERS; i++) {
                struct sharer *s = &sharers[i];
                struct work_record r;

                *s = (struct sharer){.i = i, .act_at = some(0, 500 * MSEC)};
                snprintf(s->name, sizeof(s->name), "m%u", i);
                wire_init(&s->link, NULL, NULL);
                if (work_record_make(&r, 1 + i, w->seed % 16 == 13 ? names : NULL, TASKS,
                                     &bad) < 0)
                        abort();
                if (work_init(&s->work, s->name, &r, 100 * MSEC) < 0)
                        abort();
        }
}

void sharers_end(void)
{
        for (unsigned i = 0; there && i < SHARERS; i++) {
                disconnect(&sharers[i]);
                work_fini(&sharers[i].work);
        }
}

static bool ended(void)
{
        return W->now > W->run_time + CALM_MIN;
}

static bool is_somebodys(size_t task)
{
        for (unsigned i = 0; i < SHARERS; i++)
                if (sharers[i].work.tasks[task].run != WORK_IDLE && holds(&sharers[i]))
                        return true;
        return false;
}

void sharers_check(struct world *w)
{
        if (!there || ended())
                return;
        for (size_t i = 0; i < TASKS; i++)
                if (calm_for(w) < ALL_BACK || is_somebodys(i))
                        orphaned[i] = 0;
                else if (orphaned[i] == 0)
                        orphaned[i] = w->now;
                else if (w->now - orphaned[i] > ORPHANED_MOST)
                        fail(w, "task %zu is nobody's, though all was well for %.1f s", i,
                             (double) calm_for(w) / 1e9);
}

static void act(void *arg)
{
        struct sharer *s = arg;
        unsigned to = (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1);

        s->act_at = W->now + some(10 * MSEC, 100 * MSEC);
        s->link.client_dirty = true;
        if (ended()) {
                s->act_at = W->now + NSEC_PER_SEC;
                if (!holds(s))
                        return;
        }
        if (!W->calm && rnd_between(&W->rnd, 0, 40) == 0) /* it is paused */
                s->act_at = W->now + some(0, (TTL_S + 1) * NSEC_PER_SEC);
        else if (!s->link.client)
                (void) wire_connect(&s->link, to);
        else if (s->asks != NOTHING || rnd_between(&W->rnd, 0, 30) == 0)
                s->link.broken = true; /* it has waited long enough, or moves on */
        else
                go_on(s);
}

void sharers_run(void)
{
        for (unsigned i = 0; there && i < SHARERS; i++) {
                struct sharer *s = &sharers[i];

                wire_run(&s->link, &s->act_at, act, disconnect, s);
        }
}

nsec_t sharers_next(void)
{
        nsec_t at = NEVER;

        for (unsigned i = 0; there && i < SHARERS; i++) {
                at = min_of(at, sharers[i].act_at);
                at = min_of(at, wire_next(&sharers[i].link));
        }
        return at;
}
