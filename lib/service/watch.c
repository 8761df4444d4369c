/*
 * Watches. A watch is a cursor in the store's history: the next revision it wants. Nothing is
 * queued for it beyond what its connection has room for, so a slow reader costs a cursor and
 * slows nobody (I6: it goes on where it stopped, or is told that history was compacted away
 * under it).
 */
#include "service/internal.h"

#include <bsd/sys/queue.h>

#define QUEUED_HIGH ((size_t) 1 << 20) /* no more events into a stream that holds so much */
#define RESPONSE_BYTES \
        ((size_t) 1 << 20) /* a response ends at the revision that reaches this */
#define FRAGMENT_BYTES ((size_t) 1536 << 10)
#define WATCHES_MAX 16384 /* on one stream */
#define HELD_MAX ((size_t) 1 << 20)
#define BLOCKED_AGAIN (20 * NSEC_PER_MSEC)
#define PROGRESS_EVERY (600 * NSEC_PER_SEC)

struct watch {
        LIST_ENTRY(watch) next;
        int64_t id;
        uint8_t *key, *end; /* owned */
        struct kv_span span;
        int64_t next_revision;
        bool prev_kv, no_put, no_delete, progress_notify, fragment;
        struct boot_time told_at; /* when it last got a response */
};

struct watch_stream {
        LIST_ENTRY(watch_stream) next;
        struct watch_hub *hub;
        struct rpc_call *call;
        struct identity who; /* as of the last watch that was created */
        bool waits;          /* for this replica to know what is now */
        struct buf held;     /* requests that came meanwhile, each with its length */
        LIST_HEAD(, watch) watches;
        size_t n;
        int64_t next_id;
        bool progress_asked;
};

/* The last response that was packed, without its watch_id: watches of one key, or of one range,
 * are many, and all want the same. Valid while the state is. */
struct packed {
        struct buf bytes;
        const struct watch *of; /* NULL: none */
        int64_t from, revision; /* what it covers */
};

struct watch_hub {
        struct api *api;
        struct packed packed;
        LIST_HEAD(, watch_stream) streams;
        uint64_t auth_seen; /* auth_version() when it was last checked who may watch what */
        int64_t seen; /* every watch has what it wants up to this revision, unless `again` */
        bool again;   /* some watch is behind */
        struct core_read now; /* what streams wait for */
        bool waited_for, asking;
        struct boot_time next;
        struct boot_time leaderless_since;
};

static struct state *state_of(const struct watch_stream *s)
{
        return core_state(s->hub->api->core);
}

static void respond(struct watch_stream *s, Pb__WatchResponse *p)
{
        Pb__ResponseHeader h;

        core_header(s->hub->api->core, &h);
        p->header = &h;
        api_send(s->hub->api, s->call, &p->base);
}

/* A packed response, and the watch_id (field 2, a varint) behind it: fields come in any order.
 */
static void send_with_id(struct watch_stream *s, const struct watch *w, struct buf *bytes)
{
        size_t end = bytes->end;

        if (w->id != 0) {
                buf_add_u8(bytes, 2 << 3);
                buf_add_varint(bytes, (uint64_t) w->id);
        }
        if (buf_error(bytes) < 0 || rpc_call_send(s->call, buf_head(bytes), buf_len(bytes)) < 0)
                rpc_call_finish(s->call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        bytes->end = end;
        api_kick(s->hub->api, s->call);
}

static void watch_free(struct watch_stream *s, struct watch *w)
{
        if (s->hub->packed.of == w)
                s->hub->packed.of = NULL;
        LIST_REMOVE(w, next);
        s->n--;
        free(w->key);
        free(w->end);
        free(w);
}

static void cancel(struct watch_stream *s, struct watch *w, const char *why, int64_t compacted)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = w->id;
        p.canceled = true;
        p.compact_revision = compacted;
        p.cancel_reason = (char *) (uintptr_t) why;
        respond(s, &p);
        watch_free(s, w);
}

static bool matches(const struct watch *w, const struct kv_version *v)
{
        if (v->version > 0 ? w->no_put : w->no_delete)
                return false;
        return kv_span_has(&w->span, v->key->bytes, v->key->len);
}

