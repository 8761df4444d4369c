/* Packs events into responses, once for all watches of a group that want the same. */
#include "etcd/watch.h"

/* The size of a part, for a client that asked for fragments. A response that is larger than
 * clients accept by default is sent to everybody in such parts: one deletion may report
 * gigabytes of old values. */
#define FRAGMENT_BYTES ((size_t) 1536 << 10)
#define WHOLE_MAX ((size_t) 4 << 20)
#define PART_EVENTS 4096
#define SEND_STEPS 8   /* to pack a response, in addition to its bytes */
#define EVENT_STEPS 8  /* to make one event */
#define PACK_EVENTS 64 /* events packed at once */
#define STEP_BYTES 256 /* bytes copied in one step */

void watch_packs_clear(struct watch_feed *f)
{
        f->packs_of = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(f->packs); i++) {
                f->packs[i].at = f->packs[i].n = 0;
                f->packs[i].begun = false;
                buf_clear(&f->packs[i].bytes);
                if (f->packs[i].bytes.cap > 65536)
                        buf_fini(&f->packs[i].bytes);
        }
}

static void out_of_memory(struct watch *w)
{
        rpc_call_finish(w->stream->call, status_nomem.code, status_nomem.text);
        api_kick(w->stream->hub->api, w->stream->call);
}

/* Sends a packed response, with the watch_id (field 2, a varint) behind it: fields may come in
 * any order. */
static void send_with_id(struct watch *w, struct buf *bytes)
{
        struct watch_stream *s = w->stream;
        size_t end = bytes->end;

        if (w->id != 0) {
                buf_add_u8(bytes, 2 << 3);
                buf_add_varint(bytes, (uint64_t) w->id);
        }
        if (buf_error(bytes) < 0 || rpc_call_send(s->call, buf_head(bytes), buf_len(bytes)) < 0)
                out_of_memory(w);
        bytes->end = end;
        api_kick(s->hub->api, s->call);
}

const struct kv_version *watch_prev(const struct kv_version *v)
{
        const struct kv_version *prev = v->older;

        while (prev && v->version == 0 && prev->mod_revision == v->mod_revision)
                prev = prev->older;
        return prev && prev->version > 0 ? prev : NULL;
}

static int add_event(struct arena *a, const struct watch *w, const struct kv_version *v,
                     Pb__Event **ret)
{
        Pb__Event *e = arena_alloc(a, sizeof(*e));
        const struct kv_version *prev = w->prev_kv ? watch_prev(v) : NULL;

        if (!e)
                return -ENOMEM;
        pb__event__init(e);
        e->type = v->version > 0 ? PB__EVENT__EVENT_TYPE__PUT : PB__EVENT__EVENT_TYPE__DELETE;
        e->kv = arena_alloc(a, sizeof(*e->kv));
        if (!e->kv)
                return -ENOMEM;
        kv_fill(v, e->kv);
        if (prev) {
                e->prev_kv = arena_alloc(a, sizeof(*e->prev_kv));
                if (!e->prev_kv)
                        return -ENOMEM;
                kv_fill(prev, e->prev_kv);
        }
        *ret = e;
        return 0;
}

static bool wants(const struct watch *w, const struct kv_version *v)
{
        return !(v->version > 0 ? w->no_put : w->no_delete);
}

/* Finds the events from @at to @end of @g that match @w. Returns 0 or -ENOMEM. */
static int wanted_events(const struct watch *w, const struct watch_group *g, size_t at,
                         size_t end, struct arena *a, Pb__Event ***ret, size_t *ret_n)
{
        Pb__Event **events = arena_alloc(a, (end - at) * sizeof(Pb__Event *));
        size_t n = 0;

        if (!events)
                return -ENOMEM;
        for (size_t i = at; i < end; i++)
                if (wants(w, g->events[i]) && add_event(a, w, g->events[i], &events[n++]) < 0)
                        return -ENOMEM;
        *ret = events;
        *ret_n = n;
        return 0;
}

/* Packs a piece of the response: the concatenated pieces of a message are one message. */
static int pack_more(const struct watch *w, const struct watch_group *g,
                     struct watch_pack *pack, struct watch_budget *b)
{
        Pb__WatchResponse r = PB__WATCH_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        size_t was = buf_len(&pack->bytes), end = min_of(pack->at + PACK_EVENTS, g->n_events);
        Pb__ResponseHeader h;

        if (wanted_events(w, g, pack->at, end, &a, &r.events, &r.n_events) < 0)
                return -ENOMEM;
        if (r.n_events > 0) {
                if (!pack->begun) {
                        core_header(w->stream->hub->api->core, &h);
                        r.header = &h;
                }
                pack->begun = true;
                pack->n += r.n_events;
                pb_append(&pack->bytes, &r.base);
        }
        b->left -= (int64_t) ((end - pack->at) * EVENT_STEPS +
                              (buf_len(&pack->bytes) - was) / STEP_BYTES);
        pack->at = end;
        return buf_error(&pack->bytes);
}

