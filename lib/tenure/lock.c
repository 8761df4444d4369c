#include "tenure/lock.h"

#include <inttypes.h>

#include "base/utf8.h"
#include "loop/host_turn.h"
#include "member/lock_name.h"
#include "tenure/calls.h"
#include "tenure/handover.h"

#define RETRY_MIN (50 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC
#define TAKEN "its key was deleted, or written by somebody else"

enum lock_state {
        LOCK_IDLE,  /* no lease is held, or another lock of this name is being given back */
        LOCK_TURN,  /* the agent is asked for the turn, or other programs of this host come
                     * first */
        LOCK_CLAIM, /* write the key */
        LOCK_LOOK,  /* is our key there, and is another one before it? */
        LOCK_WAIT,  /* wait for the key before ours to go */
        LOCK_FIRST, /* no key is before ours; is there a request to hand over? */
        LOCK_WATCH, /* the lock is ours; watch the key */
        LOCK_OVER,  /* the core has refused it, which was announced */
};

struct tenure_lock {
        LIST_ENTRY(tenure_lock) entry;
        struct tenure *tenure;
        char *name, *value; /* owned */
        enum lock_state state;
        bool held;      /* TENURE_LOCKED was announced, and TENURE_UNLOCKED not yet */
        bool unlocking; /* by tenure_unlock(): delete the key, then free this */
        bool stirred;   /* the key that is watched has changed */
        bool stops;     /* the key that we watch has changed */
        int64_t lease;  /* it is being handed over, and the program does not act by it any
                         * more */
        struct buf key; /* with a NUL that its length does not count; and the key before it */
        struct buf before;
        int64_t created, written;       /* revisions of the key, as we wrote it; 0: not known */
        int64_t seen;                   /* the revision of the last look */
        struct tenure_call *call;       /* under way */
        struct tenure_watch *watch;     /* of our key, or, while we wait, of the one before */
        struct tenure_watch *own_watch; /* while we wait: of our key */
        struct handover handover;       /* while it is first */
        struct turn_request asks;       /* the agent for what the turn needs */
        struct host_turn turn;
        struct boot_time retry_at;
        nsec_t backoff;
};

void locks_soon(struct tenure *t)
{
        if (t->started)
                loop_hook_again(&t->locks_hook);
        tenure_wake(t);
}

static struct queued *event_of(struct tenure_lock *l, enum tenure_event_type type, int error,
                               const char *why)
{
        struct queued *q = queue_new(l->tenure, type, strlen(why) + 1);

        l->held = type == TENURE_LOCKED && q;
        if (!q)
                return NULL;
        q->event.lock = l;
        q->event.lease = l->lease;
        q->event.revision = l->created;
        q->event.error = error;
        q->event.reason = queue_text(q, why);
        return q;
}

static void announce(struct tenure_lock *l, enum tenure_event_type type, int error,
                     const char *why)
{
        struct queued *q = event_of(l, type, error, why);

        if (q)
                queue_event(l->tenure, q);
}

static void end_watches(struct tenure_lock *l)
{
        l->watch = tenure_watch_free(l->watch);
        l->own_watch = tenure_watch_free(l->own_watch);
}

static void forget(struct tenure_lock *l)
{
        l->call = tenure_call_free(l->call);
        end_watches(l);
        handover_stop(&l->handover);
        l->stirred = l->stops = false;
        l->created = l->written = 0;
}

static void end_turn(struct tenure_lock *l)
{
        agent_forget_turn(&l->asks);
        host_turn_end(&l->turn);
}

/* Begins again, with whatever lease is held then. */
static void reset(struct tenure_lock *l)
{
        forget(l);
        end_turn(l);
        l->lease = 0;
        l->backoff = 0;
        l->retry_at = (struct boot_time){0};
        l->state = LOCK_IDLE;
}

/* Frees everything but the struct itself. */
static void lock_fini(struct tenure_lock *l)
{
        reset(l);
        LIST_REMOVE(l, entry);
        buf_fini(&l->key);
        buf_fini(&l->before);
        free(l->name);
        free(l->value);
}

