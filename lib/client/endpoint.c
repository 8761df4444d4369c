#include "client/endpoint.h"

#include <stdio.h>

#include "base/log.h"
#include "base/utf8.h"
#include "wire/pb.h"

#define OUTPUT_CHUNK (256 * 1024)
#define SPEAK_TIMEOUT (5 * NSEC_PER_SEC)
#define LOGIN_TIMEOUT (5 * NSEC_PER_SEC) /* checking a password is slow on purpose */
#define TELL_EVERY (60 * NSEC_PER_SEC)

struct endpoint {
        struct loop *loop;
        struct url url;
        char name[320];
        struct tls *tls;
        const struct endpoint_login *login; /* NULL: no login */
        const struct endpoint_ops *ops;
        void *userdata;
        struct reach reach;
        struct loop_timer timer; /* fires when the reach wants it */
        struct dial dial;
        struct stream *stream; /* NULL until it is connected */
        struct rpc_conn *rpc;
        /* The connection before, which takes no new calls: those that it has go on, beside its
         * successor. NULL: none. */
        struct stream *leaving;
        struct rpc_conn *leaving_rpc;
        bool closing;      /* calls that end now do so because the connection ends */
        char refused[256]; /* why the last login was refused; "": it was not */
        bool denied; /* on this connection or the last one, the user was unknown or the password
                        wrong */
        struct boot_time tell_at;
};

/* Sets the timer; called after anything has been reported to the reach. */
static void arm(struct endpoint *e)
{
        if (e->reach.when.ns == BOOT_TIME_NEVER.ns)
                loop_timer_disarm(&e->timer);
        else if (!loop_timer_armed(&e->timer) || e->timer.when.ns != e->reach.when.ns)
                loop_timer_arm(&e->timer, e->reach.when);
}

static bool is_up(const struct endpoint *e)
{
        return e->reach.state == REACH_UP;
}

/* Passes the time on; called before each report. */
static void tell_time(struct endpoint *e)
{
        if (e->ops->at)
                e->ops->at(loop_now(e->loop), e->userdata);
}

static void close_connection(struct endpoint *e)
{
        e->closing = true;
        dial_stop(&e->dial);
        e->rpc = rpc_conn_free(e->rpc);
        e->stream = stream_free(e->stream);
        e->closing = false;
}

/* Ends the calls on it. */
static void close_leaving(struct endpoint *e)
{
        struct rpc_conn *rpc = e->leaving_rpc;
        struct stream *s = e->leaving;

        e->leaving_rpc = NULL;
        e->leaving = NULL;
        rpc_conn_free(rpc);
        stream_free(s);
}

static void fail(struct endpoint *e, const char *why)
{
        reach_failed(&e->reach, loop_now(e->loop), why);
        arm(e);
}

/* For use inside a handler, where the connection must stay. */
static void fail_soon(struct endpoint *e, const char *why)
{
        reach_fail_soon(&e->reach, loop_now(e->loop), why);
        arm(e);
}

static void set_up(struct endpoint *e)
{
        e->refused[0] = '\0';
        reach_up(&e->reach, loop_now(e->loop));
        arm(e);
        log_debug("Connected to the core at %s.", e->name);
        tell_time(e);
        e->ops->up(e, e->userdata);
}

bool endpoint_is_refused(const struct endpoint *e)
{
        return e->denied;
}

/* ---- to log in ---- */

static void login_message(struct rpc_call *call, struct view m)
{
        struct endpoint *e = call->userdata;
        Pb__AuthenticateResponse *p = NULL;
        int r = pb_unpack(&pb__authenticate_response__descriptor, m, &p);

        if (r == 0)
                r = rpc_conn_set_token(e->rpc, p->token);
        if (r < 0)
                fail_soon(e, r == -ENOMEM ? "out of memory"
                                          : "the answer to the login cannot be parsed");
        pb_free(p);
}

/* Logs a refusal when it is new, and then at intervals, since retries never end. */
static void tell_refused(struct endpoint *e, const char *message)
{
        struct boot_time now = loop_now(e->loop);

        if (strncmp(e->refused, message, sizeof(e->refused) - 1) == 0 &&
            boot_before(now, e->tell_at))
                return;
        utf8_print(e->refused, sizeof(e->refused), "%s", message);
        e->tell_at = boot_add(now, TELL_EVERY);
        log_warning("The core at %s refuses the login of user %s: %s.", e->name, e->login->user,
                    message);
}

static void login_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct endpoint *e = call->userdata;

        if (*e->reach.failing || e->closing)
                return;
        /* A core without authentication accepts us as well. */
        if (code == RPC_OK || strstr(message, "authentication is not enabled"))
                return set_up(e);
        tell_refused(e, message);
        e->denied = code == RPC_INVALID_ARGUMENT || code == RPC_PERMISSION_DENIED ||
                    code == RPC_UNAUTHENTICATED || code == RPC_NOT_FOUND;
        fail_soon(e, message);
}

