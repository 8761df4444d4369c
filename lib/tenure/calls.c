#include "tenure/calls.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/utf8.h"

#define PROBE_AFTER (500 * NSEC_PER_MSEC) /* without an answer */
#define BACKOFF_MIN (20 * NSEC_PER_MSEC)
#define BACKOFF_MAX (500 * NSEC_PER_MSEC)

void calls_trouble(struct calls *k, size_t i, const char *why)
{
        utf8_print(k->trouble, sizeof(k->trouble), "the core at %s: %s",
                   calls_endpoint_name(k, i), why);
}

void calls_run_again(struct calls *k)
{
        k->again = true;
        if (k->hook.loop)
                loop_hook_again(&k->hook);
}

void calls_soon(struct tenure *t)
{
        calls_run_again(t->calls);
        tenure_wake(t);
}

struct tenure *call_tenure(const struct tenure_call *c)
{
        return c->calls->tenure;
}

int call_read_nothing(struct tenure_call *c, const void *answer)
{
        (void) c;
        (void) answer;
        return 0;
}

/* ---- the end of a call ---- */

void call_says(struct tenure_call *c, const char *fmt, ...)
{
        va_list ap;

        free(c->says);
        va_start(ap, fmt);
        if (vasprintf(&c->says, fmt, ap) < 0)
                c->says = NULL;
        va_end(ap);
}

static void leave_list(struct tenure_call *c)
{
        struct calls *k = c->calls;

        if (!c->list)
                return;
        TAILQ_REMOVE(c->list, c, entry);
        if (c->list == &k->sent) {
                k->n_sent--;
                k->sent_bytes -= buf_len(&c->request);
        }
        c->list = NULL;
}

static void on_taken(struct queued *q)
{
        q->event.call->event = NULL;
}

static void forget_found(struct tenure_call *c)
{
        for (size_t i = 0; i < c->n_found; i++)
                free(c->found[i].kvs);
        free(c->found);
        c->found = NULL;
        c->n_found = 0;
}

static void finish(struct tenure_call *c, int result)
{
        struct queued *e = c->event;

        leave_list(c);
        if (c->rpc)
                rpc_call_cancel(c->rpc);
        buf_fini(&c->request);
        c->answer = pb_free(c->answer);
        c->result = result;
        if (result < 0 && result != -ECANCELED)
                forget_found(c);
        if (c->done)
                return c->done(c, c->arg);
        if (c->unowned) {
                tenure_call_free(c);
                return;
        }
        if (c->waits) {
                free(e);
                c->event = NULL;
                return;
        }
        e->event.call = c;
        e->event.error = result;
        e->event.reason = tenure_call_error(c);
        e->event.revision = c->revision;
        e->event.lease = c->lease;
        e->left = on_taken;
        queue_event(c->calls->tenure, e);
}

/* ---- sending a call again ---- */

static void wait_in_line(struct tenure_call *c)
{
        struct calls *k = c->calls;
        struct tenure_call *before = TAILQ_FIRST(&k->waiting);

        leave_list(c);
        c->answer = pb_free(c->answer);
        c->unread = 0;
        /* Calls that are sent again are few, and were begun first. */
        while (before && before->number < c->number)
                before = TAILQ_NEXT(before, entry);
        if (before)
                TAILQ_INSERT_BEFORE(before, c, entry);
        else
                TAILQ_INSERT_TAIL(&k->waiting, c, entry);
        c->list = &k->waiting;
        calls_run_again(k);
}

static void back_off(struct calls *k)
{
        struct boot_time now = calls_now(k);

        if (boot_before(now, k->retry_at)) /* other calls were refused together with this one */
                return;
        k->retry_at = boot_add(now, k->backoff);
        k->backoff = min_of(2 * k->backoff, BACKOFF_MAX);
}

/* The call was sent to the core, and its outcome will not be known. */
static void in_doubt(struct tenure_call *c, const char *why)
{
        call_says(c,
                  "It may have happened: it was sent to the core at %s, which has not "
                  "confirmed it (%s)",
                  calls_endpoint_name(c->calls, c->endpoint), why);
        finish(c, -EREMOTEIO);
}

static void too_late(struct tenure_call *c)
{
        struct calls *k = c->calls;

        call_says(c, "No answer came within %d s; last, %s",
                  (int) (CALLS_PATIENCE / NSEC_PER_SEC),
                  *k->trouble ? k->trouble : "no endpoint was reached");
        finish(c, -ETIMEDOUT);
}

