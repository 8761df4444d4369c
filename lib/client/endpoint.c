#include "client/endpoint.h"

#include <stdio.h>

#include "base/log.h"
#include "wire/pb.h"

#define OUTPUT_CHUNK (256 * 1024)
#define CONNECT_TIMEOUT NSEC_PER_SEC
/* A core to which all hosts of a site come back at once has thousands of them to greet: who
 * gives up too early comes again, for nothing, and so does everybody. */
#define GREETING_TIMEOUT (5 * NSEC_PER_SEC)
#define LOGIN_TIMEOUT (5 * NSEC_PER_SEC) /* passwords are slow on purpose */
#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC
#define PING_EVERY (5 * NSEC_PER_SEC)
#define TELL_EVERY (60 * NSEC_PER_SEC)

struct endpoint {
        struct loop *loop;
        struct url url;
        char name[320];
        struct tls *tls;
        const struct endpoint_login *login; /* NULL: as nobody */
        const struct endpoint_ops *ops;
        void *userdata;
        struct dial dial;
        struct stream *stream; /* NULL until it is connected */
        struct rpc_conn *rpc;
        bool up;
        struct boot_time up_at;
        bool wanted;
        bool greeting;           /* TLS has more time than to be accepted */
        bool closing;            /* what calls end now, ends with the connection */
        char failing[256];       /* why the connection ends as soon as the timer comes */
        struct loop_timer timer; /* waits after a failure, limits a connect, paces pings */
        nsec_t backoff;
        uint64_t pings;
        bool probing; /* the timer is the end of a probe's time */
        bool silent;
        char refused[256]; /* why the last login was; "": it was not */
        struct boot_time tell_at;
};

static void arm(struct endpoint *e, nsec_t after)
{
        loop_timer_in(&e->timer, after);
}

static void close_connection(struct endpoint *e)
{
        e->closing = true;
        dial_stop(&e->dial);
        e->rpc = rpc_conn_free(e->rpc);
        e->stream = stream_free(e->stream);
        e->closing = false;
}

static void fail(struct endpoint *e, const char *why)
{
        bool was_up = e->up;

        e->up = false;
        e->failing[0] = '\0';
        close_connection(e);
        /* Who accepts us and closes at once is no better than who does not accept. */
        if (was_up && boot_diff(loop_now(e->loop), e->up_at) >= RETRY_MAX)
                e->backoff = RETRY_MIN;
        arm(e, e->backoff);
        e->backoff = min_of(2 * e->backoff, RETRY_MAX);
        if (was_up)
                log_debug("Lost the core at %s: %s.", e->name, why);
        else
                log_debug("Cannot reach the core at %s: %s.", e->name, why);
        e->ops->down(e, why, e->userdata);
}

/* From inside a handler, where the connection has to stay. */
static void fail_soon(struct endpoint *e, const char *why)
{
        snprintf(e->failing, sizeof(e->failing), "%s", why);
        arm(e, 0);
}

static void set_up(struct endpoint *e)
{
        e->up = true;
        e->refused[0] = '\0';
        e->up_at = loop_now(e->loop);
        e->pings = 0;
        e->probing = e->silent = false;
        arm(e, PING_EVERY);
        log_debug("Connected to the core at %s.", e->name);
        e->ops->up(e, e->userdata);
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
                                          : "what answers the login does not parse");
        pb_free(p);
}

/* It tries again without end: told when it is news, and now and then. */
static void tell_refused(struct endpoint *e, const char *message)
{
        struct boot_time now = loop_now(e->loop);

        if (strncmp(e->refused, message, sizeof(e->refused) - 1) == 0 &&
            boot_before(now, e->tell_at))
                return;
        snprintf(e->refused, sizeof(e->refused), "%s", message);
        e->tell_at = boot_add(now, TELL_EVERY);
        log_warning("The core at %s does not let the user %s in: %s.", e->name, e->login->user,
                    message);
}

static void login_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct endpoint *e = call->userdata;

        if (e->failing[0] || e->closing)
                return;
        /* A core that asks nobody who they are takes us as well. */
        if (code == RPC_OK || strstr(message, "authentication is not enabled"))
                return set_up(e);
        tell_refused(e, message);
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
        arm(e, LOGIN_TIMEOUT);
        stream_kick(e->stream);
}

void endpoint_log_in_again(struct endpoint *e)
{
        if (e->up && e->login)
                fail_soon(e, "its login is over");
}

/* ---- */

static void on_connected(struct stream *s, void *userdata)
{
        struct endpoint *e = userdata;

        e->stream = s;
        if (rpc_conn_new_client(&e->rpc, e->name, e->url.tls) < 0)
                return fail(e, "out of memory");
        if (e->login)
                log_in(e);
        else
                set_up(e);
}