/* Ends the lock, with the last event about it. */
static void lock_end(struct tenure_lock *l, int error, const char *why)
{
        struct queued *q = event_of(l, TENURE_UNLOCKED, error, why);

        lock_fini(l);
        queue_last(l->tenure, q, l);
}

static void lose(struct tenure_lock *l, const char *why)
{
        if (l->held)
                announce(l, TENURE_UNLOCKED, 0, why);
}

/* ---- calls ---- */

static void again(struct tenure_lock *l)
{
        l->backoff = min_of(max_of(l->backoff * 2, RETRY_MIN), RETRY_MAX);
        l->retry_at = boot_add(loop_now(l->tenure->loop), l->backoff);
}

/* Errors that another try would not change. */
static bool is_refused(int r)
{
        return r == -EACCES || r == -EINVAL || r == -EMSGSIZE || r == -EPERM;
}

static void delete_key(struct tenure_lock *l, call_done_fn done);

/* A program without permission to read the line leaves it, so as not to block the others. */
static void on_refused(struct tenure_lock *l, int error, const char *why)
{
        announce(l, TENURE_UNLOCKED, error, why);
        if (l->created != 0)
                delete_key(l, NULL);
        forget(l);
        end_turn(l);
        l->state = LOCK_OVER;
}

/* Takes the result. False: there is no answer, or the core has refused, which was announced. */
static bool has_answer(struct tenure_lock *l, struct tenure_call *c, int *ret)
{
        int r = *ret = tenure_call_result(c);

        l->call = NULL;
        locks_soon(l->tenure);
        if (r == 0 || r == -ECANCELED) {
                l->backoff = 0;
                return true;
        }
        if (is_refused(r) && !l->unlocking)
                on_refused(l, r, tenure_call_error(c));
        else
                again(l);
        return false;
}

static int read_claim(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;
        const Pb__ResponseOp *op;
        int r;

        if (p->succeeded)
                return p->n_responses == 1 ? 0 : -EBADMSG;
        op = p->n_responses == 2 ? p->responses[1] : NULL;
        if (!op || op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE ||
            op->response_range->n_kvs != 1)
                return -EBADMSG;
        r = found_new(c, 1);
        if (r == 0)
                r = found_kvs(c, 0, op->response_range->kvs, 1);
        return r < 0 ? r : -ECANCELED; /* the caller keeps what was read */
}

static const struct call_kind kind_claim = {"/etcdserverpb.KV/Txn",
                                            &pb__txn_response__descriptor, read_claim};

