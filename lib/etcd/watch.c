/*
 * Watches: the requests on watch streams, permissions, progress notifications. A watch is a
 * cursor in the store's history. Nothing is queued for it beyond what its stream has room for,
 * so a slow reader costs a cursor and slows nobody down (I6: it goes on where it stopped, or
 * gets an error that the history was compacted). watch_feed.c decides what is sent, and when.
 */
#include "etcd/watch.h"

#include "base/probe.h"

#define PROGRESS_MAX 1000   /* watches that are notified in one turn */
#define TURN_STEPS 40000    /* in one turn of the loop: about 2 ms */
#define CHECK_STEPS 10      /* to check whether a watch is still permitted */
#define FREE_AT_ONCE 1000   /* watches of a stream that has ended: about 1 ms; the others ... */
#define FREE_IN_TURN 2000   /* ... in the following turns */
#define RESUMED_AT_ONCE 500 /* streams that waited for the current revision: about 2 ms */

static int watch_id_cmp(const struct watch *a, const struct watch *b)
{
        return a->id < b->id ? -1 : a->id > b->id;
}

TREE_GENERATE(watch_ids, watch, by_id, watch_id_cmp)

static struct state *state_of(const struct watch_stream *s)
{
        return core_state(s->hub->api->core);
}

void watch_respond(struct watch_stream *s, Pb__WatchResponse *p)
{
        Pb__ResponseHeader h;

        core_header(s->hub->api->core, &h);
        p->header = &h;
        api_send(s->hub->api, s->call, &p->base);
}

/* Counts the whole group for each watch: any of them may be the last that is left. */
static size_t watch_cost(const struct kv_span *span)
{
        return sizeof(struct watch) + span->from.len + span->end.len +
               sizeof(struct watch_group) + WATCH_EVENTS_KEPT * sizeof(struct kv_version *) +
               3 * BLOCK;
}

void watch_free(struct watch *w)
{
        struct watch_hub *h = w->stream->hub;

        watch_unplace(w);
        if (w->progress_notify)
                TAILQ_REMOVE(&h->by_sent, w, by_sent);
        RB_REMOVE(watch_ids, &w->stream->watches, w);
        h->counts.n--;
        if (w->stream->call)
                rpc_call_drop_kept(w->stream->call, watch_cost(&w->span));
        free(w);
}

void watch_cancel(struct watch *w, const char *why, int64_t compacted)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = w->id;
        p.canceled = true;
        p.compact_revision = compacted;
        p.cancel_reason = (char *) (uintptr_t) why;
        if (w->stream->call)
                watch_respond(w->stream, &p);
        watch_free(w);
}

void watch_note_sent(struct watch *w, struct boot_time now)
{
        struct watch_hub *h = w->stream->hub;

        if (!w->progress_notify)
                return;
        w->sent_at = now;
        TAILQ_REMOVE(&h->by_sent, w, by_sent);
        TAILQ_INSERT_TAIL(&h->by_sent, w, by_sent);
}

static void report_progress(struct watch_stream *s, int64_t id)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = id;
        watch_respond(s, &p);
}

void watch_list_asked(struct watch_stream *s, bool on)
{
        if (!s->progress_asked || s->n_behind > 0)
                return;
        if (on)
                LIST_INSERT_HEAD(&s->hub->asked, s, by_asked);
        else
                LIST_REMOVE(s, by_asked);
}

/* A progress notification promises that the client has everything up to its revision, so only a
 * watch that is up to date gets one. */
static void tell_progress(struct watch_hub *h, struct boot_time now)
{
        nsec_t every = core_config(h->api->core)->watch_progress;
        unsigned left = PROGRESS_MAX;
        struct watch_stream *s;
        struct watch *w;

        for (; left > 0 && (s = LIST_FIRST(&h->asked)); left--) {
                watch_list_asked(s, false);
                s->progress_asked = false;
                report_progress(s, -1);
        }
        if (!LIST_EMPTY(&h->asked))
                h->next = now;
        while (left-- > 0 && (w = TAILQ_FIRST(&h->by_sent)) &&
               boot_diff(now, w->sent_at) >= every) {
                watch_note_sent(w, now);
                if (w->feed == &h->feeds[FEED_NOW] && w->stream->call) {
                        PROBE("a watch without events is notified of its progress");
                        report_progress(w->stream, w->id);
                }
        }
}

