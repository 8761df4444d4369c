/* Events become responses, packed once for all watches of a group that want the same. */
#include "service/watch.h"

#define FRAGMENT_BYTES ((size_t) 1536 << 10)
#define SEND_STEPS 8   /* of a response that is packed, beside its bytes */
#define EVENT_STEPS 8  /* to make one */
#define PACK_EVENTS 64 /* packed at once */
#define STEP_BYTES 256 /* copied in one */

void watch_packs_clear(struct watch_feed *f)
{
        f->packs_of = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(f->packs); i++) {
                f->packs[i].at = 0;
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

/* A packed response, and the watch_id (field 2, a varint) behind it: fields come in any order.
 */
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

/* The events of @g that @w wants, from revision @from on, of those from @at to @end. Returns 0
 * or -ENOMEM. */
static int wanted_events(const struct watch *w, const struct watch_group *g, int64_t from,
                         size_t at, size_t end, struct arena *a, Pb__Event ***ret,
                         size_t *ret_n)
{
        Pb__Event **events = arena_alloc(a, (end - at) * sizeof(Pb__Event *));
        size_t n = 0;

        if (!events)
                return -ENOMEM;
        for (size_t i = at; i < end; i++) {
                const struct kv_version *v = g->events[i];

                if (v->mod_revision < from || (v->version > 0 ? w->no_put : w->no_delete))
                        continue;
                if (add_event(a, w, v, &events[n]) < 0)
                        return -ENOMEM;
                n++;
        }
        *ret = events;
        *ret_n = n;
        return 0;
}

/* A piece of it; a message in pieces, one after the other, is one message. */
static int pack_more(const struct watch *w, const struct watch_group *g,
                     struct watch_pack *pack, struct watch_budget *b)
{
        Pb__WatchResponse r = PB__WATCH_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        size_t was = buf_len(&pack->bytes), end = min_of(pack->at + PACK_EVENTS, g->n_events);
        Pb__ResponseHeader h;

        if (wanted_events(w, g, 0, pack->at, end, &a, &r.events, &r.n_events) < 0)
                return -ENOMEM;
        if (r.n_events > 0) {
                if (!pack->begun) {
                        core_header(w->stream->hub->api->core, &h);
                        r.header = &h;
                }
                pack->begun = true;
                pb_append(&pack->bytes, &r.base);
        }
        b->left -= (int64_t) ((end - pack->at) * EVENT_STEPS +
                              (buf_len(&pack->bytes) - was) / STEP_BYTES);
        pack->at = end;
        return buf_error(&pack->bytes);
}

static size_t event_size(const Pb__Event *e)
{
        return e->kv->key.len + e->kv->value.len + (e->prev_kv ? e->prev_kv->value.len : 0) +
               64;
}

/* As one response, or, for who asked for fragments, in parts that a client takes. */
static void send_in_parts(struct watch *w, Pb__Event **events, size_t n)
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
                watch_respond(w->stream, &p);
                from = to;
        }
}

static void send_alone(struct watch *w, const struct watch_group *g, int64_t from,
                       struct boot_time now)
{
        cleanup_(arena_fini) struct arena a = {0};
        Pb__Event **events;
        size_t n;

        if (wanted_events(w, g, from, 0, g->n_events, &a, &events, &n) < 0)
                return out_of_memory(w);
        send_in_parts(w, events, n);
        if (n > 0)
                watch_told(w, now);
}

bool watch_send(struct watch *w, struct watch_group *g, int64_t from, struct boot_time now,
                struct watch_budget *b)
{
        struct watch_feed *f = w->feed;
        struct watch_pack *p =
                &f->packs[(w->prev_kv ? 4 : 0) | (w->no_put ? 2 : 0) | (w->no_delete ? 1 : 0)];

        b->left -= SEND_STEPS;
        /* Its own begin, or parts of its own, are no other's. What was there before may be as
         * large as what is. */
        if (g->events[0]->mod_revision < from ||
            (w->fragment && (w->prev_kv || g->bytes > FRAGMENT_BYTES))) {
                b->left -= (int64_t) (g->n_events * EVENT_STEPS + g->bytes / STEP_BYTES);
                send_alone(w, g, from, now);
                return true;
        }
        if (f->packs_of != g) {
                watch_packs_clear(f);
                f->packs_of = g;
        }
        while (p->at < g->n_events) {
                if (pack_more(w, g, p, b) < 0) {
                        watch_packs_clear(f);
                        out_of_memory(w);
                        return true;
                }
                if (b->left <= 0 && p->at < g->n_events)
                        return false;
        }
        if (buf_len(&p->bytes) == 0)
                return true;
        b->left -= (int64_t) (buf_len(&p->bytes) / STEP_BYTES);
        send_with_id(w, &p->bytes);
        watch_told(w, now);
        return true;
}
