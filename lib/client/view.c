/* The membership, kept current: one range, then a watch from the revision after it; resumed
 * after a break, from where it ended. */
#include <stdio.h>

#include "base/log.h"
#include "client/internal.h"

#define RETRY (100 * NSEC_PER_MSEC)

static void set_synced(struct client *c, bool synced)
{
        if (c->synced == synced)
                return;
        c->synced = synced;
        c->ops->synced(c->userdata, synced);
}

static void again(struct client *c, const char *why)
{
        log_debug("The membership is not followed: %s.", why);
        set_synced(c, false);
        c->view_peer = (c->view_peer + 1) % c->n_peers;
        c->view_retry_at = boot_add(boot_now(), RETRY);
}

/* The name in a key under our prefix. */
static struct view name_of(const struct client *c, const ProtobufCBinaryData *key)
{
        size_t n = strlen(c->prefix);

        if (key->len <= n || memcmp(key->data, c->prefix, n) != 0)
                return (struct view){0};
        return (struct view){key->data + n, key->len - n};
}

static void feed(struct client *c, const Pb__KeyValue *kv)
{
        struct view name = name_of(c, &kv->key), value = {kv->value.data, kv->value.len};

        if (name.len > 0 && membership_put(&c->members, name, value, kv->lease,
                                           kv->create_revision, kv->mod_revision) < 0)
                abort(); /* out of memory: a membership with a hole would lie */
}

/* ---- watch ---- */

static void watch_message(struct rpc_call *call, struct view m)
{
        struct client *c = call->userdata;
        Pb__WatchResponse *r = pb__watch_response__unpack(NULL, m.len, m.p);

        if (!r) {
                pb_free(r);
                return;
        }
        c->heard_at = boot_now();
        if (r->canceled) {
                /* History was compacted under us, or the watch was refused: from the top. */
                c->members.revision = 0;
                set_synced(c, false);
                rpc_call_cancel(call);
                if (r->created) /* it may be our login that has ended: etcd does not say */
                        endpoint_log_in_again(c->peers[c->view_peer].ep);
        } else if (r->created) {
                set_synced(c, true);
        }
        for (size_t i = 0; i < r->n_events; i++) {
                const Pb__Event *e = r->events[i];

                if (!e->kv || e->kv->mod_revision <= c->members.revision)
                        continue; /* told before (A41) */
                if (e->type == PB__EVENT__EVENT_TYPE__PUT) {
                        feed(c, e->kv);
                } else {
                        struct view name = name_of(c, &e->kv->key);

                        if (name.len > 0)
                                membership_delete(&c->members, name, e->kv->mod_revision);
                }
        }
        /* A response holds whole revisions: all of the last one is told now. */
        if (r->n_events > 0 && r->events[r->n_events - 1]->kv)
                c->members.revision = max_of(c->members.revision,
                                             r->events[r->n_events - 1]->kv->mod_revision);
        pb_free(r);
}

static void watch_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        (void) code;
        again(call->userdata, message);
}

static void watch_close(struct rpc_call *call)
{
        struct client *c = call->userdata;

        c->watch = NULL;
}

static const struct rpc_handler watch_handler = {
        .on_message = watch_message, .on_status = watch_status, .on_close = watch_close};

static ProtobufCBinaryData prefix_end(const struct client *c, uint8_t *end)
{
        size_t n = strlen(c->prefix);

        memcpy(end, c->prefix, n);
        end[n - 1]++; /* it ends in '/' */
        return pb_bytes(end, n);
}

static void start_watch(struct client *c, struct peer *p)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        uint8_t end[1024];

        create.key = pb_bytes(c->prefix, strlen(c->prefix));
        create.range_end = prefix_end(c, end);
        create.start_revision = c->members.revision + 1;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 || rpc_call_new(endpoint_rpc(p->ep), "/etcdserverpb.Watch/Watch",
                                              true, &watch_handler, c, &c->watch) < 0)
                return again(c, "the connection broke");
        (void) !rpc_call_send(c->watch, b.data, buf_len(&b));
        endpoint_kick(p->ep);
}

/* ---- range ---- */

static void on_range(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__RangeResponse *r = u->reply;

        if (u->op != c->view_op)
                return;
        c->ranging = false;
        if (code != RPC_OK || !r->header)
                return again(c, message);
        c->heard_at = boot_now();
        membership_resync_begin(&c->members);
        for (size_t i = 0; i < r->n_kvs; i++)
                feed(c, r->kvs[i]);
        membership_resync_end(&c->members, r->header->revision);
}

static void start_range(struct client *c, struct peer *p)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        uint8_t end[1024];

        q.key = pb_bytes(c->prefix, strlen(c->prefix));
        q.range_end = prefix_end(c, end);
        if (client_call(p, ++c->view_op, "/etcdserverpb.KV/Range", &q.base,
                        &pb__range_response__descriptor, on_range) < 0)
                return again(c, "the connection broke");
        c->ranging = true;
}

void view_pump(struct client *c, struct boot_time now)
{
        struct peer *p;

        if (c->watch || c->ranging || boot_before(now, c->view_retry_at))
                return;
        p = client_peer(c, c->view_peer);
        if (!p) {
                c->view_retry_at = boot_add(now, RETRY);
                return;
        }
        c->view_peer = (size_t) (p - c->peers);
        if (c->members.revision == 0)
                start_range(c, p);
        else
                start_watch(c, p);
}
