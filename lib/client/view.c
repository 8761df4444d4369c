/* The membership, kept current: one range, page by page, then a watch from the revision after
 * it; resumed after a break, from where it ended. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "client/internal.h"

#define LOOK_AGAIN (100 * NSEC_PER_MSEC)  /* for an endpoint that speaks */
#define RANGE_TIMEOUT (10 * NSEC_PER_SEC) /* a page of it; or until a watch is there */
#define PAGE 2000                         /* keys */
#define QUESTION_TIMEOUT (2 * NSEC_PER_SEC)

static void set_synced(struct client *c, bool synced)
{
        if (c->synced == synced)
                return;
        c->synced = synced;
        c->ops->synced(c->userdata, synced);
}

static void again(struct client *c, const char *why)
{
        struct boot_time now = loop_now(c->loop);

        log_debug("The membership is not followed: %s.", why);
        set_synced(c, false);
        c->view_peer = (c->view_peer + 1) % c->n_peers;
        c->view_retry_at = boot_add(now, pace_next(&c->view_pace, c->n_peers, now));
}

enum kind { NODES, SERVICES, N_KINDS };

/* What is behind `nodes/` or `services/` in a key under our prefix; empty for another one. */
static struct view name_in(const struct client *c, const ProtobufCBinaryData *key,
                           const char *folder)
{
        size_t n = strlen(c->prefix), m = strlen(folder);

        if (key->len <= n + m || memcmp(key->data, c->prefix, n) != 0 ||
            memcmp(key->data + n, folder, m) != 0)
                return (struct view){0};
        return (struct view){key->data + n + m, key->len - n - m};
}

static struct view name_of(const struct client *c, const ProtobufCBinaryData *key,
                           enum kind kind)
{
        return name_in(c, key, kind == NODES ? "nodes/" : "services/");
}

/* Another host has found our place held, and says so to us. */
static void feed_claim(struct client *c, const Pb__KeyValue *kv)
{
        struct view name = name_in(c, &kv->key, "claims/");
        struct node_record by;

        if (name.len == 0 || c->session.lease == 0 || kv->lease == c->session.lease ||
            bytes_cmp(name.p, name.len, c->self.name, strlen(c->self.name)) != 0)
                return;
        if (node_record_read(&by, kv->value.data, kv->value.len) == 0)
                c->ops->claimed(c->userdata, &by);
}

static void feed(struct client *c, const Pb__KeyValue *kv, enum kind kind)
{
        struct view name = name_of(c, &kv->key, kind), value = {kv->value.data, kv->value.len};
        int r = 0;

        if (name.len == 0)
                return;
        if (kind == NODES)
                r = membership_put(&c->members, name, value, kv->lease, kv->create_revision,
                                   kv->mod_revision);
        else
                r = services_put(&c->services, name, value, kv->lease, kv->create_revision,
                                 kv->mod_revision);
        if (r < 0)
                abort(); /* out of memory: a membership with a hole would lie */
}

static void feed_event(struct client *c, const Pb__Event *e, enum kind kind)
{
        struct view name;

        if (e->type == PB__EVENT__EVENT_TYPE__PUT)
                return feed(c, e->kv, kind);
        name = name_of(c, &e->kv->key, kind);
        if (name.len == 0)
                return;
        if (kind == NODES)
                membership_delete(&c->members, name, e->kv->mod_revision);
        else
                services_delete(&c->services, name, e->kv->mod_revision);
}

/* Of one revision nodes come first: what hung on the lease of one that left, left for its
 * reason. */
static void feed_events(struct client *c, Pb__Event **events, size_t n)
{
        for (size_t i = 0, end; i < n; i = end) {
                int64_t revision = events[i]->kv ? events[i]->kv->mod_revision : 0;

                for (end = i + 1;
                     end < n && events[end]->kv && events[end]->kv->mod_revision == revision;)
                        end++;
                if (!events[i]->kv || revision <= c->members.revision)
                        continue; /* of nothing; or told before (A41) */
                for (enum kind kind = NODES; kind < N_KINDS; kind++)
                        for (size_t k = i; k < end; k++)
                                feed_event(c, events[k], kind);
                for (size_t k = i; k < end; k++)
                        if (events[k]->type == PB__EVENT__EVENT_TYPE__PUT)
                                feed_claim(c, events[k]->kv);
        }
}

/* ---- watch ---- */

