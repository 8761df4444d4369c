/* The request for a switchover: its lease, its key, and its outcome. */
#include "tenure/switchover_internal.h"

#define LEASE_TTL (5 * NSEC_PER_SEC)
/* Added to the time of the holder: an accepted request ends when that time is over, or with its
 * lease. */
#define SLACK (60 * NSEC_PER_SEC)
/* How long to wait for the new holder to report that it has the lock; etcdctl never does. */
#define TAKE_WITHIN (2 * NSEC_PER_SEC)

static const struct call_kind kind_grant = {"/etcdserverpb.Lease/LeaseGrant",
                                            &pb__lease_grant_response__descriptor,
                                            call_read_nothing};

/* ---- the request ---- */

static void on_granted(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        int r = tenure_call_result(c);

        /* An earlier try has granted it, but the answer was lost. */
        if (r == -EEXIST) {
                s->sub = NULL;
                switching_go_to(s, SWITCH_ASK);
        } else if (switching_has_answer(s, c, &r)) {
                switching_go_to(s, SWITCH_ASK);
        }
        tenure_call_free(c);
}

void switching_grant(struct switching *s)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        if (s->lease == 0 && (tenure_draw(s->tenure, &s->lease, sizeof(s->lease)) < 0 ||
                              (s->lease &= INT64_MAX) == 0)) {
                s->lease = 0;
                return switching_again(s);
        }
        q.id = s->lease;
        q.ttl = LEASE_TTL / NSEC_PER_SEC;
        s->renew_at = boot_add(loop_now(s->tenure->loop), LEASE_TTL / 3);
        switching_ask(s, &kind_grant, &q.base, on_granted);
}

void switching_renew(struct switching *s, struct boot_time now)
{
        if (s->lease == 0 || boot_before(now, s->renew_at))
                return;
        s->renew_at = boot_add(now, LEASE_TTL / 3);
        (void) !tenure_lease_renew(s->tenure, s->lease, NULL);
}

/* Looks at the request: has the holder accepted it? */
static void see_request(struct switching *s, const struct tenure_kv *kv)
{
        struct switchover now;

        if (s->accepted_in || kv->lease != s->lease ||
            switchover_read(&now, kv->value, kv->value_len) < 0 || !*now.holder)
                return;
        s->accepted = true;
        s->accepted_in = kv->mod_revision;
        s->until = boot_add(calls_now(s->tenure->calls),
                            s->request.within_ms * NSEC_PER_MSEC + SLACK);
}

static void on_watched(const struct tenure_event *e, void *arg)
{
        struct switching *s = arg;

        switching_soon(s);
        if (e->type == TENURE_WATCH_ENDED) {
                s->blind = true;
                switching_again(s);
        } else if (e->type == TENURE_PUT) {
                if (switching_is_key(e->kv, buf_head(&s->key), buf_len(&s->key)))
                        see_request(s, e->kv);
        } else if (switching_is_holder(s, e->kv)) {
                if (!s->holder_gone) {
                        s->gone_at = calls_now(s->tenure->calls);
                        s->holder_gone = e->revision;
                }
        } else if (switching_is_target(s, e->kv)) {
                if (!s->target_gone)
                        s->target_gone = e->revision;
        } else if (switching_is_key(e->kv, buf_head(&s->key), buf_len(&s->key))) {
                s->request_gone = true;
                s->had_at = calls_now(s->tenure->calls);
        }
}

static int follow(struct switching *s, const struct buf *key, const struct buf *end,
                  struct tenure_watch **ret)
{
        struct tenure_watch_options o = {.key = buf_head(key),
                                         .key_len = buf_len(key),
                                         .end = end ? buf_head(end) : NULL,
                                         .end_len = end ? buf_len(end) : 0,
                                         .revision = s->seen + 1};
        int r = tenure_watch(s->tenure, &o, ret);

        if (r == 0)
                watch_into(*ret, on_watched, s);
        return r;
}

/* Watches the request and the keys of the lock, from the revision that was seen last. They are
 * two watches, because the program may have no permission for the keys between them. While this
 * fails, the switchover is blind. */
static void watch(struct switching *s)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0};

        s->blind = true;
        s->watch = tenure_watch_free(s->watch);
        s->line = tenure_watch_free(s->line);
        switchover_range(s->name, &from, &to);
        if (buf_error(&from) < 0 || buf_error(&to) < 0 ||
            follow(s, &s->key, NULL, &s->watch) < 0 || follow(s, &from, &to, &s->line) < 0)
                return switching_again(s);
        s->blind = false;
}

static void on_asked(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        int r;

        if (switching_has_answer(s, c, &r)) {
                if (r == 0) {
                        s->seen = s->mod = tenure_call_revision(c);
                        s->asked_at = calls_now(s->tenure->calls);
                        watch(s);
                        switching_go_to(s, SWITCH_WAIT);
                } else { /* something has changed since the last look */
                        switching_go_to(s, SWITCH_LOOK);
                }
        }
        tenure_call_free(c);
}

static struct switchover_at holder_of(const struct switching *s)
{
        return (struct switchover_at){
                .key = buf_head(&s->holder), .len = buf_len(&s->holder), .created = s->created};
}

void switching_make_request(struct switching *s)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct switchover_at holder = holder_of(s);

        switchover_ask(s->name, &s->request, &holder, s->lease, &b);
        switching_ask_packed(s, &switching_txn, &b, on_asked);
}

