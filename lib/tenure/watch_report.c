/* Reports changes to the program: finds out which ones are new, and bounds the queue. */
#include "base/hash.h"
#include "tenure/watch.h"

#define QUEUE_HIGH ((size_t) 4 << 20) /* bytes of events that are not taken */
#define QUEUE_LOW (QUEUE_HIGH / 2)

/* ---- the queue ---- */

static size_t cost_of(const struct queued *q)
{
        return sizeof(*q) + q->size;
}

void watch_event_left(struct queued *q)
{
        struct watches *v = q->event.watch->watches;

        LIST_REMOVE(q, of_owner);
        v->queued -= cost_of(q);
        if (!v->held || v->queued > QUEUE_LOW)
                return;
        v->held = false;
        if (v->stream.call) {
                rpc_call_release(v->stream.call);
                client_kick(v->tenure->client, v->stream.endpoint);
        }
        calls_soon(v->tenure);
}

static void put_in_line(struct tenure_watch *w, struct queued *q)
{
        struct watches *v = w->watches;

        q->event.watch = w;
        if (w->sink) {
                w->sink(&q->event, w->arg);
                free(q);
                return;
        }
        q->left = watch_event_left;
        LIST_INSERT_HEAD(&w->events, q, of_owner);
        v->queued += cost_of(q);
        queue_event(v->tenure, q);
        if (v->held || v->queued < QUEUE_HIGH)
                return;
        v->held = true;
        v->held_at = loop_now(v->tenure->loop);
        if (v->stream.call)
                rpc_call_hold(v->stream.call);
}

void watch_end(struct tenure_watch *w, int error, int64_t revision, const char *why)
{
        struct queued *q;

        if (w->over)
                return;
        q = queue_new(w->watches->tenure, TENURE_WATCH_ENDED, strlen(why) + 1);
        w->over = true;
        watch_set_fresh(w, false);
        watch_set_id(w, 0);
        if (!q)
                return;
        q->event.error = error;
        q->event.revision = revision;
        q->event.reason = queue_text(q, why);
        put_in_line(w, q);
}

/* ---- what it reports ---- */

/* Whether a change is of a key that was asked for. */
static bool is_asked_for(const struct tenure_watch *w, const Pb__KeyValue *kv)
{
        struct view key = {buf_head(&w->key), buf_len(&w->key)},
                    end = {buf_head(&w->end), buf_len(&w->end)};
        int c = bytes_cmp(kv->key.data, kv->key.len, key.p, key.len);

        if (end.len == 0)
                return c == 0;
        return c >= 0 && ((end.len == 1 && *end.p == '\0') ||
                          bytes_cmp(kv->key.data, kv->key.len, end.p, end.len) < 0);
}

/* Whether a change has been reported already, if a revision was reported in part. */
static bool is_reported(struct tenure_watch *w, const Pb__KeyValue *kv)
{
        int64_t last = w->last;

        w->last = max_of(last, kv->mod_revision);
        if (kv->mod_revision <= w->whole) {
                /* A repeated change does no harm, but others may be missing. */
                if (kv->mod_revision > last)
                        watch_end(w, -EIO, kv->mod_revision,
                                  "the core reports a change older than a revision up to which "
                                  "it had reported everything");
                return true;
        }
        if (kv->mod_revision < w->part)
                return true;
        if (kv->mod_revision > w->part) {
                w->part = kv->mod_revision;
                w->reported = w->skip = 0;
                w->keys = HASH_START;
        }
        if (w->skip == 0)
                return false;
        w->skip--;
        w->skipped = hash_add(w->skipped, kv->key.data, kv->key.len);
        if (w->skip == 0 && w->skipped != w->keys)
                watch_end(w, -EIO, kv->mod_revision,
                          "replicas report the changes of one revision in different orders");
        return true;
}

static void copy_kv(struct queued *q, struct tenure_kv *to, const Pb__KeyValue *kv)
{
        *to = kv_of(kv);
        to->key = queue_bytes(q, kv->key.data, kv->key.len);
        to->value = queue_bytes(q, kv->value.data, kv->value.len);
}

static int report(struct tenure_watch *w, const Pb__Event *e)
{
        bool deleted = e->type == PB__EVENT__EVENT_TYPE__DELETE;
        const Pb__KeyValue *before = w->before ? e->prev_kv : NULL;
        struct queued *q = queue_try(deleted ? TENURE_DELETE : TENURE_PUT,
                                     kv_bytes(e->kv) + (before ? kv_bytes(before) : 0));

        if (!q)
                return -ENOMEM;
        copy_kv(q, &q->kv, e->kv);
        q->event.kv = &q->kv;
        if (before) {
                copy_kv(q, &q->before, before);
                q->event.before = &q->before;
        }
        q->event.revision = e->kv->mod_revision;
        q->event.lease = e->kv->lease;
        w->reported++;
        w->keys = hash_add(w->keys, e->kv->key.data, e->kv->key.len);
        put_in_line(w, q);
        return 0;
}

int watch_report(struct tenure_watch *w, const Pb__WatchResponse *p)
{
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__Event *e = p->events[i];

                if (!is_asked_for(w, e->kv) || e->kv->mod_revision < w->last)
                        return -EBADMSG; /* on one stream no revision goes back */
                if (is_reported(w, e->kv))
                        continue;
                if (w->over)
                        return 0;
                if (report(w, e) < 0)
                        return -ENOMEM;
        }
        if (p->n_events > 0 && !p->fragment) {
                /* The message had complete revisions. */
                w->whole = max_of(w->whole, p->events[p->n_events - 1]->kv->mod_revision);
                if (w->whole >= w->part)
                        w->reported = w->skip = 0;
        }
        if (w->whole > w->watches->seen)
                w->watches->seen = w->whole;
        return 0;
}
