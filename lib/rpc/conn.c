/*
 * Calls and connections, independent of the transport: HTTP/2 (h2.c), or the owner's own
 * (bare.c).
 */
#include <stdio.h>

#include "base/secret.h"
#include "rpc/internal.h"

static void call_release(struct call *k)
{
        if (!k)
                return;
        buf_fini(&k->in);
        buf_fini(&k->out);
        free(k);
}

/* Most clients call again as soon as they are answered, so the last call's memory is reused for
 * the next. */
static void call_keep(struct rpc_conn *c, struct call *k)
{
        buf_reuse(&k->in, SPARE_KEPT);
        buf_reuse(&k->out, SPARE_KEPT);
        *k = (struct call){.in = k->in, .out = k->out};
        c->spare = k;
}

void call_free(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;

        flow_call_ends(k);
        LIST_REMOVE(k, of_conn);
        c->n_calls--;
        secret_free(k->token);
        free(k->message);
        if (c->server && !c->spare)
                call_keep(c, k);
        else
                call_release(k);
}

struct call *call_alloc(struct rpc_conn *c, int32_t stream)
{
        struct call *k = c->spare ? take_ptr(c->spare) : calloc(1, sizeof(*k));

        if (!k)
                return NULL;
        k->pub.conn = c;
        k->stream = stream;
        k->code = RPC_UNKNOWN;
        LIST_INSERT_HEAD(&c->calls, k, of_conn);
        c->n_calls++;
        flow_call_begins(k);
        return k;
}

void call_set_path(struct call *k, const void *p, size_t n)
{
        n = min_of(n, sizeof(k->path) - 1);
        memcpy(k->path, p, n);
        k->path[n] = '\0';
        k->pub.path = k->path;
}

void rpc_call_count(struct rpc_call *pub, struct rpc_counts *counts)
{
        struct call *k = call_of(pub);

        k->counts = counts;
        k->began = *counts->now;
        counts->started++;
}

void call_count_end(struct call *k, enum rpc_code code)
{
        struct rpc_counts *c = k->counts;

        if (!c)
                return;
        k->counts = NULL;
        c->handled[code]++;
        histogram_add_nsec(&c->took, &histogram_calls, boot_diff(*c->now, k->began));
}

void rpc_call_list(struct rpc_call *call, struct rpc_call_list *list)
{
        LIST_INSERT_HEAD(list, call, next_listed);
        call->listed = true;
}

void rpc_call_unlist(struct rpc_call *call)
{
        if (call->listed)
                LIST_REMOVE(call, next_listed);
        call->listed = false;
}

void call_close(struct call *k, enum rpc_code code, const char *message)
{
        const struct rpc_handler *h = k->pub.handler;

        if (k->closing)
                return;
        k->closing = true;
        rpc_call_unlist(&k->pub);
        call_count_end(k, RPC_CANCELED); /* its client has gone */
        if (!k->pub.conn->server && h && h->on_status && !k->silent)
                h->on_status(&k->pub, code, message);
        if (h)
                h->on_close(&k->pub);
}

/* Returns 0 if a message of @n bytes can be sent; 1 if the call is over, or ends because the
 * message is too large; or -EMSGSIZE. */
static int may_send(struct call *k, size_t n)
{
        char why[96];

        if (k->finished || k->closing)
                return 1;
        if (n <= RPC_MESSAGE_MAX)
                return 0;
        if (!k->pub.conn->server)
                return -EMSGSIZE;
        snprintf(why, sizeof(why), "grpc: trying to send message larger than max (%zu vs. %d)",
                 n, RPC_MESSAGE_MAX);
        rpc_call_finish(&k->pub, RPC_RESOURCE_EXHAUSTED, why);
        return 1;
}

void frame_head(uint8_t head[FRAME_HEADER], size_t n)
{
        head[0] = 0;
        for (int i = 0; i < 4; i++)
                head[1 + i] = (uint8_t) (n >> (24 - 8 * i));
}

size_t frame_len(const uint8_t head[FRAME_HEADER])
{
        size_t n = 0;

        for (int i = 0; i < 4; i++)
                n = n << 8 | head[1 + i];
        return n;
}

static void resume(struct call *k)
{
        if (k->deferred) {
                k->deferred = false;
                h2_resume(k);
        }
}

/* After @k->out was appended to; it had @before bytes. */
static int queued(struct call *k, size_t before)
{
        flow_out_changed(k, before);
        if (buf_error(&k->out) < 0)
                return -ENOMEM;
        if (k->pub.conn->server && !k->submitted) {
                k->submitted = true;
                if (k->pub.conn->h2)
                        h2_answer(k);
        } else {
                resume(k);
        }
        return 0;
}

