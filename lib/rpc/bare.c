/*
 * Calls that the owner of the connection carries by hand, one request at a time: HTTP/1.1, see
 * lib/http. They are accounted, made to wait and answered like all other calls.
 */
#include "base/secret.h"
#include "rpc/internal.h"

int rpc_conn_new_bare(struct rpc_conn **ret, const struct rpc_limits *limits,
                      rpc_accept_fn accept, void *userdata)
{
        struct rpc_conn *c = conn_new(true);

        if (!c)
                return -ENOMEM;
        conn_serve(c, limits, accept, userdata);
        c->established = true;
        *ret = c;
        return 0;
}

void rpc_conn_run(struct rpc_conn *c)
{
        flow_run(c);
}

int rpc_call_arrive(struct rpc_conn *c, const char *path, const struct rpc_metadata *md,
                    struct rpc_call **ret)
{
        struct call *k = call_alloc(c, -1);

        if (!k)
                return -ENOMEM;
        call_set_path(k, path, strlen(path));
        if (md->token) {
                k->token = strdup(md->token);
                if (!k->token) {
                        call_free(k);
                        return -ENOMEM;
                }
                k->pub.token = k->token;
        }
        k->pub.carrier = md->carrier;
        k->pub.resource = md->resource;
        k->pub.timeout = md->timeout;
        k->pub.want_leader = md->want_leader;
        cost_headers(k); /* it is the only one of its connection, so it may stay */
        call_accept(k);
        *ret = &k->pub;
        return 0;
}

int rpc_call_bring(struct rpc_call *pub, const void *p, size_t n)
{
        struct call *k = call_of(pub);
        size_t before = buf_len(&k->in);
        uint8_t head[FRAME_HEADER];

        if (k->finished || k->closing)
                return 0;
        frame_head(head, n);
        buf_add(&k->in, head, sizeof(head));
        buf_add(&k->in, p, n);
        flow_in_changed(k, before);
        if (buf_error(&k->in) < 0)
                return -ENOMEM;
        call_deliver(k);
        return 0;
}

void rpc_call_bring_end(struct rpc_call *pub)
{
        pub->ended = true;
        call_deliver(call_of(pub));
}

void rpc_call_half(struct rpc_call *pub, size_t came, size_t held)
{
        pub->conn->received += came;
        flow_apart(call_of(pub), held);
        pub->half = held > 0;
}

bool rpc_call_has_input(const struct rpc_call *pub)
{
        return buf_len(&container_of(pub, const struct call, pub)->in) > 0;
}

bool rpc_call_next(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        if (k->left > 0 || buf_len(&k->out) < FRAME_HEADER)
                return false;
        k->left = frame_len(buf_head(&k->out));
        buf_consume(&k->out, FRAME_HEADER);
        flow_out_changed(k, buf_len(&k->out) + FRAME_HEADER);
        return true;
}

size_t rpc_call_left(const struct rpc_call *pub)
{
        return container_of(pub, const struct call, pub)->left;
}

struct view rpc_call_piece(const struct rpc_call *pub)
{
        const struct call *k = container_of(pub, const struct call, pub);

        return (struct view){buf_head(&k->out), min_of(k->left, buf_len(&k->out))};
}

void rpc_call_taken(struct rpc_call *pub, size_t n)
{
        struct call *k = call_of(pub);

        if (n == 0)
                return;
        k->left -= n;
        buf_consume(&k->out, n);
        flow_out_changed(k, buf_len(&k->out) + n);
}

bool rpc_call_is_complete(const struct rpc_call *pub)
{
        return container_of(pub, const struct call, pub)->finished;
}

bool rpc_call_is_over(const struct rpc_call *pub, enum rpc_code *ret_code,
                      const char **ret_message)
{
        const struct call *k = container_of(pub, const struct call, pub);

        if (!k->finished || buf_len(&k->out) > 0)
                return false;
        *ret_code = k->code;
        *ret_message = k->message ? k->message : "";
        return true;
}

void rpc_call_leave(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        call_close(k, RPC_CANCELED, "");
        call_free(k);
}