static int read_look(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;
        const Pb__ResponseOp *op = p->n_responses == 1 ? p->responses[0] : NULL;
        int r;

        if (!p->succeeded)
                return -ECANCELED;
        if (!op || op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return -EBADMSG;
        r = found_new(c, 1);
        return r < 0 ? r : found_kvs(c, 0, op->response_range->kvs, op->response_range->n_kvs);
}

static const struct call_kind kind_look = {"/etcdserverpb.KV/Txn",
                                           &pb__txn_response__descriptor, read_look};

static const struct call_kind kind_unlock = {"/etcdserverpb.KV/Txn",
                                             &pb__txn_response__descriptor, call_read_nothing};

/* Sends @q; @done takes the answer. */
static void ask(struct tenure_lock *l, const struct call_kind *kind, const Pb__TxnRequest *q,
                bool changes, call_done_fn done)
{
        if (call_ask_for(l->tenure, kind, &q->base, changes, done, l, &l->call) < 0)
                again(l);
}

static ProtobufCBinaryData bytes(const struct buf *b)
{
        return pb_bytes(buf_head(b), buf_len(b));
}

static void compare_created(const struct tenure_lock *l, Pb__Compare *c)
{
        pb__compare__init(c);
        c->key = bytes(&l->key);
        c->target = PB__COMPARE__COMPARE_TARGET__CREATE;
        c->target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        c->create_revision = l->created;
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

/* ---- creating the key ---- */

static void on_claimed(struct tenure_call *c, void *arg)
{
        struct tenure_lock *l = arg;
        const struct tenure_kv *kv;
        int r;

        if (has_answer(l, c, &r)) {
                kv = r == -ECANCELED ? tenure_call_kv(c, 0, 0) : NULL;
                l->created = kv ? kv->create_revision : tenure_call_revision(c);
                l->written = kv ? kv->mod_revision : tenure_call_revision(c);
                l->state = LOCK_LOOK;
        }
        tenure_call_free(c);
}

/* If the key exists already, a program of this host that has ended has left it, or we have
 * written it and the answer was lost. We keep the key, and write it again, since the last one
 * to write it is the one that may delete it (etcd/claim.c). */
static void claim(struct tenure_lock *l)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest get = PB__RANGE_REQUEST__INIT;
        Pb__RequestOp put_op = PB__REQUEST_OP__INIT, get_op = PB__REQUEST_OP__INIT;
        Pb__RequestOp *then[] = {&put_op}, *other[] = {&put_op, &get_op};

        l->created = 0;
        compare_created(l, &c);
        put.key = get.key = bytes(&l->key);
        put.value = pb_bytes(l->value, strlen(l->value));
        put.lease = l->lease;
        put_op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        put_op.request_put = &put;
        get_op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        get_op.request_range = &get;
        q.compare = cs;
        q.success = then;
        q.failure = other;
        q.n_compare = q.n_success = 1;
        q.n_failure = 2;
        ask(l, &kind_claim, &q, true, on_claimed);
}

/* ---- looking at the line ---- */

static void on_watched(const struct tenure_event *e, void *arg)
{
        struct tenure_lock *l = arg;

        /* While we wait, only deletions count: of the key before ours, and of ours, if we are
         * passed over. Once we have the lock, each change of our key counts. */
        if (e->type == TENURE_PUT && l->state == LOCK_WAIT)
                return;
        if (e->type == TENURE_WATCH_ENDED)
                again(l);
        l->stirred = true;
        locks_soon(l->tenure);
}

static int watch(struct tenure_lock *l, const struct buf *key, struct tenure_watch **ret)
{
        struct tenure_watch_options o = {
                .key = buf_head(key), .key_len = buf_len(key), .revision = l->seen + 1};
        int r = tenure_watch(l->tenure, &o, ret);

        if (r < 0) {
                again(l);
                return r;
        }
        watch_until_break(*ret, on_watched, l);
        return 0;
}

static void have(struct tenure_lock *l)
{
        l->state = LOCK_WATCH;
        if (!l->held && !l->stops)
                announce(l, TENURE_LOCKED, 0, "");
}

/* A switchover was requested: the lock is to be handed over. */
static void on_asked(struct tenure_lock *l)
{
        const char *to = l->handover.request.to;
        struct queued *q;

        if (!l->held) { /* the holder that was asked has died; there is nothing to stop here */
                l->stops = true;
                return handover_go(&l->handover);
        }
        q = queue_new(l->tenure, TENURE_ASKED, strlen(to) + 1);
        if (!q)
                return;
        q->event.lock = l;
        q->event.lease = l->lease;
        q->event.revision = l->created;
        q->event.reason = queue_text(q, to);
        queue_event(l->tenure, q);
}

/* The key is gone; create another one, at the end of the line. */
static void on_gone(struct tenure_lock *l, const char *why)
{
        lose(l, why);
        forget(l);
        l->state = LOCK_CLAIM;
}

static void on_handover(struct handover *h, enum handover_news news)
{
        struct tenure_lock *l = container_of(h, struct tenure_lock, handover);
        char why[SWITCHOVER_NAME_MAX + 32];

        locks_soon(l->tenure);
        switch (news) {
        case HANDOVER_NONE:
                if (l->state == LOCK_FIRST)
                        have(l);
                break;
        case HANDOVER_ASKED:
                on_asked(l);
                break;
        case HANDOVER_KEPT:
                l->held = l->stops = false;
                if (l->state != LOCK_LOOK)
                        have(l);
                break;
        case HANDOVER_DONE:
                snprintf(why, sizeof(why), "handed over to %s", h->request.to);
                on_gone(l, why);
                break;
        case HANDOVER_LOST:
                on_gone(l, TAKEN);
                break;
        }
}

static void on_first(struct tenure_lock *l)
{
        struct switchover_at own = {
                .key = buf_head(&l->key), .len = buf_len(&l->key), .created = l->created};

        /* The request may have taken longer than the deadline allows. */
        if (!tenure_may_act(l->tenure) || watch(l, &l->key, &l->watch) < 0)
                return again(l);
        l->state = LOCK_FIRST;
        if (!l->handover.tenure)
                handover_start(&l->handover, l->tenure, l->name, &own, on_handover);
        else if (l->handover.looked)
                have(l);
}

static void on_looked(struct tenure_call *c, void *arg)
{
        struct tenure_lock *l = arg;
        const struct tenure_kv *before;
        int r;

        if (!has_answer(l, c, &r)) {
                tenure_call_free(c);
                return;
        }
        l->seen = tenure_call_revision(c);
        before = r == 0 ? tenure_call_kv(c, 0, 0) : NULL;
        if (r == -ECANCELED) {
                lose(l, TAKEN);
                handover_stop(&l->handover);
                l->stops = false;
                l->state = LOCK_CLAIM;
        } else if (!before) {
                on_first(l);
        } else {
                buf_clear(&l->before);
                buf_add(&l->before, before->key, before->key_len);
                l->state = LOCK_WAIT;
                if (buf_error(&l->before) < 0 || watch(l, &l->before, &l->watch) < 0 ||
                    watch(l, &l->key, &l->own_watch) < 0) {
                        end_watches(l);
                        again(l);
                        l->state = LOCK_LOOK;
                }
        }
        tenure_call_free(c);
}

static void look(struct tenure_lock *l)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__RangeRequest p = PB__RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

        compare_created(l, &c);
        c.target = PB__COMPARE__COMPARE_TARGET__MOD;
        c.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c.mod_revision = l->written;
        buf_printf(&from, "%s/", l->name);
        buf_printf(&to, "%s%c", l->name, '/' + 1);
        if (buf_error(&from) < 0 || buf_error(&to) < 0)
                return again(l);
        p.key = bytes(&from);
        p.range_end = bytes(&to);
        p.max_create_revision = l->created - 1;
        p.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        p.sort_target = PB__RANGE_REQUEST__SORT_TARGET__CREATE;
        p.limit = 1;
        p.keys_only = true;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op.request_range = &p;
        q.compare = cs;
        q.success = ops;
        q.n_compare = q.n_success = 1;
        ask(l, &kind_look, &q, false, on_looked);
}

