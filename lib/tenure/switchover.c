/*
 * The side that requests a switchover (member/switchover.h): finds out who holds the lock and
 * who is to get it, makes the request, and follows it. One call of the program becomes several
 * calls of the library. This file has the course of a switchover: each step uses what the steps
 * before it have found.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "tenure/switchover_internal.h"

#define RETRY (50 * NSEC_PER_MSEC)
#define WITHIN_MAX_MS INT64_C(86400000)

void switching_soon(struct switching *s)
{
        loop_hook_again(&s->hook);
        tenure_wake(s->tenure);
}

void switching_go_to(struct switching *s, enum switching_state state)
{
        s->state = state;
        switching_soon(s);
}

void switching_again(struct switching *s)
{
        s->retry_at = boot_add(loop_now(s->tenure->loop), RETRY);
        switching_soon(s);
}

static bool has_asked(const struct switching *s)
{
        return s->mod != 0;
}

static void end_watches(struct switching *s)
{
        s->watch = tenure_watch_free(s->watch);
        s->line = tenure_watch_free(s->line);
}

void switching_end(struct switching *s, int result)
{
        s->result = result;
        end_watches(s);
        switching_go_to(s, SWITCH_END);
}

void switching_no_memory(struct switching *s)
{
        call_says(s->call, "Out of memory for a switchover");
        switching_end(s, -ENOMEM);
}

bool switching_is_key(const struct tenure_kv *kv, const void *key, size_t len)
{
        return kv->key_len == len && memcmp(kv->key, key, len) == 0;
}

bool switching_is_target(const struct switching *s, const struct tenure_kv *kv)
{
        return switching_is_key(kv, s->request.key, strlen(s->request.key));
}

bool switching_is_holder(const struct switching *s, const struct tenure_kv *kv)
{
        return switching_is_key(kv, buf_head(&s->holder), buf_len(&s->holder));
}

bool switching_set_holder(struct switching *s, const struct tenure_kv *kv)
{
        buf_clear(&s->holder);
        buf_add(&s->holder, kv->key, kv->key_len);
        s->created = kv->create_revision;
        s->holder_gone = 0;
        return buf_error(&s->holder) == 0;
}

/* ---- calls ---- */

static int read_txn(struct tenure_call *c, const void *answer)
{
        const Pb__TxnResponse *p = answer;
        int r = found_new(c, p->n_responses);

        for (size_t i = 0; r == 0 && i < p->n_responses; i++)
                if (p->responses[i]->response_case ==
                    PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE) {
                        const Pb__RangeResponse *range = p->responses[i]->response_range;

                        r = found_kvs(c, i, range->kvs, range->n_kvs);
                }
        return r < 0 ? r : p->succeeded ? 0 : -ECANCELED;
}

const struct call_kind switching_txn = {"/etcdserverpb.KV/Txn", &pb__txn_response__descriptor,
                                        read_txn};

void switching_ask_packed(struct switching *s, const struct call_kind *kind,
                          const struct buf *request, call_done_fn done)
{
        if (call_ask_packed(s->tenure, kind, request, done, s, &s->sub) < 0)
                switching_again(s);
}

void switching_ask(struct switching *s, const struct call_kind *kind, const ProtobufCMessage *q,
                   call_done_fn done)
{
        if (call_ask_for(s->tenure, kind, q, false, done, s, &s->sub) < 0)
                switching_again(s);
}

bool switching_has_answer(struct switching *s, struct tenure_call *c, int *ret)
{
        int r = *ret = tenure_call_result(c);

        s->sub = NULL;
        switching_soon(s);
        if (r == 0 || r == -ECANCELED || r == -ESRCH)
                return true;
        /* A request that was made stays in place meanwhile. */
        if (has_asked(s) && r != -EACCES && r != -EPERM) {
                switching_again(s);
                return false;
        }
        call_says(s->call, "%s", tenure_call_error(c));
        switching_end(s, r);
        return false;
}

/* ---- end ---- */

static void stop(struct switching *s)
{
        s->sub = tenure_call_free(s->sub);
        end_watches(s);
        loop_hook_stop(&s->hook);
        s->state = SWITCH_OVER;
}

/* @s must not be used after this: the program may have freed its call. */
static void finish(struct switching *s)
{
        s->switched.from = s->request.from;
        s->switched.to = s->request.to;
        stop(s);
        call_end(s->call, s->result);
}

static void on_revoked(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;

        s->sub = NULL;
        tenure_call_free(c);
        finish(s);
}

static void take_back(struct switching *s, call_done_fn done)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        q.id = s->lease;
        switching_ask(s, &kind_revoke, &q.base, done);
}

/* ---- steps ---- */

