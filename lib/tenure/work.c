#include "tenure/work.h"

#include "member/rendezvous.h"
#include "tenure/work_internal.h"

#define RETRY_MIN (50 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC
#define SETTLE_MS 1000
#define SETTLE_MS_MOST 60000
#define WEIGHT 100
#define PROBES_A_TTL 4

void works_soon(struct tenure *t)
{
        if (t->started)
                loop_hook_again(&t->works_hook);
        tenure_wake(t);
}

/* ---- starting over, and ending ---- */

static void forget(struct tenure_work *w)
{
        w->call = tenure_call_free(w->call);
        w->takes.call = tenure_call_free(w->takes.call);
        w->gives.call = tenure_call_free(w->gives.call);
        w->watch = tenure_watch_free(w->watch);
        w->look_again = w->untold.is = w->contested.is = false;
        w->backoff = 0;
        w->retry_at = (struct boot_time){0};
}

/* Frees everything but the struct itself, which has no tasks any more. */
static void work_end(struct tenure_work *w)
{
        forget(w);
        for (size_t i = 0; i < w->work.n; i++)
                work_take_back(w, &w->work.tasks[i]);
        LIST_REMOVE(w, entry);
        work_fini(&w->work);
        buf_fini(&w->prefix);
        buf_fini(&w->self);
        buf_fini(&w->record);
        free(w->group);
        *w = (struct tenure_work){.tenure = w->tenure, .leaving = true};
}

void works_lost(struct tenure *t)
{
        struct tenure_work *w;

        LIST_FOREACH (w, &t->works, entry) {
                forget(w);
                work_hold(&w->work, 0);
                work_report_ends(w);
                if (w->state != WORK_REFUSED)
                        w->state = WORK_OUT;
        }
        works_soon(t);
}

/* ---- calls ---- */

void work_again(struct tenure_work *w)
{
        w->backoff = min_of(max_of(w->backoff * 2, RETRY_MIN), RETRY_MAX);
        w->retry_at = boot_add(loop_now(w->tenure->loop), w->backoff);
}

/* Errors that another try would not change. */
static bool is_refused(int r)
{
        return r == -EACCES || r == -EINVAL || r == -EMSGSIZE || r == -EPERM;
}

ProtobufCBinaryData work_bytes(const struct buf *b)
{
        return pb_bytes(buf_head(b), buf_len(b));
}

void work_if_lease(Pb__Compare *c, ProtobufCBinaryData key, int64_t lease)
{
        pb__compare__init(c);
        c->key = key;
        c->target = PB__COMPARE__COMPARE_TARGET__LEASE;
        c->target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        c->lease = lease;
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

int work_ask(struct tenure_work *w, const struct call_kind *kind, const ProtobufCMessage *q,
             call_done_fn done, struct tenure_call **slot)
{
        int r = call_ask_for(w->tenure, kind, q, false, done, w, slot);

        if (r < 0)
                work_again(w);
        return r;
}

static int read_condition(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;

        (void) c;
        return p->succeeded ? 0 : -ESTALE;
}

static const struct call_kind kind_condition = {"/etcdserverpb.KV/Txn",
                                                &pb__txn_response__descriptor, read_condition};

/* Deletes the member's key, if it is on our lease. @done NULL: the result does not matter. */
static void delete_self(struct tenure_work *w, call_done_fn done)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__DeleteRangeRequest p = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

        work_if_lease(&c, work_bytes(&w->self), w->work.lease);
        p.key = work_bytes(&w->self);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &p;
        q.compare = cs;
        q.success = ops;
        q.n_compare = q.n_success = 1;
        if (done)
                (void) !work_ask(w, &kind_condition, &q.base, done, &w->call);
        else
                (void) !call_ask(w->tenure, &kind_condition, &q.base, false, NULL);
}

bool work_has_answer(struct tenure_work *w, struct tenure_call *c, struct tenure_call **slot)
{
        struct queued *left;
        int r = tenure_call_result(c);

        *slot = NULL;
        works_soon(w->tenure);
        if (r == 0) {
                w->backoff = 0;
                return true;
        }
        if (!is_refused(r) || w->state == WORK_REFUSED) {
                work_again(w);
                return false;
        }
        /* Without permission to write, this member could not keep its tasks for long either. */
        left = work_event_left(w, r, tenure_call_error(c));
        if (left)
                queue_event(w->tenure, left);
        forget(w);
        /* A member that takes no tasks would keep the others from taking its share. */
        delete_self(w, NULL);
        work_hold(&w->work, 0);
        work_report_ends(w);
        w->state = WORK_REFUSED;
        return false;
}