/* ---- giving back ---- */

static void on_unlocked(struct tenure_call *c, void *arg)
{
        struct tenure_lock *l = arg;
        int r = tenure_call_result(c);

        l->call = NULL;
        tenure_call_free(c);
        locks_soon(l->tenure);
        if (r < 0 && !is_refused(r))
                return again(l);
        lock_end(l, r, r < 0 ? "the core refuses to delete its key" : "given back");
}

/* Deletes only our own key, and not a later one of the same name. With @done NULL nobody waits
 * for the outcome, and the key stays if another program of this host has written it since: it
 * may be that program's turn. */
static void delete_key(struct tenure_lock *l, call_done_fn done)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare c, *cs[] = {&c};
        Pb__DeleteRangeRequest p = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

        compare_created(l, &c);
        if (l->created == 0) { /* it is not known whether the key was created */
                c.target = PB__COMPARE__COMPARE_TARGET__LEASE;
                c.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
                c.lease = l->lease;
        } else if (!done) {
                c.target = PB__COMPARE__COMPARE_TARGET__MOD;
                c.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
                c.mod_revision = l->written;
        }
        p.key = bytes(&l->key);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &p;
        q.compare = cs;
        q.success = ops;
        q.n_compare = q.n_success = 1;
        /* This may be done twice without harm. */
        if (done)
                ask(l, &kind_unlock, &q, false, done);
        else
                (void) !call_ask(l->tenure, &kind_unlock, &q.base, false, NULL);
}