static bool is_waiting(const struct endpoint *e)
{
        return e->pings > rpc_conn_pongs(e->rpc);
}

static void heard(struct endpoint *e)
{
        if (!e->up || e->failing[0] || is_waiting(e))
                return;
        if (e->probing)
                arm(e, PING_EVERY);
        e->probing = e->silent = false;
}

static void on_data(struct stream *s, struct view data)
{
        struct endpoint *e = stream_userdata(s);

        if (rpc_conn_input(e->rpc, data.p, data.len) < 0)
                return fail(e, "it does not speak gRPC");
        heard(e);
        stream_kick(s);
}

static void on_fill(struct stream *s, struct buf *tx)
{
        struct endpoint *e = stream_userdata(s);

        if (rpc_conn_output(e->rpc, tx, OUTPUT_CHUNK) < 0)
                fail(e, "it said good-bye");
}

static void on_close(struct stream *s, const char *why)
{
        fail(stream_userdata(s), why);
}

static const struct stream_ops stream_ops = {
        .on_data = on_data, .on_fill = on_fill, .on_close = on_close};

static void on_failed(const char *why, void *userdata)
{
        fail(userdata, why);
}

static const struct dial_ops dial_ops = {.connected = on_connected, .failed = on_failed};

static void connect_now(struct endpoint *e)
{
        e->wanted = e->greeting = false;
        arm(e, CONNECT_TIMEOUT);
        dial_start(&e->dial, &e->url, e->tls);
}

static void ping(struct endpoint *e)
{
        if (rpc_conn_ping(e->rpc) < 0)
                return fail_soon(e, "out of memory");
        e->pings++;
        stream_kick(e->stream);
}

void endpoint_suspect(struct endpoint *e)
{
        if (!e->up || e->silent || e->failing[0])
                return;
        e->silent = true;
        e->probing = false;
        arm(e, PING_EVERY);
        if (!is_waiting(e))
                ping(e);
        e->ops->silent(e, e->userdata);
}

static void on_timer(struct loop_timer *t)
{
        struct endpoint *e = container_of(t, struct endpoint, timer);
        char why[sizeof(e->failing)];

        if (e->failing[0]) {
                strcpy(why, e->failing);
                return fail(e, why);
        }
        if (!e->up) {
                if (dial_is_greeting(&e->dial) && !e->greeting) {
                        e->greeting = true;
                        return arm(e, GREETING_TIMEOUT);
                }
                if (e->stream || dial_is_trying(&e->dial))
                        return fail(e, "no connection in time");
                if (e->wanted)
                        connect_now(e);
                return;
        }
        if (e->probing)
                return endpoint_suspect(e);
        if (is_waiting(e))
                return fail(e, "it does not answer");
        arm(e, PING_EVERY);
        ping(e);
}

void endpoint_probe(struct endpoint *e, nsec_t within)
{
        if (!e->up || e->probing || e->silent || e->failing[0])
                return;
        e->probing = true;
        arm(e, within);
        if (!is_waiting(e))
                ping(e);
}

bool endpoint_is_silent(const struct endpoint *e)
{
        return e->silent;
}

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
        e->backoff = RETRY_MIN;
        *ret = take_ptr(e);
        return 0;
}

struct endpoint *endpoint_free(struct endpoint *e)
{
        if (!e)
                return NULL;
        loop_timer_disarm(&e->timer);
        close_connection(e);
        free(e);
        return NULL;
}

void endpoint_want(struct endpoint *e)
{
        if (e->up || e->stream || dial_is_trying(&e->dial))
                return;
        e->wanted = true;
        if (!loop_timer_armed(&e->timer))
                connect_now(e);
}

struct rpc_conn *endpoint_rpc(const struct endpoint *e)
{
        return e->up ? e->rpc : NULL;
}

void endpoint_kick(struct endpoint *e)
{
        if (e->stream)
                stream_kick(e->stream);
}

void endpoint_drop(struct endpoint *e, const char *why)
{
        if (e->up)
                fail(e, why);
}

void endpoint_again(struct endpoint *e)
{
        bool wanted = e->up || e->stream || dial_is_trying(&e->dial) || e->wanted;

        if (e->up)
                fail(e, "the network has changed");
        e->backoff = RETRY_MIN;
        if (!wanted)
                return;
        close_connection(e);
        connect_now(e);
}

void endpoint_at(const struct endpoint *e, char *out, size_t size)
{
        snprintf(out, size, "%s", e->up ? stream_peer(e->stream) : "");
}

void endpoint_source(const struct endpoint *e, char *out, size_t size)
{
        out[0] = '\0';
        if (e->up)
                stream_source(e->stream, out, size);
}

const char *endpoint_name(const struct endpoint *e)
{
        return e->name;
}