static struct status may_watch(const struct watch_stream *s, const struct kv_span *span)
{
        ProtobufCBinaryData key = pb_bytes(span->from.p, span->from.len),
                            range_end = pb_bytes(span->end.p, span->end.len);

        return status_of(
                permit_range(state_of(s), &s->who.user, &key, &range_end, PERMIT_READ));
}

/* A number that changes whenever somebody may have lost a permission. */
static uint64_t auth_version(const struct watch_hub *h)
{
        const struct auth *a = &core_state(h->api->core)->auth;

        return a->revision << 1 | a->enabled;
}

/* Goes on to check which watches are still permitted. Returns true when all have been checked.
 */
static bool check_watches(struct watch_hub *h, struct watch_budget *b)
{
        while (h->check_at) {
                struct watch key = {.id = h->check_id}, *w, *next;

                for (w = RB_NFIND(watch_ids, &h->check_at->watches, &key); w; w = next) {
                        struct status st;

                        if (b->left <= 0) {
                                h->check_id = w->id;
                                return false;
                        }
                        b->left -= CHECK_STEPS;
                        next = RB_NEXT(watch_ids, NULL, w);
                        st = identify_late(h->api, h->check_at->call, &h->check_at->who);
                        if (st.code == RPC_OK)
                                st = may_watch(h->check_at, &w->span);
                        if (st.code != RPC_OK) {
                                char why[STATUS_PRINTED];

                                PROBE("a watch ends because its user may read no more");
                                status_print(st, why);
                                watch_cancel(w, why, 0);
                        }
                }
                h->check_at = LIST_NEXT(h->check_at, next);
                h->check_id = INT64_MIN;
        }
        return true;
}

/* A watch that is no longer permitted sees nothing more: nothing is sent until all watches have
 * been checked. */
static bool check_permits(struct watch_hub *h, struct watch_budget *b)
{
        if (h->auth_seen != auth_version(h)) {
                h->auth_seen = auth_version(h);
                h->check_at =
                        core_state(h->api->core)->auth.enabled ? LIST_FIRST(&h->streams) : NULL;
                h->check_id = INT64_MIN;
        }
        return check_watches(h, b);
}

static void ask_for_now(struct watch_hub *h);

/* Frees at most @n watches of a stream that has ended. */
static bool free_watches(struct watch_stream *s, size_t *n)
{
        struct watch *w;

        for (; (w = RB_ROOT(&s->watches)); (*n)--) {
                if (*n == 0)
                        return false;
                watch_free(w);
        }
        return true;
}

/* Frees watches of ended streams that had too many to free at once. */
static void free_more(struct watch_hub *h, size_t n)
{
        struct watch_stream *s;

        while ((s = LIST_FIRST(&h->leaving)) && free_watches(s, &n)) {
                LIST_REMOVE(s, next);
                free(s);
        }
}

struct watch_counts watch_hub_counts(const struct watch_hub *h)
{
        return h->counts;
}

void watch_hub_flush(struct watch_hub *h, struct boot_time now)
{
        struct watch_budget budget = {TURN_STEPS};
        struct watch *w;

        free_more(h, FREE_IN_TURN);
        h->next = LIST_EMPTY(&h->leaving) ? BOOT_TIME_NEVER : now;
        ask_for_now(h);
        if (!check_permits(h, &budget)) {
                h->next = now;
                return;
        }
        if (watch_feeds_run(h, now, &budget))
                tell_progress(h, now);
        if ((w = TAILQ_FIRST(&h->by_sent)))
                h->next =
                        boot_min(h->next, boot_add(w->sent_at,
                                                   core_config(h->api->core)->watch_progress));
}

struct boot_time watch_hub_next(const struct watch_hub *h)
{
        return h->next;
}

static bool id_taken(const struct watch_stream *s, int64_t id)
{
        struct watch key = {.id = id};

        return RB_FIND(watch_ids, (struct watch_ids *) (uintptr_t) &s->watches, &key);
}

/* A watch that was not created has no id. */
static void refuse(struct watch_stream *s, const char *why)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = -1;
        p.created = true;
        p.canceled = true;
        p.cancel_reason = (char *) (uintptr_t) why;
        watch_respond(s, &p);
}

static void refuse_status(struct watch_stream *s, struct status st)
{
        char why[STATUS_PRINTED];

        status_print(st, why);
        refuse(s, why);
}

