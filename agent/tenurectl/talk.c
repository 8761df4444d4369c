#include "talk.h"

#include <bsd/readpassphrase.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/secret.h"
#include "base/utf8.h"
#include "text.h"

#define TRY_FOR (5 * NSEC_PER_SEC)
#define CALL_FOR (10 * NSEC_PER_SEC)
#define LEARNER "etcdserver: rpc not supported for learner"

static void finish(struct talk *t)
{
        t->done = true;
        loop_stop(t->loop);
}

static void limit_call(struct talk *t)
{
        loop_timer_in(&t->timer, t->limit > 0      ? t->limit
                                 : t->patience > 0 ? t->patience
                                                   : CALL_FOR);
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct talk *t = call->userdata;

        pb_free(t->reply);
        t->unread = pb_unpack(t->reply_type, m, &t->reply);
        if (!t->each)
                return;
        if (t->reply && t->failed == 0)
                t->failed = t->each(t->arg, t->reply);
        limit_call(t);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct talk *t = call->userdata;

        if (t->done)
                return; /* we have ended it */
        t->code = code;
        utf8_shown(message, strlen(message), t->text, sizeof(t->text));
        finish(t);
}

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static void on_up(struct endpoint *e, void *userdata)
{
        struct talk *t = userdata;
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;

        if (t->sent)
                return;
        t->sent = true;
        pb_append(&b, t->request);
        if (buf_error(&b) < 0 ||
            rpc_call_new(endpoint_rpc(e), t->path, false, &handler, t, &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0) {
                t->code = RPC_UNAVAILABLE;
                snprintf(t->text, sizeof(t->text), "out of memory");
                return finish(t);
        }
        rpc_call_end(call);
        endpoint_kick(e);
        limit_call(t);
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        struct talk *t = userdata;

        (void) e;
        utf8_print(t->down, sizeof(t->down), "%s", why);
        if (!t->sent && !t->done)
                finish(t);
}

static const struct endpoint_ops endpoint_ops = {.up = on_up, .down = on_down};

static void on_timer(struct loop_timer *timer)
{
        struct talk *t = container_of(timer, struct talk, timer);

        if (t->sent && t->limit > 0)
                t->gave_up = -ETIMEDOUT;
        t->late = true;
        finish(t);
}

static void on_broken(struct loop_io *io, int events)
{
        struct talk *t = container_of(io, struct talk, broken);

        (void) events;
        t->gave_up = t->on_break(t->break_arg);
        if (t->gave_up < 0)
                finish(t);
}

static int make_tls(const struct core_options *o, struct tls **ret)
{
        struct tls_error err;

        if (!strstr(o->endpoints, "https://") && !strstr(o->endpoints, "unixs:"))
                return 0;
        if (tls_new_client(
                    ret,
                    &(struct tls_files){
                            .cert = o->cert, .key = o->key, .ca = o->cacert, .http2 = true},
                    &err) == 0)
                return 0;
        say("%s", err.text);
        return -EINVAL;
}

int talk_log_in(struct core_options *o, char user[static TALK_USER],
                char password[static TALK_PASSWORD])
{
        const char *colon = o->user ? strchr(o->user, ':') : NULL;
        char prompt[TALK_USER + 32];
        int r;

        if (!o->user)
                return 0;
        snprintf(user, TALK_USER, "%.*s", (int) (colon ? colon - o->user : TALK_USER - 1),
                 o->user);
        o->login = (struct endpoint_login){.user = user, .password = password};
        if (colon) {
                snprintf(password, TALK_PASSWORD, "%s", colon + 1);
                return 0;
        }
        if (o->password_file) {
                r = secret_read(o->password_file, password, TALK_PASSWORD);
                return r < 0 ? say("cannot read a password from %s: %s", o->password_file,
                                   strerror(-r))
                             : 0;
        }
        snprintf(prompt, sizeof(prompt), "Password of %s: ", user);
        if (readpassphrase(prompt, password, TALK_PASSWORD, RPP_REQUIRE_TTY))
                return 0;
        return say("no terminal to ask for the password of %s; give --password-file", user);
}

/* Asks one endpoint. Returns 0 if it answered, even with an error. */
static int ask(struct talk *t, const char *url, const struct endpoint_login *login)
{
        int r = loop_new(&t->loop);

        if (r == 0)
                r = resolver_new(&t->resolver, t->loop);
        if (r < 0)
                return r;
        loop_timer_init(&t->timer, t->loop, on_timer);
        t->sent = t->done = t->late = false;
        snprintf(t->url, sizeof(t->url), "%s", url);
        t->code = RPC_UNAVAILABLE;
        snprintf(t->text, sizeof(t->text), "no answer in time");
        r = endpoint_new(&t->ep, t->loop, t->resolver, url, t->tls, login->user ? login : NULL,
                         &endpoint_ops, t);
        if (r == 0) {
                loop_timer_in(&t->timer, t->patience > 0 ? t->patience : TRY_FOR);
                endpoint_want(t->ep);
                if (t->break_fd > 0)
                        loop_io_start(&t->broken, t->loop, t->break_fd, EV_READ, on_broken);
                loop_run(t->loop);
                if (t->break_fd > 0)
                        loop_io_stop(&t->broken);
                r = t->sent ? 0 : -EHOSTUNREACH;
        }
        loop_timer_disarm(&t->timer);
        t->ep = endpoint_free(t->ep);
        t->resolver = resolver_free(t->resolver);
        t->loop = loop_free(t->loop);
        return r;
}

int talk(const struct core_options *o, struct talk *t)
{
        const char *cursor = o->endpoints;
        char url[TALK_URL_MAX];
        int r = make_tls(o, &t->tls);

        if (r < 0)
                return r;
        r = -EINVAL;
        while (r < 0 && t->gave_up == 0 && list_next(&cursor, url, sizeof(url))) {
                r = ask(t, url, &o->login);
                if (r == 0 && *cursor && t->code == RPC_UNAVAILABLE &&
                    strcmp(t->text, LEARNER) == 0) {
                        r = -EHOSTUNREACH; /* it has done nothing; try the others */
                        continue;
                }
                /* With limited patience, the next endpoint is tried. */
                if (r == 0 && t->patience > 0 && (t->late || t->code == RPC_UNAVAILABLE))
                        r = -EHOSTUNREACH;
                if (r < 0 && t->gave_up == 0 && !t->asks_again)
                        say("no lease core answers at %s%s%s", url, *t->down ? ": " : "",
                            t->down);
        }
        t->tls = tls_free(t->tls);
        if (t->gave_up < 0)
                return t->gave_up;
        if (r == 0 && t->code != RPC_OK && t->again && strcmp(t->text, t->again) == 0)
                return -EAGAIN;
        if (t->asks_again && (r == -EHOSTUNREACH || (r == 0 && t->code == RPC_UNAVAILABLE)))
                return -ENOTCONN;
        if (r == 0 && t->code != RPC_OK) {
                if (t->quiet == 0 || t->code != t->quiet)
                        say("%s", *t->text ? t->text : "the call failed");
                r = -EIO;
        } else if (r == 0 && !t->reply) {
                say(t->unread == -ENOMEM ? "out of memory" : "the answer is malformed");
                r = t->unread < 0 ? t->unread : -EBADMSG;
        }
        return r;
}

int talk_call(const struct core_options *o, const char *path, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *reply_type, void **ret)
{
        struct talk t = {.path = path, .request = request, .reply_type = reply_type};
        int r = talk(o, &t);

        if (r < 0)
                t.reply = pb_free(t.reply);
        else
                *ret = t.reply;
        return r;
}