static void login_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler login_handler = {
        .on_message = login_message, .on_status = login_status, .on_close = login_close};

static void log_in(struct endpoint *e)
{
        Pb__AuthenticateRequest q = PB__AUTHENTICATE_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;

        q.name = (char *) (uintptr_t) e->login->user;
        q.password = (char *) (uintptr_t) e->login->password;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 ||
            rpc_call_new(e->rpc, "/etcdserverpb.Auth/Authenticate", false, &login_handler, e,
                         &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0)
                return fail_soon(e, "out of memory");
        rpc_call_end(call);
        explicit_bzero(b.data, buf_len(&b));
        reach_limit(&e->reach, loop_now(e->loop), LOGIN_TIMEOUT);
        arm(e);
        stream_kick(e->stream);
}

void endpoint_log_in_again(struct endpoint *e)
{
        if (is_up(e) && e->login)
                fail_soon(e, "its login has expired");
}

/* ---- */

/* Waits until the new connection has proved itself: a proxy with nothing behind it may accept a
 * connection and close it at once. Until then the former connection keeps its calls. */
static void wait_for_word(struct endpoint *e)
{
        reach_limit(&e->reach, loop_now(e->loop), SPEAK_TIMEOUT);
        arm(e);
        stream_kick(e->stream);
}

static void on_connected(struct stream *s, void *userdata)
{
        struct endpoint *e = userdata;

        e->stream = s;
        e->denied = false;
        if (rpc_conn_new_client(&e->rpc, e->name, e->url.tls) < 0)
                return fail(e, "out of memory");
        if (e->login)
                log_in(e);
        else if (e->leaving)
                wait_for_word(e);
        else
                set_up(e);
}

/* The other side has announced the end of the connection, which proxies do by age or number of
 * calls. Keeps one such connection: of an older one, only calls without an end are left, and
 * they begin again. */
static void leave(struct endpoint *e)
{
        log_debug("The connection to the core at %s takes no more calls (GOAWAY); a new one "
                  "is made beside it.",
                  e->name);
        close_leaving(e);
        e->leaving = e->stream;
        e->leaving_rpc = e->rpc;
        e->stream = NULL;
        e->rpc = NULL;
        reach_leaves(&e->reach, loop_now(e->loop));
        arm(e);
}

/* The connection that was left has ended. Without a successor, its calls were the last. */
static void has_left(struct endpoint *e, const char *why)
{
        log_debug("The former connection to the core at %s has ended: %s.", e->name, why);
        close_leaving(e);
        if (!is_up(e))
                e->ops->down(e, why, e->userdata);
}

static void on_leaving_data(struct endpoint *e, struct view data)
{
        if (rpc_conn_input(e->leaving_rpc, data.p, data.len) < 0)
                has_left(e, "it does not speak gRPC");
        else
                stream_kick(e->leaving);
}

static void on_data(struct stream *s, struct view data)
{
        struct endpoint *e = stream_userdata(s);

        tell_time(e);
        if (s == e->leaving)
                return on_leaving_data(e, data);
        if (rpc_conn_input(e->rpc, data.p, data.len) < 0)
                return fail(e, "it does not speak gRPC");
        reach_heard(&e->reach, loop_now(e->loop));
        arm(e);
        stream_kick(s);
        if (!is_up(e) && !e->login && rpc_conn_established(e->rpc) && !*e->reach.failing)
                set_up(e);
        if (is_up(e) && !*e->reach.failing && rpc_conn_is_leaving(e->rpc))
                leave(e);
}

static void on_fill(struct stream *s, struct buf *tx)
{
        struct endpoint *e = stream_userdata(s);

        tell_time(e);
        if (s == e->leaving) {
                if (rpc_conn_output(e->leaving_rpc, tx, OUTPUT_CHUNK) < 0)
                        has_left(e, "its last call has ended");
                return;
        }
        if (rpc_conn_output(e->rpc, tx, OUTPUT_CHUNK) < 0)
                fail(e, "it closed the connection in order (GOAWAY)");
}

static void on_close(struct stream *s, const char *why)
{
        struct endpoint *e = stream_userdata(s);

        if (s != e->leaving)
                return fail(e, why);
        tell_time(e);
        has_left(e, why);
}

static const struct stream_ops stream_ops = {
        .on_data = on_data, .on_fill = on_fill, .on_close = on_close};

static void on_failed(const char *why, void *userdata)
{
        fail(userdata, why);
}

static const struct dial_ops dial_ops = {.connected = on_connected, .failed = on_failed};

/* ---- what the reach wants ---- */

static struct endpoint *endpoint_of(const struct reach *r)
{
        return container_of(r, struct endpoint, reach);
}