/* ---- outcome ---- */

static void is_gone(struct switching *s)
{
        call_says(s->call, "%s no longer waits; the lock '%s' stays with %s", s->request.to,
                  s->name, s->holder_gone ? "the next in line" : s->request.from);
        switching_end(s, -ENOENT);
}

void switching_succeed(struct switching *s)
{
        struct tenure_switched *r = &s->switched;

        r->token = s->request.created;
        r->stop_us = boot_diff(s->gone_at, s->asked_at) / NSEC_PER_USEC;
        r->pause_us = s->had_at.ns ? max_of(boot_diff(s->had_at, s->gone_at), (nsec_t) 0) /
                                             NSEC_PER_USEC
                                   : -1;
        switching_end(s, 0);
}

/* Whether the target had the lock, and has released it before we looked. Once the holder has
 * accepted, nobody is between the two, so the target has the lock when the holder's key is
 * deleted, if its own key still exists. One watch reports both keys, in order: if it has
 * reported the holder's deletion alone, the target's was no earlier. */
static bool has_had_it(const struct switching *s)
{
        return s->accepted_in && s->holder_gone > s->accepted_in &&
               (!s->target_gone || s->target_gone > s->holder_gone);
}

static void on_checked(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        const struct tenure_kv *first = tenure_call_kv(c, 0, 0);
        const struct tenure_kv *target = tenure_call_kv(c, 1, 0);
        const struct tenure_kv *request = tenure_call_kv(c, 2, 0);
        bool there = target && target->create_revision == s->request.created;
        int r;

        if (!switching_has_answer(s, c, &r))
                goto out;
        s->seen = tenure_call_revision(c);
        if (request && request->lease != s->lease)
                request = NULL;
        if (request)
                see_request(s, request);
        if (s->blind)
                watch(s);
        if (!there && !has_had_it(s)) {
                is_gone(s);
        } else if (!there || switching_is_target(s, first)) {
                if (s->gone_at.ns == 0)
                        s->gone_at = calls_now(s->tenure->calls);
                if (!request && s->had_at.ns == 0)
                        s->had_at = calls_now(s->tenure->calls);
                s->until = boot_add(calls_now(s->tenure->calls), TAKE_WITHIN);
                s->state = SWITCH_TAKES;
        } else if (!request && !s->accepted) {
                call_says(s->call,
                          "The request has ended before the holder of '%s' accepted it",
                          s->name);
                switching_end(s, -ESTALE);
        } else if (!switching_is_holder(s, first) && !switching_set_holder(s, first)) {
                switching_no_memory(s);
        } else {
                s->holder_gone = s->target_gone = 0;
                s->request_gone = false;
                s->gone_at = s->had_at = (struct boot_time){0};
                switching_go_to(s, SWITCH_WAIT);
        }
out:
        tenure_call_free(c);
}

void switching_check(struct switching *s)
{
        cleanup_(buf_fini) struct buf from = {0}, to = {0}, target = {0};
        Pb__RequestOp op[3], *ops[] = {&op[0], &op[1], &op[2]};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RangeRequest get[3];

        switchover_range(s->name, &from, &to);
        buf_printf(&target, "%s", s->request.key);
        if (buf_error(&from) < 0 || buf_error(&to) < 0 || buf_error(&target) < 0)
                return switching_again(s);
        switching_first_op(&op[0], &get[0], &from, &to, 1);
        switching_get_op(&op[1], &get[1], &target);
        switching_get_op(&op[2], &get[2], &s->key);
        q.success = ops;
        q.n_success = 3;
        switching_ask(s, &switching_txn, &q.base, on_checked);
}

void switching_wait(struct switching *s, struct boot_time now)
{
        bool in_time = boot_before(now, s->until);

        if (s->holder_gone || s->target_gone || s->request_gone || (s->blind && in_time))
                return switching_go_to(s, SWITCH_CHECK);
        if (in_time)
                return;
        if (!s->accepted)
                return switching_go_to(s, SWITCH_WITHDRAW);
        call_says(s->call,
                  "%s has accepted, but did not stop in time: it is still stopping, and %s is "
                  "next",
                  s->request.from, s->request.to);
        switching_end(s, -ETIMEDOUT);
}

static void on_withdrawn(struct tenure_call *c, void *arg)
{
        struct switching *s = arg;
        int r;

        if (switching_has_answer(s, c, &r)) {
                if (r == 0) {
                        call_says(
                                s->call,
                                "%s holds the lock '%s' and does not answer: it is frozen, or "
                                "of a version that cannot be asked; it keeps the lock",
                                s->request.from, s->name);
                        switching_end(s, -ETIMEDOUT);
                } else { /* it was accepted a moment ago, or is gone */
                        s->until = boot_add(calls_now(s->tenure->calls),
                                            s->request.within_ms * NSEC_PER_MSEC + SLACK);
                        s->accepted = true;
                        switching_go_to(s, SWITCH_CHECK);
                }
        }
        tenure_call_free(c);
}

void switching_withdraw(struct switching *s)
{
        cleanup_(buf_fini) struct buf b = {0};

        switchover_withdraw(s->name, s->mod, &b);
        switching_ask_packed(s, &switching_txn, &b, on_withdrawn);
}
