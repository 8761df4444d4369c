/*
 * A user who watches the keys that its role permits (users.c), at one replica after the other.
 * It may go on for as long as it may read them; then it is told of nothing that is written
 * later, whichever replica serves it.
 */
#include "listeners.h"

#include <stdlib.h>

static struct listener {
        struct wire link;
        nsec_t act_at;
} listener;

static void disconnect(void *arg)
{
        struct listener *l = arg;

        wire_close(&l->link);
        l->act_at = W->now + some_time(W, 5 * MSEC, 300 * MSEC);
}

static void on_message(struct rpc_call *call, struct view m)
{
        Pb__WatchResponse *p = pb__watch_response__unpack(NULL, m.len, m.p);
        struct listener *l = call->userdata;
        nsec_t since = users_forbidden_since();

        if (!p)
                abort();
        if (p->canceled)
                l->link.broken = true;
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__KeyValue *kv = p->events[i]->kv;
                char when[24] = "";

                if (kv->key.len != strlen(USERS_SAID) ||
                    memcmp(kv->key.data, USERS_SAID, kv->key.len) != 0)
                        continue;
                memcpy(when, kv->value.data, min_of(kv->value.len, sizeof(when) - 1));
                W->counts.heard++;
                if (since > 0 && since < strtoll(when, NULL, 10))
                        fail(W,
                             "users: a watch goes on that was forbidden since %.3f s, before "
                             "what it is told of was written",
                             (double) since / 1e9);
        }
        pb_free(p);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct listener *l = call->userdata;

        (void) code;
        (void) message;
        l->link.broken = true;
}

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static void watch(struct listener *l)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;

        create.key = pb_bytes(USERS_KEYS, strlen(USERS_KEYS));
        create.range_end = pb_bytes(USERS_END, strlen(USERS_END));
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        pb_append(&b, &q.base);
        if (rpc_conn_set_token(l->link.client, users_token()) < 0 ||
            rpc_call_new(l->link.client, "/etcdserverpb.Watch/Watch", true, &handler, l,
                         &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0)
                l->link.broken = true;
        l->link.client_dirty = true;
}

static void act(void *arg)
{
        struct listener *l = arg;

        l->act_at = W->now + some_time(W, 50 * MSEC, 200 * MSEC);
        if (l->link.client) {
                l->link.broken = load_ended(W) || chance(W, 2);
        } else if (!load_ended(W) && *users_token() &&
                   wire_connect(&l->link,
                                (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1))) {
                watch(l);
        }
}

void listeners_begin(struct world *w)
{
        listener = (struct listener){.act_at = w->restricted ? some_time(w, 0, 2000 * MSEC)
                                                             : NEVER};
        wire_init(&listener.link, NULL, NULL);
        listener.link.nameless = true;
}

void listeners_run(void)
{
        wire_run(&listener.link, &listener.act_at, act, disconnect, &listener);
}

nsec_t listeners_next(void)
{
        return min_of(listener.act_at, wire_next(&listener.link));
}

void listeners_end(void)
{
        disconnect(&listener);
}