static void on_connect(struct reach *r)
{
        struct endpoint *e = endpoint_of(r);

        dial_start(&e->dial, &e->url, e->tls);
}

static bool is_greeting(const struct reach *r)
{
        return dial_is_greeting(&endpoint_of(r)->dial);
}

static void on_close_it(struct reach *r)
{
        tell_time(endpoint_of(r));
        close_connection(endpoint_of(r));
}

static int on_ping(struct reach *r)
{
        struct endpoint *e = endpoint_of(r);
        int n = rpc_conn_ping(e->rpc);

        if (n == 0)
                stream_kick(e->stream);
        return n;
}

static uint64_t pongs(const struct reach *r)
{
        return rpc_conn_pongs(endpoint_of(r)->rpc);
}

static void on_down(struct reach *r, bool was_up, const char *why)
{
        struct endpoint *e = endpoint_of(r);

        if (was_up)
                log_debug("Lost the core at %s: %s.", e->name, why);
        else
                log_debug("Cannot reach the core at %s: %s.", e->name, why);
        if (was_up)
                close_leaving(e);
        if (e->leaving) /* its calls continue */
                return reach_want(r, loop_now(e->loop));
        e->ops->down(e, why, e->userdata);
}

static void on_silent(struct reach *r)
{
        struct endpoint *e = endpoint_of(r);

        tell_time(e);
        e->ops->silent(e, e->userdata);
}

static const struct reach_ops reach_ops = {.connect = on_connect,
                                           .is_greeting = is_greeting,
                                           .close = on_close_it,
                                           .ping = on_ping,
                                           .pongs = pongs,
                                           .down = on_down,
                                           .silent = on_silent};

static void on_timer(struct loop_timer *t)
{
        struct endpoint *e = container_of(t, struct endpoint, timer);

        reach_run(&e->reach, loop_now(e->loop));
        arm(e);
}

/* ---- ---- */

int endpoint_new(struct endpoint **ret, struct loop *l, struct resolver *rv, const char *url,
                 struct tls *tls, const struct endpoint_login *login,
                 const struct endpoint_ops *ops, void *userdata)
{
        cleanup_(endpoint_freep) struct endpoint *e = calloc(1, sizeof(*e));
        int r;

        if (!e)
                return -ENOMEM;
        loop_timer_init(&e->timer, l, on_timer);
        r = url_parse(url, &e->url);
        if (r < 0)
                return r;
        url_format(&e->url, e->name);
        e->loop = l;
        dial_init(&e->dial, l, rv, &dial_ops, &stream_ops, e);
        e->tls = tls;
        e->login = login;
        e->ops = ops;
        e->userdata = userdata;
        reach_init(&e->reach, &reach_ops);
        *ret = take_ptr(e);
        return 0;
}

struct endpoint *endpoint_free(struct endpoint *e)
{
        if (!e)
                return NULL;
        loop_timer_disarm(&e->timer);
        e->reach.state = REACH_DOWN; /* calls that end now must not request a new connection */
        close_connection(e);
        close_leaving(e);
        free(e);
        return NULL;
}

void endpoint_want(struct endpoint *e)
{
        reach_want(&e->reach, loop_now(e->loop));
        arm(e);
}

void endpoint_hurry(struct endpoint *e, nsec_t pace)
{
        reach_hurry(&e->reach, loop_now(e->loop), pace);
        arm(e);
}

struct rpc_conn *endpoint_rpc(const struct endpoint *e)
{
        return is_up(e) ? e->rpc : NULL;
}

void endpoint_kick(struct endpoint *e)
{
        if (e->stream)
                stream_kick(e->stream);
        if (e->leaving)
                stream_kick(e->leaving);
}

void endpoint_flush(struct endpoint *e)
{
        if (e->leaving)
                stream_flush(e->leaving);
        if (is_up(e) && e->stream)
                stream_flush(e->stream);
}

void endpoint_suspect(struct endpoint *e)
{
        reach_suspect(&e->reach, loop_now(e->loop));
        arm(e);
}

void endpoint_probe(struct endpoint *e, nsec_t within)
{
        reach_probe(&e->reach, loop_now(e->loop), within);
        arm(e);
}

bool endpoint_is_silent(const struct endpoint *e)
{
        return e->reach.silent;
}

void endpoint_again(struct endpoint *e)
{
        reach_again(&e->reach, loop_now(e->loop));
        arm(e);
}

void endpoint_at(const struct endpoint *e, char *out, size_t size)
{
        const struct stream *s = is_up(e) ? e->stream : e->leaving;

        snprintf(out, size, "%s", s ? stream_peer(s) : "");
}

void endpoint_source(const struct endpoint *e, char *out, size_t size)
{
        out[0] = '\0';
        if (is_up(e))
                stream_source(e->stream, out, size);
}

const char *endpoint_name(const struct endpoint *e)
{
        return e->name;
}
