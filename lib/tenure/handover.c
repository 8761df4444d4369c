#include "tenure/handover.h"

#include "member/lock_name.h"
#include "tenure/calls.h"

#define RETRY_MIN (50 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC

static void soon(struct handover *h)
{
        loop_hook_again(&h->hook);
        tenure_wake(h->tenure);
}

static void again(struct handover *h)
{
        h->backoff = min_of(max_of(h->backoff * 2, RETRY_MIN), RETRY_MAX);
        h->retry_at = boot_add(loop_now(h->tenure->loop), h->backoff);
}

static void go_to(struct handover *h, enum handover_state state)
{
        h->state = state;
        h->backoff = 0;
        soon(h);
}

/* Reports, once, that there is no request. */
static void tell_none(struct handover *h)
{
        if (h->looked)
                return;
        h->looked = true;
        h->fn(h, HANDOVER_NONE);
}

/* ---- calls ---- */

static int read_txn(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;
        struct handover *h = c->arg;
        enum switchover_end end;
        int r;

        if (h->state == HANDOVER_PUSH)
                return switchover_pushed(p, &h->request);
        if (h->state == HANDOVER_ANSWER)
                return 0;
        r = switchover_ended(p, &h->own, &end);
        if (r < 0)
                return r;
        return end == SWITCHOVER_DONE ? 0 : end == SWITCHOVER_KEPT ? -ECANCELED : -ESTALE;
}

static const struct call_kind kind_txn = {"/etcdserverpb.KV/Txn", &pb__txn_response__descriptor,
                                          read_txn};

/* Sends a request. Each of them may be done twice without harm (member/switchover.h). */
static void ask(struct handover *h, const struct call_kind *kind, const struct buf *request,
                call_done_fn done)
{
        if (call_ask_packed(h->tenure, kind, request, done, h, &h->call) < 0)
                again(h);
}

/* Takes the result. False: the request is tried again. */
static bool has_answer(struct handover *h, struct tenure_call *c, int *ret)
{
        int r = *ret = tenure_call_result(c);

        h->call = NULL;
        soon(h);
        if (r == 0 || r == -ECANCELED || r == -ESRCH || r == -ESTALE)
                return true;
        again(h);
        return false;
}

/* ---- looking for a request ---- */

static void on_watched(const struct tenure_event *e, void *arg)
{
        struct handover *h = arg;

        if (e->type == TENURE_WATCH_ENDED)
                again(h);
        h->stirred = true;
        soon(h);
}

static void watch(struct handover *h)
{
        cleanup_(buf_fini) struct buf key = {0};
        struct tenure_watch_options o = {.revision = h->seen + 1};

        switchover_key(h->name, &key);
        if (buf_error(&key) < 0)
                return again(h);
        o.key = buf_head(&key);
        o.key_len = buf_len(&key);
        if (tenure_watch(h->tenure, &o, &h->watch) < 0)
                return again(h);
        watch_until_break(h->watch, on_watched, h);
        go_to(h, HANDOVER_WATCH);
}

static void asked(struct handover *h)
{
        h->looked = true;
        h->stop_by = boot_add(loop_now(h->tenure->loop), h->request.within_ms * NSEC_PER_MSEC);
        go_to(h, HANDOVER_STOPS);
        h->fn(h, HANDOVER_ASKED);
}

static void judge(struct handover *h, const struct tenure_kv *kv)
{
        if (kv && kv->mod_revision != h->no_more &&
            switchover_read(&h->request, kv->value, kv->value_len) == 0) {
                h->mod = kv->mod_revision;
                h->lease = kv->lease;
                switch (switchover_judge(&h->request, &h->own)) {
                case SWITCHOVER_TARGET:
                        go_to(h, HANDOVER_ANSWER);
                        return tell_none(h);
                case SWITCHOVER_ASKED:
                        return go_to(h, HANDOVER_BETWEEN);
                case SWITCHOVER_ACCEPTED:
                        return asked(h);
                case SWITCHOVER_NOT_OURS:
                        break;
                }
        }
        watch(h);
        tell_none(h);
}

static void on_looked(struct tenure_call *c, void *arg)
{
        struct handover *h = arg;
        int r = tenure_call_result(c);

        h->call = NULL;
        soon(h);
        if (r == 0) {
                h->seen = tenure_call_revision(c);
                judge(h, tenure_call_kv(c, 0, 0));
        } else if (r == -EACCES || r == -EPERM) {
                h->state = HANDOVER_OVER;
                tell_none(h);
        } else {
                again(h);
        }
        tenure_call_free(c);
}

static void look(struct handover *h)
{
        cleanup_(buf_fini) struct buf key = {0}, b = {0};
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        h->watch = tenure_watch_free(h->watch);
        h->stirred = false;
        switchover_key(h->name, &key);
        if (buf_error(&key) < 0)
                return again(h);
        q.key = pb_bytes(buf_head(&key), buf_len(&key));
        pb_append(&b, &q.base);
        ask(h, &kind_range, &b, on_looked);
}

/* ---- accepting it ---- */

static void on_pushed(struct tenure_call *c, void *arg)
{
        struct handover *h = arg;
        bool last = c->lease != 0;
        int r;

        if (!has_answer(h, c, &r)) {
                /* Look again, also if the request has ended with its lease. Without permission
                 * to write the request we can never accept it. */
                if (r == -EACCES || r == -EPERM)
                        h->no_more = h->mod;
                h->state = HANDOVER_LOOK;
        } else if (r == 0 && last) {
                h->mod = tenure_call_revision(c); /* it was written */
                asked(h);
        } else if (r == 0) {
                go_to(h, HANDOVER_BETWEEN);
        } else {
                if (r == -ESRCH)
                        h->no_more = h->mod;
                else
                        again(h);
                h->state = HANDOVER_LOOK;
        }
        tenure_call_free(c);
}