/* ---- the member's key ---- */

static void on_joined(struct tenure_call *c, void *arg)
{
        struct tenure_work *w = arg;

        if (work_has_answer(w, c, &w->call))
                w->state = WORK_LOOK;
        tenure_call_free(c);
}

static void join(struct tenure_work *w)
{
        cleanup_(buf_fini) struct buf session = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        int64_t lease = hold_key(w->tenure, &session);

        if (lease != w->work.lease || buf_error(&session) < 0)
                return work_again(w);
        work_if_lease(&c, work_bytes(&session), lease);
        put.key = work_bytes(&w->self);
        put.value = work_bytes(&w->record);
        put.lease = lease;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        q.compare = cs;
        q.success = ops;
        q.n_compare = q.n_success = 1;
        (void) !work_ask(w, &kind_condition, &q.base, on_joined, &w->call);
}

static void on_unlisted(struct tenure_call *c, void *arg)
{
        struct tenure_work *w = arg;
        int r = tenure_call_result(c);

        /* If the key is gone already, that is as good. */
        if (r == -ESTALE || is_refused(r)) {
                w->call = NULL;
                w->unlisted = true;
                works_soon(w->tenure);
        } else if (work_has_answer(w, c, &w->call)) {
                w->unlisted = true;
        }
        /* The look also finds tasks that were taken before that without an answer. */
        if (w->unlisted)
                w->state = WORK_LOOK;
        tenure_call_free(c);
}

static void unlist(struct tenure_work *w)
{
        delete_self(w, on_unlisted);
}

/* ---- reading the group ---- */

static struct view below(const struct tenure_work *w, const struct tenure_kv *kv)
{
        size_t n = buf_len(&w->prefix);

        if (kv->key_len < n)
                return (struct view){0};
        return (struct view){(const uint8_t *) kv->key + n, kv->key_len - n};
}

static void see(struct tenure_work *w, const struct tenure_kv *kv)
{
        struct view value = {kv->value, kv->value_len};

        if (work_seen(&w->work, below(w, kv), value, kv->lease, kv->create_revision,
                      loop_now(w->tenure->loop)) < 0)
                w->look_again = true;
}

static void on_watched(const struct tenure_event *e, void *arg)
{
        struct tenure_work *w = arg;

        if (e->type == TENURE_PUT)
                see(w, e->kv);
        else if (e->type == TENURE_DELETE)
                work_seen_deleted(&w->work, below(w, e->kv));
        else
                w->look_again = true;
        works_soon(w->tenure);
}

static int follow(struct tenure_work *w, int64_t from)
{
        struct tenure_watch_options o = {.key = buf_head(&w->prefix),
                                         .key_len = buf_len(&w->prefix),
                                         .prefix = true,
                                         .revision = from};
        int r = tenure_watch(w->tenure, &o, &w->watch);

        if (r == 0)
                watch_until_break(w->watch, on_watched, w);
        return r;
}

static void on_looked(struct tenure_call *c, void *arg)
{
        struct tenure_work *w = arg;
        size_t n = tenure_call_n_kvs(c, 0);

        if (!work_has_answer(w, c, &w->call)) {
                tenure_call_free(c);
                return;
        }
        w->look_again = false;
        work_look(&w->work);
        for (size_t i = 0; i < n; i++)
                see(w, tenure_call_kv(c, 0, i));
        if (!w->look_again)
                work_looked(&w->work);
        /* Tries again to delete the keys that still exist. A late deletion does no harm, since
         * it is bound to the create_revision. */
        for (size_t i = 0; !w->gives.call && i < w->work.n; i++)
                work_refused(&w->work.tasks[i], WORK_GIVE);
        if (w->look_again || follow(w, tenure_call_revision(c) + 1) < 0)
                work_again(w);
        else
                w->state = WORK_FOLLOW;
        tenure_call_free(c);
}

static void look(struct tenure_work *w, struct boot_time now)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        struct tenure_range all = {
                .key = buf_head(&w->prefix), .key_len = buf_len(&w->prefix), .prefix = true};
        cleanup_(freep) uint8_t *room = malloc(all.key_len + 1);

        /* A watch may end as soon as it begins, each time. */
        w->look_gap = boot_diff(now, w->look_at) >= RETRY_MAX
                              ? RETRY_MIN
                              : min_of(2 * w->look_gap, RETRY_MAX);
        w->look_at = boot_add(now, w->look_gap);
        w->watch = tenure_watch_free(w->watch);
        if (!room || range_request(w->tenure, &all, room, &q) < 0)
                return work_again(w);
        (void) !work_ask(w, &kind_range, &q.base, on_looked, &w->call);
}