static void act(struct switching *s, struct boot_time now)
{
        static void (*const fns[])(struct switching * s) = {
                [SWITCH_LOOK] = switching_look,
                [SWITCH_TARGET] = switching_look_for_target,
                [SWITCH_BETWEEN] = switching_look_between,
                [SWITCH_WHO] = switching_look_whose,
                [SWITCH_GRANT] = switching_grant,
                [SWITCH_ASK] = switching_make_request,
                [SWITCH_CHECK] = switching_check,
                [SWITCH_WITHDRAW] = switching_withdraw,
        };

        if (s->state == SWITCH_END)
                return;
        if (!has_asked(s) && !boot_before(now, s->until)) {
                call_says(s->call, "Nobody could be asked in time: %s",
                          *tenure_cluster(s->tenure)
                                  ? "the lock keeps changing hands"
                                  : "the agent does not report which cluster this is");
                return switching_end(s, -ETIMEDOUT);
        }
        if (s->state == SWITCH_WAIT)
                switching_wait(s, now);
        else if (s->state != SWITCH_TAKES)
                fns[s->state](s);
        else if (s->had_at.ns != 0 || !boot_before(now, s->until))
                switching_succeed(s);
}

static struct boot_time run(struct loop_hook *hook, struct boot_time now)
{
        struct switching *s = container_of(hook, struct switching, hook);
        struct boot_time next;

        switching_renew(s, now);
        if (!s->sub && !boot_before(now, s->retry_at))
                act(s, now);
        if (!s->sub && s->state == SWITCH_END) {
                if (s->lease == 0) {
                        finish(s);
                        return BOOT_TIME_NEVER;
                }
                take_back(s, on_revoked);
        }
        next = s->lease ? s->renew_at : BOOT_TIME_NEVER;
        if (s->sub)
                return next;
        if (boot_before(now, s->retry_at))
                return boot_min(next, s->retry_at);
        if (s->state == SWITCH_WAIT || s->state == SWITCH_TAKES)
                return boot_min(next, s->until);
        return now;
}

struct switching *switching_free(struct switching *s)
{
        if (!s)
                return NULL;
        stop(s);
        buf_fini(&s->key);
        buf_fini(&s->holder);
        buf_fini(&s->leases);
        free(s->name);
        free(s);
        return NULL;
}

static struct switching *under_way(struct tenure *t)
{
        struct tenure_call *c;

        LIST_FOREACH (c, &t->calls->all, of_all)
                if (c->switching && c->switching->state != SWITCH_OVER)
                        return c->switching;
        return NULL;
}

void switchings_stop(struct tenure *t)
{
        struct switching *s;

        /* Stopping one may free other calls. */
        while (t->calls && (s = under_way(t)))
                stop(s);
}

int tenure_switchover(struct tenure *t, const char *lock, const char *to, int64_t within_ms,
                      struct tenure_call **ret)
{
        const char *problem = lock_name_problem(lock ? lock : "");
        char host[HOST_NAME_MAX + 1] = "";
        struct switching *s;
        int r;

        if (problem)
                return tenure_fail(t, -EINVAL, "the name of a lock %s", problem);
        if (to && !node_name_is_valid(to))
                return tenure_fail(t, -EINVAL,
                                   "'%s' is not a valid name of a node or a session", to);
        if (within_ms <= 0 || within_ms > WITHIN_MAX_MS)
                return tenure_fail(t, -EINVAL,
                                   "the time to stop is from 1 ms to a day, not %" PRId64 " ms",
                                   within_ms);
        s = calloc(1, sizeof(*s));
        if (s)
                s->name = strdup(lock);
        r = s && s->name ? call_new(t, &switching_txn, &s->call)
                         : tenure_fail(t, -ENOMEM, "out of memory");
        if (r < 0) {
                free(s ? s->name : NULL);
                free(s);
                return r;
        }
        s->tenure = t;
        s->call->switching = s;
        s->next = !to;
        switchover_key(lock, &s->key);
        gethostname(host, sizeof(host) - 1);
        snprintf(s->request.to, sizeof(s->request.to), "%s", to ? to : "");
        snprintf(s->request.by, sizeof(s->request.by), "%s", host);
        s->request.within_ms = within_ms;
        s->until = boot_add(boot_now(), within_ms * NSEC_PER_MSEC);
        s->hook.what = "switchover";
        loop_hook_start(&s->hook, t->loop, LOOP_ACT, run);
        switching_soon(s);
        r = buf_error(&s->key) < 0 ? tenure_fail(t, -ENOMEM, "out of memory")
                                   : call_hold(s->call, ret);
        if (r < 0)
                tenure_call_free(s->call);
        return r;
}

const struct tenure_switched *tenure_call_switched(const struct tenure_call *c)
{
        return c->switching && (c->result == 0 || c->result == -EALREADY)
                       ? &c->switching->switched
                       : NULL;
}