static void push(struct handover *h, const struct tenure_call *found)
{
        struct switchover_at between[SWITCHOVER_PUSH_MAX];
        cleanup_(buf_fini) struct buf b = {0};
        size_t n = 0;
        const struct tenure_kv *kv;
        bool last;

        while (n < SWITCHOVER_PUSH_MAX && (kv = tenure_call_kv(found, 0, n)))
                between[n++] = (struct switchover_at){.key = kv->key, .len = kv->key_len};
        last = tenure_call_n_kvs(found, 0) <= n;
        switchover_push(h->name, &h->request, &h->own, between, n, last, h->mod, h->lease, &b);
        ask(h, &kind_txn, &b, on_pushed);
        if (h->call)
                h->call->lease = last; /* not used otherwise in such a call */
}

/* Whether all of the keys are those of waiters for this lock. The range includes the keys of a
 * lock NAME/X, too; if we deleted one, its owner would go on acting while others take that
 * lock. */
static bool are_ours(const struct handover *h, const struct tenure_call *found)
{
        const struct tenure_kv *kv;

        for (size_t i = 0; (kv = tenure_call_kv(found, 0, i)); i++)
                if (!lock_name_has(h->name, kv->key, kv->key_len))
                        return false;
        return true;
}

static void on_between(struct tenure_call *c, void *arg)
{
        struct handover *h = arg;
        int r;

        if (has_answer(h, c, &r) && !are_ours(h, c)) {
                h->no_more = h->mod; /* this request is not accepted */
                h->state = HANDOVER_LOOK;
        } else if (r == 0) {
                h->state = HANDOVER_PUSH;
                push(h, c);
                if (!h->call)
                        h->state = HANDOVER_BETWEEN;
        }
        tenure_call_free(c);
}

static void look_between(struct handover *h)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0}, b = {0};
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        switchover_range(h->name, &from, &to);
        if (buf_error(&from) < 0 || buf_error(&to) < 0)
                return again(h);
        q.key = pb_bytes(buf_head(&from), buf_len(&from));
        q.range_end = pb_bytes(buf_head(&to), buf_len(&to));
        q.min_create_revision = h->own.created + 1;
        q.max_create_revision = h->request.created - 1;
        q.limit = SWITCHOVER_PUSH_MAX + 1;
        q.keys_only = true;
        pb_append(&b, &q.base);
        ask(h, &kind_range_part, &b, on_between);
}

/* ---- handing over ---- */

static void on_gone(struct tenure_call *c, void *arg)
{
        struct handover *h = arg;
        int r;

        if (has_answer(h, c, &r)) {
                h->no_more = h->mod;
                go_to(h, r == -ECANCELED ? HANDOVER_LOOK : HANDOVER_OVER);
                tenure_call_free(c);
                h->fn(h, r == 0            ? HANDOVER_DONE
                         : r == -ECANCELED ? HANDOVER_KEPT
                                           : HANDOVER_LOST);
                return;
        }
        tenure_call_free(c);
}

static void hand_over(struct handover *h)
{
        cleanup_(buf_fini) struct buf b = {0};

        switchover_hand_over(&h->request, &h->own, &b);
        ask(h, &kind_txn, &b, on_gone);
}

/* The program that made the request learns from this answer that we have the lock. */
static void on_answered(struct tenure_call *c, void *arg)
{
        struct handover *h = arg;
        int r;

        if (has_answer(h, c, &r) || r == -EACCES || r == -EPERM)
                watch(h);
        tenure_call_free(c);
}

static void answer(struct handover *h)
{
        cleanup_(buf_fini) struct buf b = {0};

        switchover_withdraw(h->name, h->mod, &b);
        ask(h, &kind_txn, &b, on_answered);
}

/* ---- ---- */

static struct boot_time run(struct loop_hook *hook, struct boot_time now)
{
        struct handover *h = container_of(hook, struct handover, hook);

        if (h->state == HANDOVER_WATCH && h->stirred)
                h->state = HANDOVER_LOOK;
        if (h->call || h->state == HANDOVER_WATCH || h->state == HANDOVER_STOPS ||
            h->state == HANDOVER_OVER)
                return BOOT_TIME_NEVER;
        if (boot_before(now, h->retry_at))
                return h->retry_at;
        if (h->state == HANDOVER_LOOK)
                look(h);
        else if (h->state == HANDOVER_BETWEEN)
                look_between(h);
        else if (h->state == HANDOVER_GO)
                hand_over(h);
        else
                answer(h);
        return h->call ? BOOT_TIME_NEVER : h->retry_at;
}

void handover_start(struct handover *h, struct tenure *t, const char *name,
                    const struct switchover_at *own,
                    void (*fn)(struct handover *h, enum handover_news news))
{
        *h = (struct handover){.tenure = t, .name = name, .own = *own, .fn = fn};
        h->hook.what = "switchovers";
        loop_hook_start(&h->hook, t->loop, LOOP_ACT, run);
        soon(h);
}

void handover_stop(struct handover *h)
{
        if (!h->tenure)
                return;
        h->call = tenure_call_free(h->call);
        h->watch = tenure_watch_free(h->watch);
        loop_hook_stop(&h->hook);
        *h = (struct handover){0};
}

void handover_go(struct handover *h)
{
        if (h->tenure && h->state == HANDOVER_STOPS)
                go_to(h, HANDOVER_GO);
}