/* ---- in each turn ---- */

static void on_turn(struct host_turn *h)
{
        struct tenure_lock *l = container_of(h, struct tenure_lock, turn);

        l->state = LOCK_CLAIM;
        locks_soon(l->tenure);
}

static void on_descriptor(struct turn_request *q, int fd, const char *why)
{
        struct tenure_lock *l = container_of(q, struct tenure_lock, asks);
        struct tenure *t = l->tenure;
        char text[512];

        if (fd >= 0 || fd == -ENOSYS) /* an agent of release 0.1.0 gives no descriptor */
                return host_turn_begin(&l->turn, t->loop, fd, l->lease, l->name, on_turn);
        utf8_print(text, sizeof(text), "the agent gives this program no turn for locks: %s",
                   why);
        if (fd == -EACCES)
                return on_refused(l, fd, text);
        (void) !tenure_fail(t, fd, "%s", text);
        again(l);
        l->state = LOCK_IDLE;
        locks_soon(t);
}

/* Whether another lock of this tie, with the same name, still has a key. */
static bool is_in_the_way(const struct tenure_lock *l)
{
        const struct tenure_lock *o;

        LIST_FOREACH (o, &l->tenure->locks, entry)
                if (o != l && o->unlocking && strcmp(o->name, l->name) == 0)
                        return true;
        return false;
}

static void begin(struct tenure_lock *l)
{
        struct tenure *t = l->tenure;

        if (t->hold.lease == 0 || t->hold.given_back || is_in_the_way(l))
                return;
        buf_clear(&l->key);
        buf_printf(&l->key, "%s/%" PRIx64, l->name, (uint64_t) t->hold.lease);
        if (buf_error(&l->key) < 0)
                return again(l);
        l->lease = t->hold.lease;
        l->state = LOCK_CLAIM;
        if (t->hold.kind != HOLD_AGENT)
                return;
        if (agent_ask_turn(t, &l->asks, l->name, on_descriptor) == 0) {
                l->state = LOCK_TURN;
                return;
        }
        l->state = LOCK_IDLE;
        again(l);
}

static void on_stirred(struct tenure_lock *l)
{
        l->stirred = false;
        end_watches(l);
        l->state = LOCK_LOOK;
}

static void step(struct tenure_lock *l, struct boot_time now)
{
        if (l->call || boot_before(now, l->retry_at))
                return;
        if (l->unlocking)
                return delete_key(l, on_unlocked);
        /* While the lock is being handed over, handover.c watches the key. */
        if (l->stirred && !l->stops)
                on_stirred(l);
        if (l->state == LOCK_IDLE)
                begin(l);
        if (l->state == LOCK_CLAIM)
                claim(l);
        else if (l->state == LOCK_LOOK)
                look(l);
}

/* Ends the lock if the program was asked to stop and its time has run out. */
static void end_in_time(struct tenure_lock *l, struct boot_time now)
{
        char why[SWITCHOVER_NAME_MAX + 64];

        if (!handover_is_asked(&l->handover) || boot_before(now, l->handover.stop_by))
                return;
        snprintf(why, sizeof(why), "the time to hand it over to %s has run out",
                 l->handover.request.to);
        lose(l, why);
        l->stops = true;
        handover_go(&l->handover);
}

static struct boot_time run(struct loop_hook *h, struct boot_time now)
{
        struct tenure *t = container_of(h, struct tenure, locks_hook);
        struct boot_time next = BOOT_TIME_NEVER;
        struct tenure_lock *l, *after;

        LIST_FOREACH_SAFE (l, &t->locks, entry, after) {
                if (l->unlocking && l->lease == 0) { /* its key went with the lease */
                        lock_end(l, 0, "given back");
                        next = now; /* another lock of that name may begin now */
                } else {
                        end_in_time(l, now);
                        step(l, now);
                }
        }
        LIST_FOREACH (l, &t->locks, entry) {
                if (boot_before(now, l->retry_at))
                        next = boot_min(next, l->retry_at);
                if (handover_is_asked(&l->handover))
                        next = boot_min(next, l->handover.stop_by);
        }
        return next;
}

