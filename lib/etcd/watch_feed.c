#include "base/probe.h"
#include "etcd/watch.h"

#define QUEUED_LOW (WATCH_QUEUED_HIGH / 2) /* a blocked stream is resumed below this */
#define BATCH_BYTES ((size_t) 1 << 20) /* a batch ends with the revision that reaches this */
#define NEAR_EVENTS 4096               /* a watch that is at most this far back is near */
#define BLOCKED_LOOKS 1000             /* blocked streams that are looked at in one turn ... */
#define BLOCKED_AGAIN (10 * NSEC_PER_MSEC)
#define BLOCKED_PAUSE (2 * NSEC_PER_MSEC) /* ... and until the others are */
#define PASSES_AGAIN (2 * NSEC_PER_MSEC)
#define LOOK_STEPS 2  /* to read an event */
#define MATCH_STEPS 1 /* to note it for a group */
#define MOVE_STEPS 6  /* to move a watch */

static struct state *state_of(const struct watch_feed *f)
{
        return core_state(f->hub->api->core);
}

void watch_feeds_init(struct watch_hub *h)
{
        for (size_t i = 0; i < N_FEEDS; i++) {
                struct watch_feed *f = &h->feeds[i];

                f->hub = h;
                span_index_init(&f->groups);
                TAILQ_INIT(&f->waiting);
                TAILQ_INIT(&f->touched);
                f->upto = core_state(h->api->core)->revision;
                f->next = f->upto + 1;
                f->fresh = i != FEED_NOW;
        }
}

static bool up_to_date(const struct watch *w)
{
        return w->feed == &w->stream->hub->feeds[FEED_NOW];
}

static void count_behind(struct watch *w, int n)
{
        struct watch_stream *s = w->stream;

        watch_list_asked(s, false);
        s->n_behind += (size_t) n;
        watch_list_asked(s, true);
        s->hub->counts.behind += (size_t) n;
}

/* ---- groups ---- */

static void group_free(struct watch_feed *f, struct watch_group *g)
{
        span_index_remove(&f->groups, &g->range);
        if (g->n_events > 0)
                TAILQ_REMOVE(&f->touched, g, next);
        if (f->packs_of == g)
                watch_packs_clear(f);
        free(g->events);
        free(g);
}

static struct watch_group *group_of(struct watch_feed *f, const struct kv_span *span)
{
        struct span_entry *r = span_index_find(&f->groups, span);
        struct watch_group *g;

        if (r)
                return container_of(r, struct watch_group, range);
        g = calloc(1, sizeof(*g));
        if (!g)
                return NULL;
        TAILQ_INIT(&g->watches);
        g->range.span = *span;
        span_index_add(&f->groups, &g->range);
        return g;
}

static void group_forget_events(struct watch_feed *f, struct watch_group *g)
{
        TAILQ_REMOVE(&f->touched, g, next);
        if (f->packs_of == g)
                watch_packs_clear(f);
        g->n_events = g->bytes = g->prev_bytes = 0;
        if (g->events_cap > WATCH_EVENTS_KEPT) {
                free(g->events);
                g->events = NULL;
                g->events_cap = 0;
        }
}

/* ---- where a watch is ---- */

static void set_list(struct watch *w, struct watch_list *list)
{
        w->in = list;
        TAILQ_INSERT_TAIL(list, w, next);
}

void watch_unplace(struct watch *w)
{
        struct watch_group *g = w->group;
        struct watch_feed *f = w->feed;

        TAILQ_REMOVE(w->in, w, next);
        if (w->in == &w->stream->blocked && TAILQ_EMPTY(w->in))
                TAILQ_REMOVE(&w->stream->hub->blocked, w->stream, by_blocked);
        if (!up_to_date(w))
                count_behind(w, -1);
        w->in = NULL;
        w->group = NULL;
        w->feed = NULL;
        if (!g)
                return;
        if (TAILQ_EMPTY(&g->watches))
                group_free(f, g);
        else if (g->range.span.from.p == w->span.from.p)
                g->range.span = TAILQ_FIRST(&g->watches)->span;
}

static void wait_in(struct watch_feed *f, struct watch *w)
{
        count_behind(w, 1);
        set_list(w, &f->waiting);
}

