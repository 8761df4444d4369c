#include "top_history.h"

#include <stdio.h>

#include "member/node_record.h"

#define REACH (3600 * NSEC_PER_SEC)
#define AGO_MOST_MS (INT64_C(1000) * 86400 * 365) /* whatever a core says */
#define GIVE_UP_AFTER (10 * NSEC_PER_SEC)
#define TRIES 3 /* a compaction may overtake the watch */

struct moment {
        int64_t revision;
        struct boot_time at;
};

struct top_history {
        struct top_model *model;
        struct moment *moments; /* owned; the oldest first */
        size_t n_moments;
        struct rpc_conn *rpc;
        struct rpc_call *call; /* NULL: not under way */
        int64_t from;          /* the first revision that the watch reports */
        struct boot_time begun;
        nsec_t wall; /* at `begun`, since the Epoch */
        unsigned tries;
        bool done;
};

/* ---- when ---- */

void top_history_times(struct top_history *h, const Pb__StatusResponse *p, struct boot_time now)
{
        struct moment *moments;
        size_t first = 0, n = p->n_revision_times;

        while (first + 1 < n && p->revision_times[first + 1]->ago_ms >= REACH / NSEC_PER_MSEC)
                first++;
        n -= first;
        if (n == 0 || h->tries > 0 ||
            (h->n_moments > 0 && h->moments[0].revision <= p->revision_times[first]->revision))
                return;
        moments = calloc(n, sizeof(*moments));
        if (!moments)
                return;
        for (size_t i = 0; i < n; i++) {
                const Pb__RevisionTime *t = p->revision_times[first + i];
                int64_t ago_ms = min_of(max_of(t->ago_ms, INT64_C(0)), AGO_MOST_MS);

                moments[i] =
                        (struct moment){t->revision, boot_add(now, -ago_ms * NSEC_PER_MSEC)};
        }
        free(h->moments);
        h->moments = moments;
        h->n_moments = n;
}

/* The time of a revision: that of the first moment whose revision is not smaller. */
static struct boot_time time_of(const struct top_history *h, int64_t revision)
{
        size_t low = 0, high = h->n_moments;

        while (low < high) {
                size_t mid = low + (high - low) / 2;

                if (h->moments[mid].revision < revision)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < h->n_moments ? h->moments[low].at : h->begun;
}

/* ---- what ---- */

static bool read_record(const Pb__KeyValue *kv, struct node_record *ret)
{
        return kv && node_record_read(ret, kv->value.data, kv->value.len) == 0;
}

static void gone(struct top_history *h, const char *name, const struct node_record *was,
                 const char *reason, struct boot_time at, int64_t wall)
{
        const struct top_node *n = top_node_find(h->model, name);
        struct top_facts f = {.name = name,
                              .address = was->addresses,
                              .zone = "",
                              .tags = was->tags,
                              .degraded = "",
                              .leaving = "",
                              .ttl_ms = (uint64_t) max_of(was->ttl_ms, INT64_C(0))};

        /* The watch of the present shows which members have come back since then. */
        if ((n && n->there) || top_node_put(h->model, &f) < 0)
                return;
        (void) !top_node_gone(h->model, name, reason, at, wall);
}

static void put(struct top_history *h, const char *name, const struct node_record *was,
                const struct node_record *is, int64_t wall)
{
        struct top_model *m = h->model;

        if (!was || strcmp(was->incarnation, is->incarnation) != 0)
                top_event(m, wall, TOP_NEWS, was ? "%s joined anew" : "%s joined", name);
        else if (*is->leaving && strcmp(was->leaving, is->leaving) != 0)
                top_event(m, wall, TOP_WARNING, "%s is leaving: %s", name, is->leaving);
        else if (*is->degraded && strcmp(was->degraded, is->degraded) != 0)
                top_event(m, wall, TOP_WARNING, "%s is degraded: %s", name, is->degraded);
        else if (!*is->degraded && *was->degraded)
                top_event(m, wall, TOP_NEWS, "%s is well again", name);
}

void top_history_event(struct top_history *h, const Pb__Event *e)
{
        struct node_record is = {.ttl_ms = 0}, was = {.ttl_ms = 0};
        bool before = read_record(e->prev_kv, &was), there = read_record(e->kv, &is);
        struct boot_time at = time_of(h, e->kv->mod_revision);
        int64_t wall = (h->wall - boot_diff(h->begun, at)) / NSEC_PER_SEC;
        const char *reason = *was.leaving ? was.leaving : "expired";
        char name[NODE_NAME_MAX + 1], prefix[TOP_NAME + 32];
        size_t n = (size_t) snprintf(prefix, sizeof(prefix), "/tenure/%s/nodes/",
                                     h->model->cluster);

        if (e->kv->key.len <= n || e->kv->key.len - n >= sizeof(name) ||
            memchr(e->kv->key.data, '\0', e->kv->key.len))
                return;
        snprintf(name, sizeof(name), "%.*s", (int) (e->kv->key.len - n),
                 (const char *) e->kv->key.data + n);
        if (!node_name_is_valid(name))
                return;
        if (e->type == PB__EVENT__EVENT_TYPE__DELETE) {
                top_event(h->model, wall, strcmp(reason, "expired") == 0 ? TOP_BAD : TOP_NEWS,
                          "%s left: %s", name, reason);
                gone(h, name, &was, reason, at, wall);
        } else if (there) {
                put(h, name, before ? &was : NULL, &is, wall);
        }
}

/* ---- the watch ---- */

static void begin(struct top_history *h);

static void finish(struct top_history *h)
{
        h->done = true;
        if (h->call)
                rpc_call_cancel(h->call);
}

static void on_message(struct rpc_call *call, struct view bytes)
{
        struct top_history *h = call->userdata;
        Pb__WatchResponse *p = NULL;
        int64_t upto = h->model->first_revision;

        if (pb_unpack(&pb__watch_response__descriptor, bytes, &p) < 0)
                return finish(h);
        for (size_t i = 0; i < p->n_events; i++)
                if (p->events[i]->kv && p->events[i]->kv->mod_revision <= upto) {
                        h->from = p->events[i]->kv->mod_revision + 1;
                        top_history_event(h, p->events[i]);
                }
        if (p->canceled && p->compact_revision >= h->from && h->tries < TRIES) {
                h->from = p->compact_revision + 1;
                rpc_call_cancel(call);
                begin(h);
        } else if (p->canceled || (!p->created && p->n_events == 0)) {
                finish(h); /* all was reported, or refused: this answers a later request */
        }
        pb_free(p);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        (void) code;
        (void) message;
        ((struct top_history *) call->userdata)->done = true;
}

static void on_close(struct rpc_call *call)
{
        ((struct top_history *) call->userdata)->call = NULL;
}

static int send(struct rpc_call *call, const Pb__WatchRequest *q)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, &q->base);
        return buf_error(&b) < 0 ? -ENOMEM : rpc_call_send(call, buf_head(&b), buf_len(&b));
}