/* About the size of @v in a response to @w. */
static size_t event_size(const struct watch *w, const struct kv_version *v)
{
        const struct kv_version *prev = w->prev_kv ? watch_prev(v) : NULL;

        return v->key->len + v->value_len + 64 + (prev ? v->key->len + prev->value_len : 0);
}

/* The first event of @g, from revision @from on, that @w has not been sent. */
static size_t first_of(const struct watch *w, const struct watch_group *g, int64_t from)
{
        size_t lo = 0, hi = g->n_events;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;

                if (g->events[mid]->mod_revision < from)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return min_of(lo + (from == w->next_revision ? w->n_sent : 0), g->n_events);
}

/* @w has been sent all of @g before @at. */
static void note_sent(struct watch *w, const struct watch_group *g, size_t at)
{
        size_t n = 0;

        while (n < at && g->events[at - n - 1]->mod_revision == g->events[at]->mod_revision)
                n++;
        watch_pass(w, g->events[at]->mod_revision);
        w->n_sent = n;
}

/* The client has to read first or, if very much is held, other clients have to. */
static bool is_full(const struct watch *w, size_t bytes)
{
        return rpc_call_queued_patient(w->stream->call, bytes) > WATCH_QUEUED_HIGH;
}

/* Sends the events as one response, or in parts of @most bytes, each when the client has taken
 * the last: a client that does not know parts takes each as a response of its own. */
static enum watch_sent send_alone(struct watch *w, const struct watch_group *g, int64_t from,
                                  size_t most, struct boot_time now, struct watch_budget *b)
{
        for (size_t at = first_of(w, g, from), end; at < g->n_events; at = end) {
                Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
                cleanup_(arena_fini) struct arena a = {0};
                size_t bytes = 0, n_most = most < SIZE_MAX ? PART_EVENTS : SIZE_MAX;

                for (end = at; end < g->n_events && end - at < n_most; end++) {
                        size_t n = event_size(w, g->events[end]);

                        if (end > at && bytes + n > most)
                                break;
                        bytes += wants(w, g->events[end]) ? n : 0;
                }
                b->left -= (int64_t) ((end - at) * EVENT_STEPS + bytes / STEP_BYTES);
                if (is_full(w, bytes))
                        return WATCH_FULL;
                if (wanted_events(w, g, at, end, &a, &p.events, &p.n_events) < 0) {
                        out_of_memory(w);
                        return WATCH_SENT;
                }
                p.watch_id = w->id;
                p.fragment = end < g->n_events;
                if (p.n_events > 0 || (w->in_parts && !p.fragment)) {
                        watch_respond(w->stream, &p);
                        w->stream->hub->counts.events += p.n_events;
                        watch_note_sent(w, now);
                        w->in_parts = p.fragment;
                }
                if (end == g->n_events)
                        break;
                note_sent(w, g, end);
                if (b->left <= 0)
                        return WATCH_MORE;
        }
        return WATCH_SENT;
}

enum watch_sent watch_send(struct watch *w, struct watch_group *g, int64_t from,
                           struct boot_time now, struct watch_budget *b)
{
        struct watch_feed *f = w->feed;
        struct watch_pack *p =
                &f->packs[(w->prev_kv ? 4 : 0) | (w->no_put ? 2 : 0) | (w->no_delete ? 1 : 0)];
        size_t bytes = g->bytes + (w->prev_kv ? g->prev_bytes : 0);

        b->left -= SEND_STEPS;
        /* A response with a beginning or parts of its own is of no use to other watches. */
        if (bytes > (w->fragment ? FRAGMENT_BYTES : WHOLE_MAX))
                return send_alone(w, g, from, FRAGMENT_BYTES, now, b);
        if (g->events[0]->mod_revision < from || w->in_parts)
                return send_alone(w, g, from, SIZE_MAX, now, b);
        if (is_full(w, bytes))
                return WATCH_FULL;
        if (f->packs_of != g) {
                watch_packs_clear(f);
                f->packs_of = g;
        }
        while (p->at < g->n_events) {
                if (pack_more(w, g, p, b) < 0) {
                        watch_packs_clear(f);
                        out_of_memory(w);
                        return WATCH_SENT;
                }
                if (b->left <= 0 && p->at < g->n_events)
                        return WATCH_MORE;
        }
        if (buf_len(&p->bytes) == 0)
                return WATCH_SENT;
        b->left -= (int64_t) (buf_len(&p->bytes) / STEP_BYTES);
        send_with_id(w, &p->bytes);
        f->hub->counts.events += p->n;
        watch_note_sent(w, now);
        return WATCH_SENT;
}