/* @w, which is in no list, follows @f from now on. */
static void join(struct watch_feed *f, struct watch *w)
{
        bool first = !span_index_any(&f->groups);
        struct watch_group *g = group_of(f, &w->span);

        if (!g) {
                if (w->stream->call)
                        rpc_call_finish(w->stream->call, status_nomem.code, status_nomem.text);
                return wait_in(f, w);
        }
        if (f->fresh) {
                f->next = first ? w->next_revision : min_of(f->next, w->next_revision);
                f->upto = f->next - 1;
        }
        w->feed = f;
        w->group = g;
        w->batch = f->batch;
        g->wants_prev = g->wants_prev || w->prev_kv;
        set_list(w, &g->watches);
        if (!up_to_date(w))
                count_behind(w, 1);
}

void watch_pass(struct watch *w, int64_t next)
{
        if (next <= w->next_revision)
                return;
        w->next_revision = next;
        w->n_sent = 0;
}

void watch_place(struct watch *w)
{
        struct watch_hub *h = w->stream->hub;
        const struct kv *kv = &core_state(h->api->core)->kv;

        if (w->next_revision > h->feeds[FEED_NOW].upto)
                return join(&h->feeds[FEED_NOW], w);
        wait_in(&h->feeds[kv->history_to - kv_history_seek(kv, w->next_revision) <= NEAR_EVENTS
                                  ? FEED_NEAR
                                  : FEED_FAR],
                w);
}

static bool is_lost(const struct watch_feed *f, int64_t next)
{
        return next < state_of(f)->kv.compacted && next <= state_of(f)->revision;
}

static void cancel_compacted(struct watch *w)
{
        struct watch_stream *s = w->stream;

        watch_cancel(w, status_of(STATE_E_COMPACTED).text,
                     core_state(s->hub->api->core)->kv.compacted);
}

/* Its client does not read; when it does, the watch continues from @from. */
static void block(struct watch *w, int64_t from)
{
        struct watch_stream *s = w->stream;

        PROBE("a watch waits because its client does not read");
        watch_unplace(w);
        watch_pass(w, from);
        count_behind(w, 1);
        if (TAILQ_EMPTY(&s->blocked))
                TAILQ_INSERT_TAIL(&s->hub->blocked, s, by_blocked);
        set_list(w, &s->blocked);
}

/* Streams that have been looked at are at the end. */
static void unblock(struct watch_hub *h, struct boot_time now, struct watch_budget *b)
{
        struct watch_stream *s, *last = TAILQ_LAST(&h->blocked, blocked_streams);

        if (boot_before(now, h->blocked_at))
                return;
        h->blocked_at = boot_add(now, BLOCKED_PAUSE);
        for (int i = 0; i < BLOCKED_LOOKS && b->left > 0; i++) {
                size_t queued;
                struct watch *w;

                s = TAILQ_FIRST(&h->blocked);
                queued = s->call ? rpc_call_queued_patient(s->call, QUEUED_LOW) : SIZE_MAX;
                TAILQ_REMOVE(&h->blocked, s, by_blocked);
                TAILQ_INSERT_TAIL(&h->blocked, s, by_blocked);
                while (queued <= QUEUED_LOW && b->left > 0 && (w = TAILQ_FIRST(&s->blocked))) {
                        b->left -= MOVE_STEPS;
                        watch_unplace(w);
                        watch_place(w);
                }
                if (s == last) {
                        h->blocked_at = boot_add(now, BLOCKED_AGAIN);
                        return;
                }
        }
}

/* ---- a batch ---- */

struct match {
        struct watch_feed *feed;
        const struct kv_version *event;
        struct watch_budget *budget;
        bool nomem;
};

/* The size of @v in a response, or a little less. */
static size_t size_of(const struct kv_version *v)
{
        return v->key->len + v->value_len + 64;
}

static void on_match(struct span_entry *r, void *arg)
{
        struct watch_group *g = container_of(r, struct watch_group, range);
        struct match *m = arg;
        const struct kv_version *before = g->wants_prev ? watch_prev(m->event) : NULL;
        size_t bytes = size_of(m->event), prev = before ? size_of(before) : 0;

        if (array_reserve(&g->events, &g->events_cap, g->n_events + 1, sizeof(*g->events)) <
            0) {
                m->nomem = true;
                return;
        }
        if (g->n_events == 0)
                TAILQ_INSERT_TAIL(&m->feed->touched, g, next);
        g->events[g->n_events++] = m->event;
        g->bytes += bytes;
        g->prev_bytes += prev;
        m->feed->bytes += bytes + prev;
        m->budget->left -= MATCH_STEPS;
}