static int add_event(struct arena *a, const struct watch *w, const struct kv_version *v,
                     Pb__Event **ret)
{
        Pb__Event *e = arena_alloc(a, sizeof(*e));
        const struct kv_version *prev = v->older && v->older->version > 0 ? v->older : NULL;

        if (!e)
                return -ENOMEM;
        pb__event__init(e);
        e->type = v->version > 0 ? PB__EVENT__EVENT_TYPE__PUT : PB__EVENT__EVENT_TYPE__DELETE;
        e->kv = arena_alloc(a, sizeof(*e->kv));
        if (!e->kv)
                return -ENOMEM;
        kv_fill(v, e->kv);
        if (w->prev_kv && prev) {
                e->prev_kv = arena_alloc(a, sizeof(*e->prev_kv));
                if (!e->prev_kv)
                        return -ENOMEM;
                kv_fill(prev, e->prev_kv);
        }
        *ret = e;
        return 0;
}

static bool same_bytes(struct view a, struct view b)
{
        return bytes_cmp(a.p, a.len, b.p, b.len) == 0;
}

/* Sends what was packed for another watch that wants the same. */
static bool send_packed(struct watch_stream *s, struct watch *w, struct boot_time now)
{
        struct packed *p = &s->hub->packed;
        const struct watch *o = p->of;

        if (!o || w->fragment || p->from != w->next_revision ||
            p->revision != state_of(s)->revision || o->prev_kv != w->prev_kv ||
            o->no_put != w->no_put || o->no_delete != w->no_delete ||
            !same_bytes(o->span.from, w->span.from) || !same_bytes(o->span.end, w->span.end))
                return false;
        w->next_revision = p->revision + 1;
        w->told_at = now;
        if (buf_len(&p->bytes) > 0)
                send_with_id(s, w, &p->bytes);
        return true;
}

static void pack(struct watch_stream *s, const struct watch *w, int64_t from,
                 Pb__Event **events, size_t n)
{
        Pb__WatchResponse r = PB__WATCH_RESPONSE__INIT;
        struct packed *p = &s->hub->packed;
        Pb__ResponseHeader h;

        p->of = NULL;
        buf_clear(&p->bytes);
        if (n > 0) {
                core_header(s->hub->api->core, &h);
                r.header = &h;
                r.events = events;
                r.n_events = n;
                pb_append(&p->bytes, &r.base);
        }
        if (buf_error(&p->bytes) < 0)
                return;
        p->of = w;
        p->from = from;
        p->revision = state_of(s)->revision;
}

static size_t event_size(const Pb__Event *e)
{
        return e->kv->key.len + e->kv->value.len + (e->prev_kv ? e->prev_kv->value.len : 0) +
               64;
}

/* As one response, or, for who asked for fragments, in parts that a client takes. */
static void send_in_parts(struct watch_stream *s, struct watch *w, Pb__Event **events, size_t n)
{
        for (size_t from = 0; from < n;) {
                Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
                size_t to = from + 1, bytes = event_size(events[from]);

                while (to < n &&
                       (!w->fragment || bytes + event_size(events[to]) <= FRAGMENT_BYTES))
                        bytes += event_size(events[to++]);
                p.watch_id = w->id;
                p.events = events + from;
                p.n_events = to - from;
                p.fragment = to < n;
                respond(s, &p);
                from = to;
        }
}

/* One response: whole revisions from the cursor on, until enough. Returns false when nothing
 * was left to look at. */