/* ---- an answer ---- */

static void answered(struct calls *k)
{
        k->progress = calls_now(k);
        k->backoff = BACKOFF_MIN;
        k->avoid_until = (struct boot_time){0};
}

static const Pb__ResponseHeader *header_of(const struct tenure_call *c)
{
        const ProtobufCFieldDescriptor *f =
                protobuf_c_message_descriptor_get_field(c->kind->type, 1);

        return *(Pb__ResponseHeader *const *) (const void *) ((const char *) c->answer +
                                                              f->offset);
}

static void take_answer(struct tenure_call *c)
{
        struct calls *k = c->calls;
        const Pb__ResponseHeader *h = c->answer ? header_of(c) : NULL;
        int r = c->unread;

        if (r == 0 && !member_header_is_sane(h))
                r = -EBADMSG;
        if (r == 0 && !member_answered(client_member(k->tenure->client), c->endpoint, h)) {
                calls_trouble(k, c->endpoint, "it is of another cluster");
                if (c->changes)
                        return in_doubt(c, "it is of another cluster");
                return wait_in_line(c);
        }
        answered(k);
        if (r == 0) {
                c->revision = h->revision;
                watches_heard(k->tenure, h->revision);
                r = c->kind->read(c, c->answer);
        }
        if (r == 0 || r == -ECANCELED || r == -ESTALE)
                watches_answered(c);
        if (r == -ENOMEM && !c->changes)
                call_says(c, "Out of memory for the answer");
        else if (r == -ENOMEM)
                return in_doubt(c, "out of memory for the answer");
        else if ((r == -EBADMSG || r == -E2BIG) && !c->says && c->changes)
                return in_doubt(c, "malformed response");
        else if ((r == -EBADMSG || r == -E2BIG) && !c->says)
                call_says(c, "Malformed response of the core at %s",
                          calls_endpoint_name(k, c->endpoint));
        finish(c, r);
}

static void fail(struct tenure_call *c, enum rpc_code code, const char *message)
{
        int r = code_errno(code, message);

        answered(c->calls);
        if (r == -EREMOTEIO && c->changes)
                return in_doubt(c, message);
        call_says(c, "The core at %s refuses: %s", calls_endpoint_name(c->calls, c->endpoint),
                  *message ? message : rpc_code_text(code));
        finish(c, r == -EREMOTEIO ? -EIO : r);
}

/* ---- callbacks of the connection ---- */

static void on_message(struct rpc_call *rpc, struct view bytes)
{
        struct tenure_call *c = rpc->userdata;

        c->answer = pb_free(c->answer);
        c->unread = pb_unpack(c->kind->type, bytes, &c->answer);
}

static void on_status(struct rpc_call *rpc, enum rpc_code code, const char *message)
{
        struct tenure_call *c = rpc->userdata;
        struct calls *k = c->calls;
        struct tenure *t = k->tenure;
        bool up = client_rpc(t->client, c->endpoint) == rpc->conn;
        bool untouched = code_is_untouched(code, message), sent = rpc_call_was_sent(rpc);

        rpc->userdata = NULL; /* the call may be sent again, or be gone, when this returns */
        c->rpc = NULL;
        if (code == RPC_OK)
                return take_answer(c);
        if (t->user && refusal_wants_login(code, message)) {
                calls_trouble(k, c->endpoint, message);
                calls_log_in_later(k, c->endpoint);
                return wait_in_line(c);
        }
        if (!untouched && code != RPC_UNAVAILABLE)
                return fail(c, code, message);
        calls_trouble(k, c->endpoint, *message ? message : "it gives no reason");
        if (up) {
                calls_avoid(t, c->endpoint);
                back_off(k);
        }
        if (c->changes && sent && !untouched)
                return in_doubt(c, message);
        wait_in_line(c);
}