/* Gives up the batch. The watches that have it already are known by `next_revision`. */
static void forget_batch(struct watch_feed *f)
{
        struct watch_group *g;

        while ((g = TAILQ_FIRST(&f->touched)))
                group_forget_events(f, g);
        f->state = FEED_IDLE;
        f->upto = f->next - 1;
}

static void begin_batch(struct watch_feed *f)
{
        f->state = FEED_GATHERS;
        f->fresh = false;
        f->upto = state_of(f)->revision;
        f->place = (struct kv_place){.next = f->next};
        f->bytes = 0;
        f->batch++;
        f->compacted = state_of(f)->kv.compacted;
        f->installs = core_installs(f->hub->api->core);
}

/* Gathers the events of whole revisions until there are enough. Returns true when there are. */
static bool gather(struct watch_feed *f, struct watch_budget *b)
{
        const struct kv *kv = &state_of(f)->kv;

        for (size_t i = kv_place_seek(kv, &f->place); i < kv->history_to; i++) {
                struct match m = {f, kv_history_at(kv, i), b, false};

                if (m.event->mod_revision > f->upto)
                        break;
                if (m.event->mod_revision != f->place.next && f->bytes >= BATCH_BYTES) {
                        f->upto = m.event->mod_revision - 1;
                        break;
                }
                if (b->left <= 0)
                        return false;
                b->left -= LOOK_STEPS;
                span_index_each(&f->groups,
                                (struct view){m.event->key->bytes, m.event->key->len}, on_match,
                                &m);
                if (m.nomem) { /* try again when there may be memory */
                        forget_batch(f);
                        b->left = 0;
                        return false;
                }
                kv_place_read(&f->place, m.event);
        }
        f->state = FEED_SENDS;
        return true;
}

/* Returns false if there is more to do for @w. */
static bool serve(struct watch_group *g, struct watch *w, struct boot_time now,
                  struct watch_budget *b)
{
        struct watch_feed *f = w->feed;
        int64_t from = max_of(w->next_revision, f->next);

        if (!w->stream->call) {
                b->left -= MOVE_STEPS;
                watch_free(w);
                return true;
        }
        b->left -= MATCH_STEPS;
        if (g->events[g->n_events - 1]->mod_revision >= from)
                switch (watch_send(w, g, from, now, b)) {
                case WATCH_SENT:
                        break;
                case WATCH_MORE:
                        return false;
                case WATCH_FULL:
                        block(w, from);
                        return true;
                }
        w->batch = f->batch;
        TAILQ_REMOVE(&g->watches, w, next);
        TAILQ_INSERT_TAIL(&g->watches, w, next);
        watch_pass(w, max_of(from, f->upto + 1));
        return true;
}

/* Returns true when all watches have the batch. */
static bool send_batch(struct watch_feed *f, struct boot_time now, struct watch_budget *b)
{
        struct watch_group *g;
        struct watch *w;

        while ((g = TAILQ_FIRST(&f->touched))) {
                /* Served watches move to the tail, so one of this batch ends the pass. serve()
                 * may free the group. */
                while (TAILQ_FIRST(&f->touched) == g && (w = TAILQ_FIRST(&g->watches)) &&
                       w->batch != f->batch) {
                        if (b->left <= 0 || !serve(g, w, now, b))
                                return false;
                }
                if (TAILQ_FIRST(&f->touched) == g)
                        group_forget_events(f, g);
        }
        f->state = FEED_IDLE;
        f->next = f->upto + 1;
        return true;
}

/* The history that the watches of @f still need was compacted. Returns true when all have been
 * notified. */
static bool tell_lost(struct watch_feed *f, struct watch_budget *b)
{
        struct span_entry *r;

        while ((r = span_index_any(&f->groups))) {
                struct watch *w =
                        TAILQ_FIRST(&container_of(r, struct watch_group, range)->watches);
                int64_t next = max_of(w->next_revision, f->next);

                if (b->left <= 0)
                        return false;
                b->left -= 2 * MOVE_STEPS;
                if (is_lost(f, next)) {
                        cancel_compacted(w);
                } else {
                        watch_unplace(w);
                        watch_pass(w, next);
                        wait_in(&f->hub->feeds[FEED_FAR], w);
                }
        }
        return true;
}