/* A watch of @span, as @q asks for it; NULL without memory. */
static struct watch *watch_new(const struct kv_span *span, const Pb__WatchCreateRequest *q)
{
        struct watch *w = calloc(1, sizeof(*w) + span->from.len + span->end.len);

        if (!w)
                return NULL;
        memcpy(w->bytes, span->from.p, span->from.len);
        if (span->end.len > 0)
                memcpy(w->bytes + span->from.len, span->end.p, span->end.len);
        w->span = *span;
        w->span.from.p = w->bytes;
        w->span.end.p = w->bytes + span->from.len;
        w->prev_kv = q->prev_kv;
        w->progress_notify = q->progress_notify;
        w->fragment = q->fragment;
        for (size_t i = 0; i < q->n_filters; i++) {
                w->no_put = w->no_put ||
                            q->filters[i] == PB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
                w->no_delete = w->no_delete ||
                               q->filters[i] == PB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE;
        }
        return w;
}

static int64_t new_id(struct watch_stream *s)
{
        while (id_taken(s, s->next_id))
                s->next_id++;
        return s->next_id++;
}

static void create(struct watch_stream *s, const Pb__WatchCreateRequest *q)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        uint8_t first[1] = {0};
        ProtobufCBinaryData key = q->key.len > 0 ? q->key : pb_bytes(first, 1);
        struct kv_span span = kv_span(&key, &q->range_end);
        struct watch_hub *h = s->hub;
        struct identity who = {0};
        struct status st;
        struct watch *w;

        st = identify(h->api, s->call, &who);
        if (st.code == RPC_OK) {
                identity_fini(&s->who);
                s->who = who;
                st = may_watch(s, &span);
        }
        if (st.code != RPC_OK)
                return refuse_status(s, st);
        if (kv_span_is_empty(&span))
                return refuse(s, "mvcc: watcher range is empty");
        if (q->watch_id != 0 && id_taken(s, q->watch_id))
                return refuse(s, "mvcc: duplicate watch ID provided on the WatchStream");
        if (!rpc_call_keep(s->call, watch_cost(&span)))
                return refuse_status(s, status_too_many);
        w = watch_new(&span, q);
        if (!w) {
                rpc_call_drop_kept(s->call, watch_cost(&span));
                return rpc_call_finish(s->call, status_nomem.code, status_nomem.text);
        }
        w->stream = s;
        w->id = q->watch_id != 0 ? q->watch_id : new_id(s);
        w->next_revision =
                q->start_revision != 0 ? q->start_revision : state_of(s)->revision + 1;
        w->sent_at = core_now(h->api->core);
        RB_INSERT(watch_ids, &s->watches, w);
        h->counts.n++;
        if (w->progress_notify)
                TAILQ_INSERT_TAIL(&h->by_sent, w, by_sent);
        p.watch_id = w->id;
        p.created = true;
        watch_respond(s, &p);
        watch_place(w);
}

/* "From now on" has no meaning on a replica that has just started, until it knows the current
 * revision. */
static bool asks_for_now(const struct watch_stream *s, const Pb__WatchRequest *q)
{
        return q->request_union_case == PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST &&
               q->create_request->start_revision == 0 && !core_caught_up(s->hub->api->core);
}

/* The request waits here until resume_waiting(); what the client sends meanwhile waits in its
 * window. */
static void wait_for_now(struct watch_stream *s, struct view m)
{
        buf_add(&s->request, m.p, m.len);
        if (buf_error(&s->request) < 0)
                return rpc_call_finish(s->call, status_nomem.code, status_nomem.text);
        LIST_INSERT_HEAD(&s->hub->waiting, s, by_waiting);
        rpc_call_charge(s->call, buf_len(&s->request));
        rpc_call_hold(s->call);
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct watch_stream *s = call->userdata;
        Pb__WatchRequest *q;
        struct watch key, *w;
        int r;

        r = pb_unpack(&pb__watch_request__descriptor, m, &q);
        if (r < 0)
                return rpc_call_finish(call, status_unpacked(r).code, status_unpacked(r).text);
        if (asks_for_now(s, q)) {
                pb_free(q);
                return wait_for_now(s, m);
        }
        switch (q->request_union_case) {
        case PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST:
                create(s, q->create_request);
                break;
        case PB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST:
                key.id = q->cancel_request->watch_id;
                w = RB_FIND(watch_ids, &s->watches, &key);
                if (w)
                        watch_cancel(w, "", 0);
                break;
        case PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST:
                if (!s->progress_asked) {
                        s->progress_asked = true;
                        watch_list_asked(s, true);
                }
                break;
        default:
                break;
        }
        pb_free(q);
}