static void watch_message(struct rpc_call *call, struct view m)
{
        struct client *c = call->userdata;
        struct peer *asked = &c->peers[c->view_peer];
        Pb__WatchResponse *r = NULL;

        if (pb_unpack(&pb__watch_response__descriptor, m, &r) == 0 && !r->header)
                r = pb_free(r);
        if (!r) { /* What it told is lost to us: from the top. */
                c->members.revision = 0;
                rpc_call_cancel(call);
                return again(c, "what it told cannot be read");
        }
        switch (client_hear(c, asked, r->header)) {
        case WORLD_FOREIGN:
                pb_free(r);
                return view_move(c, "it is of another cluster");
        case WORLD_NEW: /* it is canceled already */
                pb_free(r);
                return;
        case WORLD_OURS:
                break;
        }
        c->heard_at = loop_now(c->loop);
        c->creating = false;
        if (r->canceled) {
                /* History was compacted under us, or the watch was refused: from the top. */
                c->members.revision = 0;
                rpc_call_cancel(call);
                again(c, "the watch was canceled");
                if (r->created) /* it may be our login that has ended: etcd does not say */
                        endpoint_log_in_again(asked->ep);
        } else if (r->created) {
                /* From a revision on that it does not have: it is late, or it has begun anew.
                 */
                if (r->header && r->header->revision < c->members.revision)
                        view_doubt(c);
                else
                        set_synced(c, true);
        }
        feed_events(c, r->events, r->n_events);
        /* Nothing came, up to here. Debian's etcd 3.4 may say so ahead of events (etcd 15220):
         * so this is for those who wait, not for where to go on. */
        if (r->n_events == 0 && !r->created && !r->canceled && r->header && c->synced)
                c->progress = max_of(c->progress, r->header->revision);
        /* A response holds whole revisions: all of the last one is told now. */
        if (r->n_events > 0 && r->events[r->n_events - 1]->kv)
                c->members.revision = max_of(c->members.revision,
                                             r->events[r->n_events - 1]->kv->mod_revision);
        pb_free(r);
}

static void watch_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct client *c = call->userdata;

        (void) code;
        c->view_op++; /* what was asked there is of no interest any more */
        c->asking = false;
        again(c, message);
}

static void watch_close(struct rpc_call *call)
{
        struct client *c = call->userdata;

        c->watch = NULL;
        c->creating = false;
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
        create.start_revision = min_of(c->members.revision, INT64_MAX - 1) + 1;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 || rpc_call_new(endpoint_rpc(p->ep), "/etcdserverpb.Watch/Watch",
                                              true, &watch_handler, c, &c->watch) < 0)
                return again(c, "the connection broke");
        (void) !rpc_call_send(c->watch, b.data, buf_len(&b));
        c->creating = true;
        c->answer_by = boot_add(loop_now(c->loop), RANGE_TIMEOUT);
        endpoint_kick(p->ep);
}

int64_t client_revision(const struct client *c)
{
        return max_of(c->members.revision, c->progress);
}

void client_ask_revision(struct client *c)
{
        Pb__WatchProgressRequest progress = PB__WATCH_PROGRESS_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};

        if (!c->watch || !c->synced)
                return;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
        q.progress_request = &progress;
        pb_append(&b, &q.base);
        if (buf_error(&b) == 0 && rpc_call_send(c->watch, b.data, buf_len(&b)) == 0)
                endpoint_kick(c->peers[c->view_peer].ep);
}

/* ---- range ---- */

static void send_range(struct client *c, struct peer *p);

/* The rest is asked for in a later turn: a large cluster's range delays no heartbeat. */
static void next_page(struct client *c, struct peer *p, const Pb__KeyValue *last)
{
        buf_clear(&c->range_from);
        buf_add(&c->range_from, last->key.data, last->key.len);
        buf_add_u8(&c->range_from, 0);
        if (buf_error(&c->range_from) < 0)
                abort();
        if (!endpoint_rpc(p->ep))
                return again(c, "the connection broke");
        send_range(c, p);
}

static void on_range(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__RangeResponse *r = u->reply;
        bool first = c->range_revision == 0;
        enum world_word word;

        if (u->op != c->view_op)
                return;
        c->ranging = false;
        if (code == RPC_RESOURCE_EXHAUSTED && strcmp(message, RPC_ANSWER_TOO_LARGE) == 0 &&
            c->page > 1 && endpoint_rpc(u->peer->ep)) {
                c->page = max_of(c->page / 8, INT64_C(1));
                return send_range(c, u->peer);
        }
        if (code != RPC_OK)
                return again(c, message);
        word = client_hear(c, u->peer, r->header);
        if (word == WORLD_FOREIGN)
                return again(c, "it is of another cluster");
        if (word == WORLD_NEW && !first)
                return; /* begins with the first page */
        c->heard_at = loop_now(c->loop);
        if (first) {
                membership_resync_begin(&c->members);
                services_resync_begin(&c->services);
                c->range_revision = r->header->revision;
        }
        for (enum kind kind = NODES; kind < N_KINDS; kind++)
                for (size_t i = 0; i < r->n_kvs; i++)
                        feed(c, r->kvs[i], kind);
        c->page = min_of(2 * c->page, (int64_t) PAGE);
        if (r->more && r->n_kvs > 0)
                return next_page(c, u->peer, r->kvs[r->n_kvs - 1]);
        membership_resync_end(&c->members, c->range_revision);
        services_resync_end(&c->services, c->range_revision);
}