static bool send_events(struct watch_stream *s, struct watch *w, struct boot_time now)
{
        struct state *st = state_of(s);
        cleanup_(arena_fini) struct arena a = {0};
        cleanup_(freep) Pb__Event **events = NULL;
        size_t at, n = 0, cap = 0, bytes = 0;
        int64_t from;

        if (w->next_revision > st->revision || send_packed(s, w, now))
                return false;
        from = w->next_revision;
        at = kv_history_seek(&st->kv, w->next_revision);
        for (; at < st->kv.history_to; at++) {
                const struct kv_version *v = st->kv.history[at];

                if (bytes >= RESPONSE_BYTES && v->mod_revision >= w->next_revision)
                        break;
                w->next_revision = v->mod_revision + 1;
                if (!matches(w, v))
                        continue;
                if (array_reserve(&events, &cap, n + 1, sizeof(*events)) < 0 ||
                    add_event(&a, w, v, &events[n]) < 0) {
                        rpc_call_finish(s->call, RPC_RESOURCE_EXHAUSTED, "out of memory");
                        return false;
                }
                n++;
                bytes += v->key->len + v->value_len + 64;
        }
        if (at == st->kv.history_to)
                w->next_revision = st->revision + 1;
        if (n > 0)
                w->told_at = now;
        if (w->next_revision > st->revision && !w->fragment) {
                pack(s, w, from, events, n);
                if (n > 0)
                        send_with_id(s, w, &s->hub->packed.bytes);
        } else {
                send_in_parts(s, w, events, n);
        }
        return w->next_revision <= st->revision;
}

/* Returns true when the watch has all there is. */
static bool catch_up(struct watch_stream *s, struct watch *w, struct boot_time now)
{
        for (;;) {
                if (rpc_call_queued(s->call) > QUEUED_HIGH)
                        return false;
                if (!send_events(s, w, now))
                        return true;
        }
}

static void report_progress(struct watch_stream *s, int64_t id)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = id;
        respond(s, &p);
}

static void flush_stream(struct watch_stream *s, struct boot_time now)
{
        struct watch_hub *h = s->hub;
        struct watch *w, *next;
        bool all = true;

        LIST_FOREACH_SAFE (w, &s->watches, next, next) {
                if (w->next_revision <= state_of(s)->revision &&
                    w->next_revision < state_of(s)->kv.compacted) {
                        cancel(s, w, status_of(STATE_E_COMPACTED).text,
                               state_of(s)->kv.compacted);
                        continue;
                }
                if (!catch_up(s, w, now)) {
                        all = false;
                        continue;
                }
                if (w->progress_notify && boot_diff(now, w->told_at) >= PROGRESS_EVERY) {
                        w->told_at = now;
                        report_progress(s, w->id);
                }
                if (w->progress_notify)
                        h->next = boot_min(h->next, boot_add(w->told_at, PROGRESS_EVERY));
        }
        if (all && s->progress_asked) {
                s->progress_asked = false;
                report_progress(s, -1);
        }
        if (!all) {
                h->again = true;
                h->next = boot_min(h->next, boot_add(now, BLOCKED_AGAIN));
        }
}

/* `hasleader` streams end once there has been no leader for an election timeout, so that the
 * client goes elsewhere. */
static void check_leader(struct watch_hub *h, struct boot_time now)
{
        struct watch_stream *s;

        if (core_status(h->api->core).leader_id != 0) {
                h->leaderless_since = BOOT_TIME_NEVER;
                return;
        }
        if (h->leaderless_since.ns == BOOT_TIME_NEVER.ns)
                h->leaderless_since = now;
        h->next = boot_min(h->next, boot_add(now, 100 * NSEC_PER_MSEC));
        if (boot_diff(now, h->leaderless_since) < core_config(h->api->core)->leader_timeout)
                return;
        keepalive_no_leader(h->api);
        LIST_FOREACH (s, &h->streams, next)
                if (s->call->want_leader) {
                        rpc_call_finish(s->call, status_no_leader.code, status_no_leader.text);
                        api_kick(h->api, s->call);
                }
}

static struct status may_watch(const struct watch_stream *s, ProtobufCBinaryData key,
                               ProtobufCBinaryData range_end)
{
        return status_of(
                permit_range(state_of(s), &s->who.user, &key, &range_end, PERMIT_READ));
}

/* Another number whenever somebody may lose what they had. */
static uint64_t auth_version(const struct watch_hub *h)
{
        const struct auth *a = &core_state(h->api->core)->auth;

        return a->revision << 1 | a->enabled;
}