static void on_close(struct rpc_call *rpc)
{
        struct tenure_call *c = rpc->userdata;

        if (c)
                c->rpc = NULL;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

/* ---- callbacks of endpoints ---- */

static void on_up(size_t i, void *userdata)
{
        struct calls *k = userdata;

        k->ends[i].known = k->ends[i].logged_out = false;
        calls_run_again(k);
}

static void refuse_all(struct calls *k, size_t i, const char *why)
{
        struct tenure_call *c;
        struct call_list waiting = TAILQ_HEAD_INITIALIZER(waiting);

        /* The end of a call may begin other calls. */
        TAILQ_CONCAT(&waiting, &k->waiting, entry);
        TAILQ_FOREACH (c, &waiting, entry)
                c->list = &waiting;
        while ((c = TAILQ_FIRST(&waiting))) {
                call_says(c, "The core at %s does not let the user %s in: %s",
                          calls_endpoint_name(k, i), k->tenure->user, why);
                finish(c, -EACCES);
        }
}

static void on_down(size_t i, bool refused, const char *why, void *userdata)
{
        struct calls *k = userdata;
        char text[512];

        k->ends[i].known = k->ends[i].logged_out = false;
        calls_trouble(k, i, why);
        if (refused) {
                utf8_print(text, sizeof(text), "the core at %s does not let the user %s in: %s",
                           calls_endpoint_name(k, i), k->tenure->user, why);
                watches_end(k->tenure, -EACCES, text);
                caches_end(k->tenure, -EACCES, text);
                refuse_all(k, i, why);
        }
        calls_run_again(k);
}

/* Changes wait for the endpoint, which may only be slow. */
static void on_silent(size_t i, void *userdata)
{
        struct calls *k = userdata;
        struct tenure_call *c, *next;

        calls_trouble(k, i, "it is silent");
        TAILQ_FOREACH_SAFE (c, &k->sent, entry, next)
                if (c->endpoint == i && !c->changes) {
                        rpc_call_cancel(c->rpc);
                        wait_in_line(c);
                }
        if (k->ends[i].asking)
                rpc_call_cancel(k->ends[i].asking);
        watches_silent(k->tenure, i);
        caches_silent(k->tenure, i);
        calls_run_again(k);
}

static const struct client_ops client_ops = {.up = on_up, .down = on_down, .silent = on_silent};

/* ---- sending ---- */

static bool has_room(const struct calls *k, const struct tenure_call *c)
{
        return k->n_sent == 0 || (k->n_sent < CALLS_SENT_MAX &&
                                  k->sent_bytes + buf_len(&c->request) <= CALLS_SENT_BYTES);
}

/* False: the connection accepts no more calls. */
static bool send_call(struct calls *k, struct tenure_call *c, size_t i, struct boot_time now)
{
        struct rpc_conn *conn = client_rpc(k->tenure->client, i);
        int r;

        if (c->named && !k->ends[i].extended) {
                call_says(c, "Leases have no names in the core at %s, which is an etcd",
                          calls_endpoint_name(k, i));
                finish(c, -EOPNOTSUPP);
                return true;
        }
        /* Without a leader, a change waits at its replica, and is refused only when it is in
         * doubt already. */
        r = rpc_call_new(conn, c->kind->path, !c->local && !c->changes, &handler, c, &c->rpc);
        if (r == -EPIPE) {
                calls_trouble(k, i, "it accepts no more calls on this connection");
                calls_avoid(k->tenure, i);
                back_off(k);
                return false;
        }
        if (r == 0)
                r = rpc_call_send(c->rpc, buf_head(&c->request), buf_len(&c->request));
        if (r < 0) {
                call_says(c, r == -EMSGSIZE ? "The request is too large"
                                            : "Out of memory for the request");
                finish(c, r);
                return true;
        }
        rpc_call_end(c->rpc);
        leave_list(c);
        c->endpoint = i;
        c->sent_at = now;
        c->list = &k->sent;
        TAILQ_INSERT_TAIL(&k->sent, c, entry);
        k->n_sent++;
        k->sent_bytes += buf_len(&c->request);
        return true;
}

static void send_some(struct calls *k, struct boot_time now)
{
        struct tenure_call *c;
        bool any = false;
        size_t i;

        if (TAILQ_EMPTY(&k->waiting) || boot_before(now, k->retry_at) ||
            !calls_endpoint(k->tenure, now, &i))
                return;
        if (k->n_sent == 0)
                k->probe_at = boot_add(now, PROBE_AFTER);
        while ((c = TAILQ_FIRST(&k->waiting)) && has_room(k, c) && send_call(k, c, i, now))
                any = true;
        if (any)
                client_kick(k->tenure->client, i);
}

/* ---- timeouts ---- */

/* When to give the call up. */
static struct boot_time end_of(const struct calls *k, const struct tenure_call *c)
{
        struct boot_time from = c->list == &k->sent ? c->sent_at : c->since;

        return boot_min(boot_add(boot_max(from, k->progress), CALLS_PATIENCE),
                        boot_add(c->since, CALLS_LIMIT));
}

static void give_up(struct calls *k, struct boot_time now)
{
        struct tenure_call *c;

        while ((c = TAILQ_FIRST(&k->waiting)) && !boot_before(now, end_of(k, c)))
                too_late(c);
        while ((c = TAILQ_FIRST(&k->sent)) && !boot_before(now, end_of(k, c)))
                if (c->changes)
                        in_doubt(c, "it does not answer in time");
                else
                        too_late(c);
}

/* Probes the endpoint of the oldest call, because a frozen replica keeps its connections. */
static void probe(struct calls *k, struct boot_time now)
{
        struct tenure_call *c = TAILQ_FIRST(&k->sent);

        if (!c || boot_before(now, k->probe_at))
                return;
        if (boot_diff(now, boot_max(c->sent_at, k->progress)) >= PROBE_AFTER &&
            client_rpc(k->tenure->client, c->endpoint))
                client_probe(k->tenure->client, c->endpoint, CALLS_PROBE_WITHIN);
        k->probe_at = boot_add(now, PROBE_AFTER);
}

static struct boot_time next_of(const struct calls *k)
{
        const struct tenure_call *waits = TAILQ_FIRST(&k->waiting);
        const struct tenure_call *sent = TAILQ_FIRST(&k->sent);
        struct boot_time next = k->look_at;

        if (waits)
                next = boot_min(next, end_of(k, waits));
        if (waits && boot_before(calls_now(k), k->retry_at))
                next = boot_min(next, k->retry_at);
        if (sent)
                next = boot_min(next, boot_min(end_of(k, sent), k->probe_at));
        return next;
}

static struct boot_time calls_run(struct loop_hook *h, struct boot_time now)
{
        struct calls *k = container_of(h, struct calls, hook);
        struct tenure *t = k->tenure;
        struct boot_time next;

        member_at(client_member(t->client), now);
        if (k->worlds != member_worlds(client_member(t->client))) {
                k->worlds = member_worlds(client_member(t->client));
                watches_end(t, -ENODATA,
                            "the core is another one, which does not have this history");
                caches_end(t, 0, "the core is another one");
        }
        k->look_at = BOOT_TIME_NEVER;
        k->again = false;
        give_up(k, now);
        calls_log_in(k, now);
        /* A program that begins a watch and then a change expects the watch to report the
         * change. */
        next = watches_run(t, now);
        send_some(k, now);
        probe(k, now);
        next = boot_min(next, caches_run(t, now));
        if (k->again)
                return now;
        return boot_min(next, next_of(k));
}

/* ---- ---- */

int call_new(struct tenure *t, const struct call_kind *kind, struct tenure_call **ret)
{
        struct tenure_call *c = calloc(1, sizeof(*c));

        if (!c)
                return tenure_fail(t, -ENOMEM, "out of memory");
        c->calls = t->calls;
        c->kind = kind;
        c->result = -EINPROGRESS;
        LIST_INSERT_HEAD(&t->calls->all, c, of_all);
        *ret = c;
        return 0;
}

int call_hold(struct tenure_call *c, struct tenure_call **ret)
{
        c->unowned = !ret;
        if (ret)
                c->event = queue_try(TENURE_REPLY, 0);
        if (ret && !c->event)
                return tenure_fail(c->calls->tenure, -ENOMEM, "out of memory");
        c->since = boot_now();
        if (ret)
                *ret = c;
        return 0;
}

void call_end(struct tenure_call *c, int result)
{
        finish(c, result);
}

int call_begin(struct tenure_call *c, struct tenure_call **ret)
{
        struct calls *k = c->calls;
        struct tenure *t = k->tenure;

        c->unowned = !ret;
        if (ret && !c->done)
                c->event = queue_try(TENURE_REPLY, 0);
        if (buf_error(&c->request) < 0 || (ret && !c->done && !c->event)) {
                tenure_call_free(c);
                return tenure_fail(t, -ENOMEM, "out of memory");
        }
        c->number = ++k->number;
        c->since = boot_now();
        c->list = &k->waiting;
        TAILQ_INSERT_TAIL(&k->waiting, c, entry);
        calls_soon(t);
        if (ret)
                *ret = c;
        return 0;
}

static int new_asking(struct tenure *t, const struct call_kind *kind, const ProtobufCMessage *q,
                      bool changes, struct tenure_call **ret)
{
        int r = call_new(t, kind, ret);

        if (r < 0)
                return r;
        pb_append(&(*ret)->request, q);
        (*ret)->changes = changes;
        return 0;
}

int call_ask(struct tenure *t, const struct call_kind *kind, const ProtobufCMessage *q,
             bool changes, struct tenure_call **ret)
{
        struct tenure_call *c;
        int r = new_asking(t, kind, q, changes, &c);

        return r < 0 ? r : call_begin(c, ret);
}

static int begin_for(struct tenure_call *c, call_done_fn done, void *arg,
                     struct tenure_call **ret)
{
        c->done = done;
        c->arg = arg;
        return call_begin(c, ret);
}

int call_ask_for(struct tenure *t, const struct call_kind *kind, const ProtobufCMessage *q,
                 bool changes, call_done_fn done, void *arg, struct tenure_call **ret)
{
        struct tenure_call *c;
        int r;

        *ret = NULL;
        r = new_asking(t, kind, q, changes, &c);
        return r < 0 ? r : begin_for(c, done, arg, ret);
}

int call_ask_packed(struct tenure *t, const struct call_kind *kind, const struct buf *request,
                    call_done_fn done, void *arg, struct tenure_call **ret)
{
        struct tenure_call *c;
        int r = buf_error(request);

        *ret = NULL;
        if (r == 0)
                r = call_new(t, kind, &c);
        if (r < 0)
                return r;
        buf_add(&c->request, buf_head(request), buf_len(request));
        return begin_for(c, done, arg, ret);
}

struct tenure_call *tenure_call_free(struct tenure_call *c)
{
        struct queued *e;

        if (!c)
                return NULL;
        e = c->event;
        leave_list(c);
        if (c->rpc) {
                rpc_call_cancel(c->rpc);
                client_kick(c->calls->tenure->client, c->endpoint);
                calls_soon(c->calls->tenure); /* another one may be sent now */
        }
        if (e && c->result == -EINPROGRESS)
                free(e);
        else if (e)
                queue_take_back(c->calls->tenure, e);
        LIST_REMOVE(c, of_all);
        pb_free(c->answer);
        buf_fini(&c->request);
        forget_found(c);
        switching_free(c->switching);
        free(c->says);
        free(c->name);
        free(c);
        return NULL;
}

int calls_new(struct tenure *t)
{
        struct calls *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        k->tenure = t;
        TAILQ_INIT(&k->waiting);
        TAILQ_INIT(&k->sent);
        LIST_INIT(&k->all);
        k->backoff = BACKOFF_MIN;
        k->avoid = SIZE_MAX;
        t->calls = k;
        return 0;
}

void calls_start(struct tenure *t)
{
        struct calls *k = t->calls;
        struct tenure_call *c;

        client_set_ops(t->client, &client_ops, k);
        k->hook.what = "calls";
        loop_hook_start(&k->hook, t->loop, LOOP_ACT, calls_run);
        TAILQ_FOREACH (c, &k->waiting, entry) /* calls that were begun before this one */
                c->since = boot_now();
}

void calls_stop(struct tenure *t)
{
        struct calls *k = t->calls;
        struct tenure_call *c;

        if (!k || !t->started)
                return;
        client_set_ops(t->client, NULL, NULL);
        loop_hook_stop(&k->hook);
        for (size_t i = 0; i < MEMBER_ENDPOINTS_MAX; i++)
                if (k->ends[i].asking)
                        rpc_call_cancel(k->ends[i].asking);
        TAILQ_FOREACH (c, &k->sent, entry)
                if (c->rpc)
                        rpc_call_cancel(c->rpc);
}

void calls_free(struct tenure *t)
{
        struct tenure_call *c;

        if (!t->calls)
                return;
        while ((c = LIST_FIRST(&t->calls->all)))
                tenure_call_free(c);
        free(t->calls);
        t->calls = NULL;
}