static void send_range(struct client *c, struct peer *p)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        uint8_t end[1024];

        q.key = pb_bytes(buf_head(&c->range_from), buf_len(&c->range_from));
        q.range_end = prefix_end(c, end);
        q.limit = c->page;
        q.revision = c->range_revision;
        if (client_call(p, ++c->view_op, "/etcdserverpb.KV/Range", &q.base,
                        &pb__range_response__descriptor, on_range) < 0)
                return again(c, "the connection broke");
        c->ranging = true;
        c->answer_by = boot_add(loop_now(c->loop), RANGE_TIMEOUT);
}

static void start_range(struct client *c, struct peer *p)
{
        if (c->page == 0)
                c->page = PAGE;
        c->range_revision = 0;
        buf_clear(&c->range_from);
        buf_add(&c->range_from, c->prefix, strlen(c->prefix));
        if (buf_error(&c->range_from) < 0)
                abort();
        send_range(c, p);
}

static void stop(struct client *c)
{
        c->view_op++;
        c->ranging = c->asking = c->creating = false;
        if (c->watch)
                rpc_call_cancel(c->watch);
}

/* ---- has it begun anew? ---- */

static void on_answer(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__RangeResponse *r = u->reply;
        char why[256];

        if (u->op != c->view_op)
                return;
        c->asking = false;
        if (code != RPC_OK || !r->header) {
                stop(c);
                return again(c, message);
        }
        if (client_hear(c, u->peer, r->header) != WORLD_OURS)
                return view_move(c, "it is of another cluster");
        if (r->header->revision >= c->floor) {
                set_synced(c, c->watch != NULL); /* the replica was only late */
                return;
        }
        snprintf(why, sizeof(why),
                 "The core at %s was emptied or restored: it is at revision %" PRId64
                 " and was at %" PRId64,
                 endpoint_name(u->peer->ep), r->header->revision, c->floor);
        client_begin_world(c, r->header, why);
}

/* A read that is linearizable, as they are unless it says otherwise, shows all that any replica
 * had said before. */
void view_doubt(struct client *c)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        struct peer *p = &c->peers[c->view_peer];

        if (!c->watch || c->asking || !endpoint_rpc(p->ep))
                return;
        q.key = pb_bytes(c->prefix, strlen(c->prefix));
        q.count_only = true;
        c->floor = max_of(c->members.revision, c->world.revision);
        if (client_call(p, ++c->view_op, "/etcdserverpb.KV/Range", &q.base,
                        &pb__range_response__descriptor, on_answer) < 0)
                return; /* the connection is going, and the watch with it */
        c->asking = true;
        c->answer_by = boot_add(loop_now(c->loop), QUESTION_TIMEOUT);
}

/* ---- ---- */

void view_move(struct client *c, const char *why)
{
        if (!c->watch && !c->ranging)
                return;
        stop(c);
        again(c, why);
        /* The next one may do better. */
        if (!pace_is_round(&c->view_pace, c->n_peers))
                c->view_retry_at = loop_now(c->loop);
}

void view_restart(struct client *c)
{
        stop(c);
        membership_forget_revisions(&c->members);
        services_forget_revisions(&c->services);
        c->progress = 0;
        set_synced(c, false);
        c->view_retry_at = (struct boot_time){0};
}

struct boot_time view_next(const struct client *c)
{
        if (c->ranging || c->asking || c->creating)
                return c->answer_by;
        return c->watch ? BOOT_TIME_NEVER : c->view_retry_at;
}

void view_run(struct client *c, struct boot_time now)
{
        struct peer *p;

        if ((c->ranging || c->asking || c->creating) && !boot_before(now, c->answer_by))
                view_move(c, "the replica does not answer");
        if (c->watch || c->ranging || boot_before(now, c->view_retry_at))
                return;
        p = client_speaking_peer(c, c->view_peer);
        if (!p) { /* then another one: a connection that is not needed is not made */
                c->view_peer = (c->view_peer + 1) % c->n_peers;
                c->view_retry_at = boot_add(now, LOOK_AGAIN);
                return;
        }
        c->view_peer = (size_t) (p - c->peers);
        if (c->members.revision == 0)
                start_range(c, p);
        else
                start_watch(c, p);
}