/* No watch follows the feed any more: the next one decides where it begins. */
static void rest(struct watch_feed *f)
{
        f->state = FEED_IDLE;
        f->fresh = f != &f->hub->feeds[FEED_NOW];
        f->upto = state_of(f)->revision;
        f->next = f->upto + 1;
}

/* Returns true if there is nothing more to do. */
static bool run(struct watch_feed *f, struct boot_time now, struct watch_budget *b)
{
        const struct state *s = state_of(f);

        /* A batch refers to the state as it was when the batch was gathered. */
        if (f->state != FEED_IDLE && (f->compacted != s->kv.compacted ||
                                      f->installs != core_installs(f->hub->api->core))) {
                PROBE("a batch of events is gathered anew on another state");
                forget_batch(f);
        }
        for (;;) {
                if (!span_index_any(&f->groups)) {
                        rest(f);
                        return true;
                }
                if (f->state == FEED_IDLE && f->next > s->revision)
                        return true;
                if (b->left <= 0)
                        return false;
                if (f->state == FEED_IDLE && is_lost(f, f->next)) {
                        if (!tell_lost(f, b))
                                return false;
                        continue;
                }
                if (f->state == FEED_IDLE)
                        begin_batch(f);
                if (f->state == FEED_GATHERS && !gather(f, b))
                        return false;
                if (f->state == FEED_SENDS && !send_batch(f, now, b))
                        return false;
        }
}

/* ---- passes ---- */

static void take_in(struct watch_feed *f, struct watch_budget *b)
{
        struct watch_feed *now = &f->hub->feeds[FEED_NOW];
        struct watch *w;

        while (b->left > 0 && (w = TAILQ_FIRST(&f->waiting))) {
                bool up = w->next_revision > now->upto;

                b->left -= MOVE_STEPS;
                if (is_lost(f, w->next_revision)) {
                        cancel_compacted(w);
                        continue;
                }
                if (!up && !f->fresh && w->next_revision <= f->upto)
                        return; /* left for the next pass */
                watch_unplace(w);
                join(up ? now : f, w);
        }
}

/* The pass has caught up with all other watches. */
static void hand_over(struct watch_feed *f, struct watch_budget *b)
{
        struct watch_feed *now = &f->hub->feeds[FEED_NOW];
        struct span_entry *r;

        while (b->left > 0 && f->next > now->upto && (r = span_index_any(&f->groups))) {
                struct watch *w =
                        TAILQ_FIRST(&container_of(r, struct watch_group, range)->watches);

                PROBE("a watch that was behind has caught up with the others");
                b->left -= MOVE_STEPS;
                watch_unplace(w);
                watch_pass(w, f->next);
                join(now, w);
        }
}

static bool is_busy(const struct watch_feed *f)
{
        return span_index_any(&f->groups) || !TAILQ_EMPTY(&f->waiting);
}

static void run_passes(struct watch_hub *h, struct boot_time now, struct watch_budget *b)
{
        struct watch_feed *near = &h->feeds[FEED_NEAR], *far = &h->feeds[FEED_FAR];
        struct watch_budget half = {b->left / 2};

        if (boot_before(now, h->passes_at) || (!is_busy(near) && !is_busy(far)))
                return;
        b->left -= half.left;
        for (struct watch_feed *f = near; f <= far; f++) {
                if (!span_index_any(&f->groups))
                        rest(f);
                take_in(f, &half);
                if (is_busy(f) && run(f, now, &half))
                        hand_over(f, &half);
                half.left += b->left; /* near watches have used at most half */
                b->left = 0;
        }
        b->left = half.left;
        h->passes_at = boot_add(now, PASSES_AGAIN);
}

bool watch_feeds_run(struct watch_hub *h, struct boot_time now, struct watch_budget *b)
{
        bool all;

        if (!TAILQ_EMPTY(&h->blocked))
                unblock(h, now, b);
        all = run(&h->feeds[FEED_NOW], now, b);
        run_passes(h, now, b);
        if (!all)
                h->next = now;
        if (is_busy(&h->feeds[FEED_NEAR]) || is_busy(&h->feeds[FEED_FAR]))
                h->next = boot_min(h->next, h->passes_at);
        if (!TAILQ_EMPTY(&h->blocked))
                h->next = boot_min(h->next, h->blocked_at);
        return all;
}