/* ---- in each turn ---- */

static void begin(struct tenure_work *w)
{
        struct tenure *t = w->tenure;

        if (t->hold.lease == 0 || t->hold.given_back || w->leaving)
                return;
        buf_clear(&w->prefix);
        buf_clear(&w->self);
        buf_printf(&w->prefix, "/tenure/%s/work/%s/", tenure_cluster(t), w->group);
        buf_printf(&w->self, "/tenure/%s/work/%s/members/%s", tenure_cluster(t), w->group,
                   w->work.self.name);
        if (buf_error(&w->prefix) < 0 || buf_error(&w->self) < 0)
                return work_again(w);
        work_hold(&w->work, t->hold.lease);
        w->state = WORK_JOIN;
}

static void step(struct tenure_work *w, struct boot_time now)
{
        if (w->state == WORK_FOLLOW)
                work_do_tasks(w, now);
        if (w->call || boot_before(now, w->retry_at))
                return;
        if (w->state == WORK_OUT)
                begin(w);
        if (w->state == WORK_FOLLOW && w->look_again && !boot_before(now, w->look_at))
                w->state = WORK_LOOK;
        if (w->state == WORK_FOLLOW && w->work.unlisted && !w->leaving)
                w->state = WORK_JOIN;
        if (w->leaving && !w->unlisted && w->state != WORK_OUT && w->state != WORK_REFUSED)
                return unlist(w);
        if (w->state == WORK_JOIN)
                join(w);
        else if (w->state == WORK_LOOK)
                look(w, now);
}

/* Probes the replica of the watch, since one that is cut off keeps its connections but reports
 * no deaths; often enough to notice that before a lease expires that was cut off at the same
 * moment. */
static void probe(struct tenure_work *w, struct boot_time now)
{
        if (w->state != WORK_FOLLOW || boot_before(now, w->probe_at))
                return;
        watches_probe(w->tenure);
        w->probe_at =
                boot_add(now, (nsec_t) w->tenure->hold.ttl_ms * NSEC_PER_MSEC / PROBES_A_TTL);
}

static bool runs_none(const struct tenure_work *w)
{
        for (size_t i = 0; i < w->work.n; i++)
                if (w->work.tasks[i].run != WORK_IDLE)
                        return false;
        return true;
}

/* Whether no task runs, and no key of ours is left. */
static bool has_left(const struct tenure_work *w)
{
        if (!w->leaving || w->call || w->takes.call || w->gives.call)
                return false;
        if (w->work.lease == 0)
                return runs_none(w);
        return w->unlisted && w->state == WORK_FOLLOW && !work_is_busy(&w->work);
}

static struct boot_time next_of(const struct tenure_work *w, struct boot_time now)
{
        struct boot_time next = work_next(&w->work, now);

        if (w->state == WORK_FOLLOW)
                next = boot_min(next, w->probe_at);
        if (w->state == WORK_FOLLOW && w->look_again && boot_before(now, w->look_at))
                next = boot_min(next, w->look_at);
        if (w->state == WORK_FOLLOW && w->untold.is)
                next = boot_min(next, w->untold.by);
        return boot_before(now, w->retry_at) ? boot_min(next, w->retry_at) : next;
}

static struct boot_time run(struct loop_hook *h, struct boot_time now)
{
        struct tenure *t = container_of(h, struct tenure, works_hook);
        struct boot_time next = BOOT_TIME_NEVER;
        struct tenure_work *w, *after;

        LIST_FOREACH_SAFE (w, &t->works, entry, after) {
                step(w, now);
                probe(w, now);
                if (has_left(w)) {
                        struct queued *q = work_event_left(w, 0, "given back");

                        work_end(w);
                        queue_last(t, q, w);
                } else {
                        next = boot_min(next, next_of(w, now));
                }
        }
        return next;
}

void works_start(struct tenure *t)
{
        t->works_hook.what = "shared work";
        loop_hook_start(&t->works_hook, t->loop, LOOP_ACT, run);
}

void works_fini(struct tenure *t)
{
        struct tenure_work *w;

        while ((w = LIST_FIRST(&t->works))) {
                work_end(w);
                free(w);
        }
        loop_hook_stop(&t->works_hook);
}

/* ---- functions for the program ---- */