int rpc_call_begin(struct rpc_call *pub, size_t n)
{
        struct call *k = call_of(pub);
        size_t before = buf_len(&k->out);
        uint8_t head[FRAME_HEADER];
        int r = may_send(k, n);

        if (r != 0)
                return min_of(r, 0);
        if (k->counts) {
                k->counts->sent++;
                k->counts->sent_bytes += n;
        }
        frame_head(head, n);
        buf_add(&k->out, head, sizeof(head));
        return queued(k, before);
}

int rpc_call_add(struct rpc_call *pub, const void *p, size_t n)
{
        struct call *k = call_of(pub);
        size_t before = buf_len(&k->out);

        if (k->finished || k->closing)
                return 0;
        buf_add(&k->out, p, n);
        return queued(k, before);
}

int rpc_call_send(struct rpc_call *pub, const void *p, size_t n)
{
        int r = rpc_call_begin(pub, n);

        return r < 0 ? r : rpc_call_add(pub, p, n);
}

void rpc_call_end(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        k->finished = true;
        resume(k);
}

void rpc_call_finish(struct rpc_call *pub, enum rpc_code code, const char *message)
{
        struct call *k = call_of(pub);

        if (k->finished || k->closing)
                return;
        k->finished = true;
        k->code = code;
        call_count_end(k, code);
        k->message = message && *message ? strdup(message) : NULL;
        if (pub->conn->server) {
                rpc_call_charge_request(pub, 0);
                rpc_call_charge(pub, 0);
                rpc_call_cost(pub, 0);
                if (!k->delivering)
                        flow_drop_input(k);
        }
        if (!k->submitted) {
                k->submitted = true;
                if (pub->conn->h2)
                        h2_end_unanswered(k);
        } else {
                resume(k);
        }
}

bool rpc_call_was_sent(const struct rpc_call *pub)
{
        return container_of(pub, const struct call, pub)->sent;
}

static void give_up(struct call *k, enum rpc_code code, const char *message)
{
        k->finished = true;
        h2_reset(k);
        call_close(k, code, message);
}

void rpc_call_cancel(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        k->silent = true;
        give_up(k, RPC_CANCELED, "");
}

/* The peer's data is refused, so the call cannot continue: a client's handler gets the status
 * here, a server sends it. */
void call_refuse(struct call *k, enum rpc_code code, const char *message)
{
        if (k->pub.conn->server)
                rpc_call_finish(&k->pub, code, message);
        else
                give_up(k, code, message);
}

void call_accept(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;
        char text[256];

        c->accept(&k->pub, c->accept_data);
        if (k->pub.handler || k->finished)
                return;
        snprintf(text, sizeof(text), "unknown method %s", k->path);
        rpc_call_finish(&k->pub, RPC_UNIMPLEMENTED, text);
}

void conn_serve(struct rpc_conn *c, const struct rpc_limits *limits, rpc_accept_fn accept,
                void *userdata)
{
        c->limits = *limits;
        c->accept = accept;
        c->accept_data = userdata;
}

struct rpc_conn *conn_new(bool server)
{
        struct rpc_conn *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->server = server;
        LIST_INIT(&c->calls);
        flow_init(c);
        return c;
}

bool rpc_conn_close_some(struct rpc_conn *c, size_t n)
{
        struct call *k;

        for (; n > 0 && (k = LIST_FIRST(&c->calls)); n--) {
                call_close(k, RPC_UNAVAILABLE, "the connection ended");
                call_free(k);
        }
        return LIST_EMPTY(&c->calls);
}

struct rpc_conn *rpc_conn_free(struct rpc_conn *c)
{
        if (!c)
                return NULL;
        rpc_conn_close_some(c, SIZE_MAX);
        h2_free(c);
        cost_frames_end(c);
        call_release(c->spare);
        free(c->authority);
        secret_free(c->token);
        free(c);
        return NULL;
}

void rpc_conn_set_userdata(struct rpc_conn *c, void *userdata)
{
        c->userdata = userdata;
}

void *rpc_conn_userdata(const struct rpc_conn *c)
{
        return c->userdata;
}

bool rpc_conn_established(const struct rpc_conn *c)
{
        return c->established;
}

bool rpc_conn_is_leaving(const struct rpc_conn *c)
{
        return c->leaving;
}

size_t rpc_conn_n_calls(const struct rpc_conn *c)
{
        return c->n_calls;
}

void rpc_conn_each_call(struct rpc_conn *c, void (*fn)(struct rpc_call *call, void *arg),
                        void *arg)
{
        struct call *k, *next;

        LIST_FOREACH_SAFE (k, &c->calls, of_conn, next)
                if (!k->closing)
                        fn(&k->pub, arg);
}

uint64_t rpc_conn_pongs(const struct rpc_conn *c)
{
        return c->pongs;
}

void rpc_conn_show(struct rpc_conn *c, const char *core)
{
        c->core = core;
}

int rpc_conn_set_token(struct rpc_conn *c, const char *token)
{
        secret_free(c->token);
        c->token = strdup(token);
        return c->token ? 0 : -ENOMEM;
}