/* The current revision is known: goes on with the requests that wait for it, some of them in
 * each turn. */
static void resume_waiting(struct watch_hub *h)
{
        unsigned left = RESUMED_AT_ONCE;
        struct watch_stream *s;

        for (; left > 0 && (s = LIST_FIRST(&h->waiting)); left--) {
                cleanup_(buf_fini) struct buf request = s->request;

                s->request = (struct buf){0};
                LIST_REMOVE(s, by_waiting);
                rpc_call_charge(s->call, 0);
                on_message(s->call, (struct view){buf_head(&request), buf_len(&request)});
                rpc_call_release(s->call);
                api_kick(h->api, s->call);
        }
        if (!LIST_EMPTY(&h->waiting))
                h->next = core_now(h->api->core);
}

static void now_known(struct core_read *rd, struct status st)
{
        (void) st; /* if it failed, it is tried again */
        container_of(rd, struct watch_hub, now)->asking = false;
}

static void ask_for_now(struct watch_hub *h)
{
        if (LIST_EMPTY(&h->waiting) || h->asking)
                return;
        if (core_caught_up(h->api->core))
                return resume_waiting(h);
        h->asking = true;
        h->now.done = now_known;
        core_read(h->api->core, &h->now, 0);
}

static void on_close(struct rpc_call *call)
{
        struct watch_stream *s = call->userdata;
        struct watch_hub *h = s->hub;
        size_t n = FREE_AT_ONCE;

        s->call = NULL;
        if (h->check_at == s) {
                h->check_at = LIST_NEXT(s, next);
                h->check_id = INT64_MIN;
        }
        watch_list_asked(s, false);
        s->progress_asked = false;
        LIST_REMOVE(s, next);
        h->counts.streams--;
        identity_fini(&s->who);
        if (buf_len(&s->request) > 0)
                LIST_REMOVE(s, by_waiting);
        buf_fini(&s->request);
        if (free_watches(s, &n))
                return free(s);
        LIST_INSERT_HEAD(&h->leaving, s, next);
        h->next = core_now(h->api->core);
}

/* A client that has ended its side, as curl does, still gets events. */
static const struct rpc_handler handler = {.on_message = on_message, .on_close = on_close};

static void watch_accept(struct api *a, struct rpc_call *call)
{
        struct watch_stream *s = calloc(1, sizeof(*s));

        if (!s)
                return rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        s->hub = a->watches;
        s->call = call;
        RB_INIT(&s->watches);
        TAILQ_INIT(&s->blocked);
        LIST_INSERT_HEAD(&a->watches->streams, s, next);
        a->watches->counts.streams++;
        call->userdata = s;
        call->handler = &handler;
}

const struct method watch_methods[] = {
        {"/etcdserverpb.Watch/Watch", .stream = watch_accept, .kind = BIDI_STREAM,
         .hasleader = true},
};
const size_t n_watch_methods = ARRAY_SIZE(watch_methods);

int watch_hub_new(struct watch_hub **ret, struct api *a)
{
        struct watch_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        h->next = BOOT_TIME_NEVER;
        h->auth_seen = auth_version(h);
        LIST_INIT(&h->streams);
        LIST_INIT(&h->leaving);
        TAILQ_INIT(&h->blocked);
        LIST_INIT(&h->asked);
        LIST_INIT(&h->waiting);
        TAILQ_INIT(&h->by_sent);
        watch_feeds_init(h);
        *ret = h;
        return 0;
}

/* The connections, and so the streams, must have ended before. */
struct watch_hub *watch_hub_free(struct watch_hub *h)
{
        assert(!h || LIST_EMPTY(&h->streams));
        if (h)
                free_more(h, SIZE_MAX);
        for (size_t i = 0; h && i < N_FEEDS; i++)
                for (size_t k = 0; k < ARRAY_SIZE(h->feeds[i].packs); k++)
                        buf_fini(&h->feeds[i].packs[k].bytes);
        free(h);
        return NULL;
}