/* Who may not look any more, sees no more. */
static void check_permits(struct watch_hub *h)
{
        struct watch_stream *s;
        struct watch *w, *next;

        if (h->auth_seen == auth_version(h))
                return;
        h->auth_seen = auth_version(h);
        LIST_FOREACH (s, &h->streams, next)
                LIST_FOREACH_SAFE (w, &s->watches, next, next) {
                        struct status st =
                                may_watch(s, pb_bytes(w->span.from.p, w->span.from.len),
                                          pb_bytes(w->span.end.p, w->span.end.len));

                        if (st.code != RPC_OK)
                                cancel(s, w, st.text, 0);
                }
}

static void ask_for_now(struct watch_hub *h);

void watch_hub_flush(struct watch_hub *h, struct boot_time now)
{
        int64_t revision = core_state(h->api->core)->revision;
        bool due = !boot_before(now, h->next);
        struct watch_stream *s, *next;

        if (due)
                h->next = BOOT_TIME_NEVER;
        check_leader(h, now);
        check_permits(h);
        ask_for_now(h);
        if (revision == h->seen && !h->again && !due)
                return;
        h->again = false;
        h->seen = revision;
        LIST_FOREACH_SAFE (s, &h->streams, next, next)
                flush_stream(s, now);
}

struct boot_time watch_hub_next(const struct watch_hub *h)
{
        return h->next;
}

static bool id_taken(const struct watch_stream *s, int64_t id)
{
        const struct watch *w;

        LIST_FOREACH (w, &s->watches, next)
                if (w->id == id)
                        return true;
        return false;
}

static void refuse(struct watch_stream *s, int64_t id, const char *why)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        p.watch_id = id;
        p.created = true;
        p.canceled = true;
        p.cancel_reason = (char *) (uintptr_t) why;
        respond(s, &p);
}