static int check(struct tenure *t, const char *group, const struct tenure_work_options *o)
{
        struct tenure_work *w;

        if (t->hold.kind != HOLD_OWN)
                return tenure_fail(t, -EINVAL,
                                   "shared work needs a lease that ends with the program; "
                                   "call tenure_hold_own() first");
        if (!group || !node_name_is_valid(group))
                return tenure_fail(
                        t, -EINVAL,
                        "a group's name has 1 to 255 letters, digits and . _ - :, without a "
                        "leading dot; '%s' is not one",
                        group ? group : "");
        if (o->weight > RENDEZVOUS_WEIGHT_MAX)
                return tenure_fail(t, -EINVAL, "a weight is from 1 to %d, not %u",
                                   RENDEZVOUS_WEIGHT_MAX, o->weight);
        if (o->settle_ms > SETTLE_MS_MOST)
                return tenure_fail(t, -EINVAL, "settle_ms is at most %d, not %u",
                                   SETTLE_MS_MOST, o->settle_ms);
        LIST_FOREACH (w, &t->works, entry)
                if (strcmp(w->group, group) == 0)
                        return tenure_fail(t, -EALREADY,
                                           "this tie is in the group '%s', or is leaving it",
                                           group);
        return 0;
}

static int make_record(struct tenure *t, const struct tenure_work_options *o,
                       struct work_record *ret)
{
        const char *bad = "";
        int r = work_record_make(ret, o->weight > 0 ? o->weight : WEIGHT, o->tasks, o->n_tasks,
                                 &bad);

        if (r == -EINVAL && node_name_is_valid(bad))
                return tenure_fail(t, r, "the task '%s' is named twice", bad);
        if (r == -EINVAL)
                return tenure_fail(
                        t, r,
                        "a task's name has 1 to 255 letters, digits and . _ - :, without a "
                        "leading dot; '%s' is not one",
                        bad);
        if (r == -EMSGSIZE)
                return tenure_fail(
                        t, r,
                        "a member has at most %d tasks, whose names take at most %d bytes",
                        WORK_TASKS_MAX, WORK_RECORD_MAX);
        return r < 0 ? tenure_fail(t, r, "out of memory") : 0;
}

int tenure_work_join(struct tenure *t, const char *group, const struct tenure_work_options *o,
                     struct tenure_work **ret)
{
        struct work_record record = {0};
        struct tenure_work *w;
        int r = check(t, group, o);

        if (r == 0)
                r = make_record(t, o, &record);
        if (r < 0)
                return r;
        w = calloc(1, sizeof(*w));
        if (w) {
                w->group = strdup(group);
                work_record_write(&record, &w->record);
        }
        if (!w || !w->group || buf_error(&w->record) < 0 ||
            work_init(&w->work, t->hold.name, &record,
                      (o->settle_ms > 0 ? o->settle_ms : SETTLE_MS) * NSEC_PER_MSEC) < 0) {
                work_record_fini(&record);
                if (w) {
                        buf_fini(&w->record);
                        free(w->group);
                }
                free(w);
                return tenure_fail(t, -ENOMEM, "out of memory");
        }
        w->tenure = t;
        LIST_INSERT_HEAD(&t->works, w, entry);
        works_soon(t);
        *ret = w;
        return 0;
}

int tenure_task_ended(struct tenure_work *w, const char *task)
{
        struct work_task *k = work_find(&w->work, task);

        if (!k || k->run != WORK_STOPS)
                return tenure_fail(w->tenure, -EINVAL,
                                   "no TENURE_TASK_END of the task '%s' waits for an answer",
                                   task);
        work_ended(k);
        works_soon(w->tenure);
        return 0;
}

static const struct work_task *running(const struct tenure_work *w, const char *task)
{
        const struct work_task *k = work_find((struct work *) (uintptr_t) &w->work, task);

        return k && k->run == WORK_RUNS ? k : NULL;
}

int64_t tenure_task_token(const struct tenure_work *w, const char *task)
{
        const struct work_task *k = running(w, task);

        return k && tenure_is_ours(w->tenure) ? k->token : 0;
}

bool tenure_task_is_held(const struct tenure_work *w, const char *task)
{
        const struct work_task *k = running(w, task);

        return k && k->created == k->token && w->work.lease == w->tenure->hold.lease &&
               tenure_is_ours(w->tenure) && tenure_may_act(w->tenure);
}

struct tenure_work *tenure_work_leave(struct tenure_work *w)
{
        if (!w)
                return NULL;
        w->leaving = true;
        work_leave(&w->work);
        work_report_ends(w);
        w->retry_at = (struct boot_time){0};
        works_soon(w->tenure);
        return NULL;
}