static void begin(struct top_history *h)
{
        static const struct rpc_handler handler = {
                .on_message = on_message, .on_status = on_status, .on_close = on_close};
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchProgressRequest progress = PB__WATCH_PROGRESS_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        char from[TOP_NAME + 32], end[TOP_NAME + 32];
        int r;

        h->tries++;
        create.key = pb_bytes(from, (size_t) snprintf(from, sizeof(from), "/tenure/%s/nodes/",
                                                      h->model->cluster));
        create.range_end =
                pb_bytes(end, (size_t) snprintf(end, sizeof(end), "/tenure/%s/nodes0",
                                                h->model->cluster));
        create.start_revision = h->from;
        create.prev_kv = true;
        r = rpc_call_new(h->rpc, "/etcdserverpb.Watch/Watch", false, &handler, h, &h->call);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        if (r == 0)
                r = send(h->call, &q);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
        q.progress_request = &progress;
        if (r == 0)
                r = send(h->call, &q);
        if (r < 0)
                finish(h);
}

bool top_history_has_begun(const struct top_history *h)
{
        return h->tries > 0;
}

bool top_history_waits(const struct top_history *h)
{
        return h->model->ever && h->n_moments > 0 && h->tries == 0;
}

void top_history_begin(struct top_history *h, struct rpc_conn *rpc, struct boot_time now,
                       nsec_t wall)
{
        h->rpc = rpc;
        h->begun = now;
        h->wall = wall;
        h->from = h->moments[0].revision + 1;
        if (h->from > h->model->first_revision)
                h->done = true;
        else
                begin(h);
        h->tries = max_of(h->tries, 1U);
}

bool top_history_is_done(struct top_history *h, struct boot_time now)
{
        if (h->call && boot_diff(now, h->begun) > GIVE_UP_AFTER)
                finish(h);
        return h->done || h->n_moments == 0;
}

int top_history_new(struct top_history **ret, struct top_model *m)
{
        struct top_history *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->model = m;
        *ret = h;
        return 0;
}

struct top_history *top_history_free(struct top_history *h)
{
        if (!h)
                return NULL;
        if (h->call)
                rpc_call_cancel(h->call);
        free(h->moments);
        free(h);
        return NULL;
}