static void create(struct watch_stream *s, const Pb__WatchCreateRequest *q)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        ProtobufCBinaryData key = q->key;
        uint8_t first[1] = {0};
        struct identity who = {0};
        struct status st;
        struct watch *w;

        if (q->watch_id != 0 && id_taken(s, q->watch_id))
                return refuse(s, -1, "mvcc: duplicate watch ID provided on the WatchStream");
        if (s->n >= WATCHES_MAX)
                return refuse(s, -1, "etcdserver: too many requests");
        if (key.len == 0) /* no key: from the smallest one on */
                key = pb_bytes(first, 1);
        st = identify(s->hub->api, s->call, &who);
        if (st.code == RPC_OK) {
                identity_fini(&s->who);
                s->who = who;
                st = may_watch(s, key, q->range_end);
        }
        if (st.code != RPC_OK)
                return refuse(s, -1, st.text);
        w = calloc(1, sizeof(*w));
        if (!w)
                return rpc_call_finish(s->call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        w->id = q->watch_id;
        if (w->id == 0) {
                while (id_taken(s, s->next_id))
                        s->next_id++;
                w->id = s->next_id++;
        }
        w->key = malloc(key.len);
        w->end = malloc(q->range_end.len + 1);
        LIST_INSERT_HEAD(&s->watches, w, next);
        s->n++;
        if (!w->key || !w->end) {
                watch_free(s, w);
                return rpc_call_finish(s->call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        }
        memcpy(w->key, key.data, key.len);
        if (q->range_end.len > 0)
                memcpy(w->end, q->range_end.data, q->range_end.len);
        w->span = kv_span(&(ProtobufCBinaryData){key.len, w->key},
                          &(ProtobufCBinaryData){q->range_end.len, w->end});
        w->next_revision =
                q->start_revision > 0 ? q->start_revision : state_of(s)->revision + 1;
        w->prev_kv = q->prev_kv;
        w->progress_notify = q->progress_notify;
        w->fragment = q->fragment;
        w->told_at = core_now(s->hub->api->core);
        for (size_t i = 0; i < q->n_filters; i++) {
                w->no_put = w->no_put ||
                            q->filters[i] == PB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
                w->no_delete = w->no_delete ||
                               q->filters[i] == PB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE;
        }
        p.watch_id = w->id;
        p.created = true;
        respond(s, &p);
        s->hub->again = true;
}

/* "From now on" means nothing on a replica that has just started, until it knows what is now.
 */
static bool asks_for_now(const struct watch_stream *s, const Pb__WatchRequest *q)
{
        return q->request_union_case == PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST &&
               q->create_request->start_revision <= 0 && !core_caught_up(s->hub->api->core);
}

static void hold(struct watch_stream *s, struct view m)
{
        s->waits = s->hub->waited_for = true;
        buf_add_bytes(&s->held, m.p, m.len);
        if (buf_error(&s->held) < 0 || buf_len(&s->held) > HELD_MAX)
                rpc_call_finish(s->call, status_too_many.code, status_too_many.text);
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct watch_stream *s = call->userdata;
        Pb__WatchRequest *q;
        struct watch *w;
        int r;

        if (s->waits)
                return hold(s, m);
        r = pb_unpack(&pb__watch_request__descriptor, m, &q);
        if (r < 0)
                return rpc_call_finish(call, status_unpacked(r).code, status_unpacked(r).text);
        if (asks_for_now(s, q)) {
                pb_free(q);
                return hold(s, m);
        }
        switch (q->request_union_case) {
        case PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST:
                create(s, q->create_request);
                break;
        case PB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST:
                LIST_FOREACH (w, &s->watches, next)
                        if (w->id == q->cancel_request->watch_id) {
                                cancel(s, w, "", 0);
                                break;
                        }
                break;
        case PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST:
                s->progress_asked = true;
                s->hub->again = true;
                break;
        default:
                break;
        }
        pb_free(q);
}

/* Now it is known: what was held goes on. */
static void let_go(struct watch_hub *h)
{
        struct watch_stream *s, *next;

        h->waited_for = false;
        LIST_FOREACH_SAFE (s, &h->streams, next, next) {
                cleanup_(buf_fini) struct buf held = s->held;
                struct view all = {buf_head(&held), buf_len(&held)}, m;

                s->held = (struct buf){0};
                s->waits = false;
                while (view_bytes(&all, &m) == 0)
                        on_message(s->call, m);
        }
}

static void now_known(struct core_read *rd, struct status st)
{
        (void) st; /* asked again if not */
        container_of(rd, struct watch_hub, now)->asking = false;
}

static void ask_for_now(struct watch_hub *h)
{
        if (!h->waited_for || h->asking)
                return;
        if (core_caught_up(h->api->core))
                return let_go(h);
        h->asking = true;
        h->now.done = now_known;
        core_read(h->api->core, &h->now, 0);
}

static void on_end(struct rpc_call *call)
{
        rpc_call_finish(call, RPC_OK, "");
}

static void on_close(struct rpc_call *call)
{
        struct watch_stream *s = call->userdata;
        struct watch *w;

        while ((w = LIST_FIRST(&s->watches)))
                watch_free(s, w);
        LIST_REMOVE(s, next);
        identity_fini(&s->who);
        buf_fini(&s->held);
        free(s);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_end = on_end, .on_close = on_close};

void watch_accept(struct api *a, struct rpc_call *call)
{
        struct watch_stream *s;

        if (call->want_leader && core_status(a->core).leader_id == 0)
                return rpc_call_finish(call, status_no_leader.code, status_no_leader.text);
        s = calloc(1, sizeof(*s));
        if (!s)
                return rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        s->hub = a->watches;
        s->call = call;
        LIST_INIT(&s->watches);
        LIST_INSERT_HEAD(&a->watches->streams, s, next);
        call->userdata = s;
        call->handler = &handler;
}

int watch_hub_new(struct watch_hub **ret, struct api *a)
{
        struct watch_hub *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->api = a;
        h->next = BOOT_TIME_NEVER;
        h->leaderless_since = BOOT_TIME_NEVER;
        h->seen = core_state(a->core)->revision;
        h->auth_seen = auth_version(h);
        LIST_INIT(&h->streams);
        *ret = h;
        return 0;
}

/* The connections, and with them the streams, are gone before. */
struct watch_hub *watch_hub_free(struct watch_hub *h)
{
        assert(!h || LIST_EMPTY(&h->streams));
        if (h)
                buf_fini(&h->packed.bytes);
        free(h);
        return NULL;
}