void locks_lost(struct tenure *t, const char *why)
{
        struct tenure_lock *l, *after;

        LIST_FOREACH_SAFE (l, &t->locks, entry, after) {
                lose(l, why);
                if (l->state != LOCK_OVER)
                        reset(l);
        }
        locks_soon(t);
}

void locks_start(struct tenure *t)
{
        t->locks_hook.what = "locks";
        loop_hook_start(&t->locks_hook, t->loop, LOOP_ACT, run);
}

void locks_fini(struct tenure *t)
{
        struct tenure_lock *l;

        while ((l = LIST_FIRST(&t->locks))) {
                lock_fini(l);
                free(l);
        }
        loop_hook_stop(&t->locks_hook);
}

/* ---- functions for the program ---- */

int tenure_lock(struct tenure *t, const char *name, const char *value, struct tenure_lock **ret)
{
        const char *problem = lock_name_problem(name ? name : "");
        struct tenure_lock *l;

        if (t->hold.kind == HOLD_NONE)
                return tenure_fail(t, -EINVAL,
                                   "a lock needs a place or a lease; call "
                                   "tenure_hold_with_agent() or tenure_hold_own() first");
        if (problem)
                return tenure_fail(t, -EINVAL, "the name of a lock %s", problem);
        LIST_FOREACH (l, &t->locks, entry)
                if (!l->unlocking && strcmp(l->name, name) == 0)
                        return tenure_fail(t, -EALREADY,
                                           "this tie has, or waits for, the lock '%s'", name);
        l = calloc(1, sizeof(*l));
        if (l) {
                l->name = strdup(name);
                l->value = strdup(value ? value : "");
        }
        if (!l || !l->name || !l->value) {
                free(l ? l->name : NULL);
                free(l ? l->value : NULL);
                free(l);
                return tenure_fail(t, -ENOMEM, "out of memory");
        }
        l->tenure = t;
        LIST_INSERT_HEAD(&t->locks, l, entry);
        locks_soon(t);
        *ret = l;
        return 0;
}

int64_t tenure_lock_token(const struct tenure_lock *l)
{
        return l->held && !l->stops && tenure_is_ours(l->tenure) ? l->created : 0;
}

bool tenure_lock_is_held(const struct tenure_lock *l)
{
        if (!l->held || l->stops || l->lease != l->tenure->hold.lease ||
            !tenure_is_ours(l->tenure))
                return false;
        if (handover_is_asked(&l->handover) && !boot_before(boot_now(), l->handover.stop_by))
                return false;
        return tenure_may_act(l->tenure);
}

uint64_t tenure_lock_deadline(const struct tenure_lock *l)
{
        uint64_t place = tenure_deadline(l->tenure);

        if (!tenure_lock_is_held(l))
                return 0;
        if (!handover_is_asked(&l->handover))
                return place;
        return min_of(place, (uint64_t) boot_usec(l->handover.stop_by));
}

int tenure_hand_over(struct tenure_lock *l)
{
        if (!l->held || l->stops || !handover_is_asked(&l->handover))
                return tenure_fail(l->tenure, -EINVAL,
                                   "nobody has asked for the lock '%s' to be handed over",
                                   l->name);
        l->stops = true;
        handover_go(&l->handover);
        locks_soon(l->tenure);
        return 0;
}

struct tenure_lock *tenure_unlock(struct tenure_lock *l)
{
        struct tenure *t;

        if (!l)
                return NULL;
        t = l->tenure;
        l->held = false;
        l->unlocking = true;
        end_watches(l);
        handover_stop(&l->handover);
        l->stirred = l->stops = false;
        l->retry_at = (struct boot_time){0};
        if (l->state == LOCK_LOOK)
                l->call = tenure_call_free(l->call);
        /* In these states there is no key. A claim that is under way is completed first. */
        if (l->state == LOCK_IDLE || l->state == LOCK_TURN || l->state == LOCK_OVER)
                lock_end(l, 0, "given back");
        locks_soon(t);
        return NULL;
}
