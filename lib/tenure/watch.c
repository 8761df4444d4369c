/*
 * Watches: all watches of a tie share one stream, as in etcd's clients. When the stream ends,
 * each watch continues on another one, at any replica, from the revision after the last one
 * that it has reported in full.
 *
 * A program that does not take its events stops the stream: above a bound we read nothing from
 * it, and HTTP/2's flow control makes the core wait. If that lasts, we end the stream, and
 * continue once there is room: tenure-core answers no other call of a connection on which so
 * much waits.
 */
#include <inttypes.h>

#include "base/hash.h"
#include "tenure/watch.h"

#define HOLD_MAX (500 * NSEC_PER_MSEC)
#define CREATE_TIMEOUT (10 * NSEC_PER_SEC) /* for the core to confirm a watch */
#define PROGRESS_EVERY (10 * NSEC_PER_SEC)

static int id_cmp(const struct tenure_watch *a, const struct tenure_watch *b)
{
        return a->id < b->id ? -1 : a->id > b->id;
}

TREE_GENERATE(watches_by_id, tenure_watch, by_id, id_cmp)

static struct tenure_watch *find(struct watches *v, int64_t id)
{
        struct tenure_watch key = {.id = id};

        return id == 0 ? NULL : RB_FIND(watches_by_id, &v->ids, &key);
}

void watch_set_id(struct tenure_watch *w, int64_t id)
{
        if (w->id != 0)
                RB_REMOVE(watches_by_id, &w->watches->ids, w);
        w->id = id;
        if (id != 0)
                RB_INSERT(watches_by_id, &w->watches->ids, w);
}

void watch_set_fresh(struct tenure_watch *w, bool fresh)
{
        struct watches *v = w->watches;

        if (w->fresh == fresh)
                return;
        TAILQ_REMOVE(fresh ? &v->there : &v->fresh, w, entry);
        if (fresh)
                TAILQ_INSERT_TAIL(&v->fresh, w, entry);
        else
                TAILQ_INSERT_TAIL(&v->there, w, entry);
        w->fresh = fresh;
}

/* ---- the stream goes ---- */

static void forget_stream(struct watches *v)
{
        struct tenure_watch *w;

        v->stream.call = NULL;
        buf_clear(&v->asked);
        while ((w = RB_MIN(watches_by_id, &v->ids))) {
                if (w->breaks) {
                        watch_end(w, -EPIPE, 0, "the connection to the core has ended");
                        continue;
                }
                watch_set_id(w, 0);
                watch_set_fresh(w, true);
        }
}

/* ---- has the core gone back? ---- */

static void doubt_done(struct tenure_call *c, void *arg)
{
        struct watches *v = arg;
        struct tenure_watch *w, *next;
        char why[160];

        v->doubt = NULL;
        if (tenure_call_result(c) == 0 && c->revision < v->floor) {
                snprintf(why, sizeof(why),
                         "the core was emptied or restored: it is at revision %" PRId64
                         ", and was at %" PRId64,
                         c->revision, v->floor);
                v->seen = c->revision;
                TAILQ_FOREACH_SAFE (w, &v->there, entry, next)
                        if (w->whole > c->revision)
                                watch_end(w, -ENODATA, c->revision, why);
                TAILQ_FOREACH_SAFE (w, &v->fresh, entry, next)
                        if (w->whole > c->revision)
                                watch_end(w, -ENODATA, c->revision, why);
        }
        tenure_call_free(c);
}

static const struct call_kind kind_doubt = {"/etcdserverpb.KV/Range",
                                            &pb__range_response__descriptor, call_read_nothing};

/* A replica may lag behind; a linearizable answer includes everything that any replica had
 * reported when the answer was requested. */
static void doubt(struct tenure_watch *w)
{
        struct watches *v = w->watches;
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        if (v->doubt)
                return;
        q.key = pb_bytes(buf_head(&w->key), buf_len(&w->key));
        q.range_end = pb_bytes(buf_head(&w->end), buf_len(&w->end));
        q.count_only = true;
        v->floor = v->seen;
        /* If this fails, the next watch in doubt asks. */
        (void) !call_ask_for(v->tenure, &kind_doubt, &q.base, false, doubt_done, v, &v->doubt);
}

/* ---- what it reports ---- */

static void on_canceled(struct tenure_watch *w, const Pb__WatchResponse *p)
{
        struct watches *v = w->watches;
        struct tenure *t = v->tenure;
        const char *why = code_text(p->cancel_reason ? p->cancel_reason : "");

        if (p->compact_revision > 0 || strstr(why, "compacted"))
                return watch_end(w, -ENODATA, p->compact_revision,
                                 "the revision to continue from is compacted: read anew, and "
                                 "watch from there");
        /* etcd 3.4 reports an expired login and a missing permission in the same way. */
        if (t->user && !w->refused &&
            (refusal_wants_login(RPC_UNKNOWN, why) || strstr(why, "permission denied"))) {
                w->refused = true;
                watch_set_id(w, 0);
                watch_set_fresh(w, true);
                calls_log_in_later(t->calls, v->stream.endpoint);
                return;
        }
        if (strstr(why, "permission denied") || refusal_wants_login(RPC_UNKNOWN, why))
                return watch_end(w, -EACCES, 0, why);
        if (p->created || *why)
                return watch_end(w, -EIO, 0, *why ? why : "the core refuses it");
        watch_set_id(w, 0); /* it gives no reason: continue from where it was */
        watch_set_fresh(w, true);
        call_stream_try_again(&v->stream);
}

/* Finds the watch that a response confirms. The core confirms watches in the order of the
 * requests, by the requested ids; a refusal may have no id. Returns -EBADMSG for another id,
 * since nobody would know whose the following events are. *@ret is NULL if the watch was freed
 * meanwhile, or if no watch was requested. */
static int made(struct watches *v, const Pb__WatchResponse *p, struct tenure_watch **ret)
{
        struct view front = {buf_head(&v->asked), buf_len(&v->asked)};
        uint64_t asked;

        *ret = NULL;
        if (view_u64(&front, &asked) < 0)
                return 0;
        buf_consume(&v->asked, sizeof(asked));
        v->answer_by = boot_add(loop_now(v->tenure->loop), CREATE_TIMEOUT);
        if (!p->canceled && p->watch_id != (int64_t) asked)
                return -EBADMSG;
        *ret = find(v, (int64_t) asked);
        return 0;
}

static void on_created(struct tenure_watch *w, const Pb__WatchResponse *p)
{
        w->refused = false;
        w->made = true;
        if (!w->anchored)
                watch_is_there(w, p->header->revision);
}

/* The core is behind a revision that it, or another replica, has reported. It may have to catch
 * up, or was restored. Until that is known, each message is a reason to ask. A program may also
 * watch from a revision that no replica has reported. */
static void heard_revision(struct tenure_watch *w, int64_t revision)
{
        if (w->made && revision < w->whole && w->whole <= w->watches->seen)
                doubt(w);
}

/* Everything up to this revision has been reported, for all watches on the stream. This is used
 * only from a tenure-core: some versions of etcd send it before they have reported everything
 * (etcd issue 15220). */
static void on_progress(struct watches *v, int64_t revision)
{
        struct tenure_watch *w;

        RB_FOREACH (w, watches_by_id, &v->ids)
                heard_revision(w, revision);
        if (!calls_is_extended(v->tenure, v->stream.endpoint))
                return;
        RB_FOREACH (w, watches_by_id, &v->ids)
                if (w->made && w->reported == 0)
                        w->whole = max_of(w->whole, revision);
}

static int take(struct watches *v, const Pb__WatchResponse *p)
{
        struct tenure_watch *w = find(v, p->watch_id);
        int r = p->created ? made(v, p, &w) : 0;

        if (r < 0)
                return r;
        watches_heard(v->tenure, p->header->revision);
        if (p->watch_id == -1 && !p->created && !p->canceled && p->n_events == 0)
                on_progress(v, p->header->revision);
        if (!w)
                return 0;
        if (p->canceled) {
                on_canceled(w, p);
                return 0;
        }
        if (p->created)
                on_created(w, p);
        else if (p->n_events == 0 && w->reported == 0)
                w->whole = max_of(w->whole, p->header->revision);
        heard_revision(w, p->header->revision);
        r = watch_report(w, p);
        if (r == 0 && !p->created)
                call_stream_works(&v->stream);
        return r;
}

static void on_message(struct rpc_call *call, struct view bytes)
{
        struct watches *v = call->userdata;
        Pb__WatchResponse *p = NULL;
        int r;

        if (v->stream.call != call)
                return;
        r = pb_unpack(&pb__watch_response__descriptor, bytes, &p);
        if (r == 0)
                /* etcd gives none when it cancels a watch because its start is compacted. */
                r = call_stream_heard(&v->stream, p->header, p->canceled);
        if (r == 0 && !member_events_are_sane(p))
                r = -EBADMSG;
        if (r == 0)
                r = take(v, p);
        pb_free(p);
        if (r < 0)
                call_stream_go_elsewhere(&v->stream);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct watches *v = call->userdata;
        struct tenure *t = v->tenure;

        if (v->stream.call != call)
                return;
        if (t->user && refusal_wants_login(code, message))
                calls_log_in_later(t->calls, v->stream.endpoint);
        else if (code == RPC_PERMISSION_DENIED || code == RPC_UNIMPLEMENTED ||
                 code == RPC_UNAUTHENTICATED)
                watches_end(t, code_errno(code, message), message);
        else if (client_rpc(t->client, v->stream.endpoint) == call->conn)
                calls_avoid(t, v->stream.endpoint);
        call_stream_try_again(&v->stream);
}

static void on_close(struct rpc_call *call)
{
        struct watches *v = call->userdata;

        if (v->stream.call == call)
                forget_stream(v);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

/* ---- what it is asked ---- */

static int make(struct tenure_watch *w)
{
        struct watches *v = w->watches;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;

        watch_set_fresh(w, false);
        watch_set_id(w, ++v->id);
        w->made = false;
        watch_make_where_known(w);
        w->last = w->whole;
        w->skip = w->reported;
        w->skipped = HASH_START;
        create.key = pb_bytes(buf_head(&w->key), buf_len(&w->key));
        create.range_end = pb_bytes(buf_head(&w->end), buf_len(&w->end));
        if (w->anchored) /* a revision that was reported in part comes again, and that part is
                            skipped */
                create.start_revision = w->whole + 1;
        create.prev_kv = w->before;
        create.watch_id = w->id;
        create.fragment = true;
        create.progress_notify = true;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        buf_add_u64(&v->asked, (uint64_t) w->id);
        return buf_error(&v->asked) < 0 ? -ENOMEM : call_stream_send(&v->stream, &q.base);
}

void watch_take_back(struct tenure_watch *w)
{
        struct watches *v = w->watches;
        Pb__WatchCancelRequest c = PB__WATCH_CANCEL_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;

        c.watch_id = w->id;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
        q.cancel_request = &c;
        if (call_stream_send(&v->stream, &q.base) < 0)
                call_stream_leave(&v->stream);
}

/* Asks the core for its revision, so that watches whose keys do not change need no old history,
 * which may be compacted, when they continue elsewhere. etcd reports it unasked, every ten
 * minutes. */
static void ask_progress(struct watches *v)
{
        Pb__WatchProgressRequest p = PB__WATCH_PROGRESS_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;

        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
        q.progress_request = &p;
        (void) !call_stream_send(&v->stream, &q.base); /* asked again later */
}

/* ---- in each turn ---- */

static void make_all(struct watches *v, struct boot_time now)
{
        struct tenure_watch *w;

        if (boot_before(now, v->stream.retry_at) || (v->held && !v->stream.call))
                return;
        if (!v->stream.call) {
                if (!call_stream_begin(&v->stream, "/etcdserverpb.Watch/Watch", &handler, v,
                                       now))
                        return;
                v->progress_at = boot_add(now, PROGRESS_EVERY);
        }
        if (buf_len(&v->asked) == 0)
                v->answer_by = boot_add(now, CREATE_TIMEOUT);
        while (v->stream.call && (w = TAILQ_FIRST(&v->fresh)))
                if (make(w) < 0) {
                        call_stream_leave(&v->stream);
                        return call_stream_try_again(&v->stream);
                }
}

struct boot_time watches_run(struct tenure *t, struct boot_time now)
{
        struct watches *v = t->watches;
        struct boot_time next = BOOT_TIME_NEVER;

        /* While the stream is not read, no answer can come. */
        if (v->stream.call && buf_len(&v->asked) > 0 && !v->held) {
                if (!boot_before(now, v->answer_by))
                        call_stream_go_elsewhere(&v->stream);
                else
                        next = v->answer_by;
        }
        if (v->stream.call && v->held) {
                if (!boot_before(now, boot_add(v->held_at, HOLD_MAX)))
                        call_stream_leave(&v->stream);
                else
                        next = boot_add(v->held_at, HOLD_MAX);
        }
        if (v->stream.call && !v->held && calls_is_extended(t, v->stream.endpoint)) {
                if (!boot_before(now, v->progress_at)) {
                        ask_progress(v);
                        v->progress_at = boot_add(now, PROGRESS_EVERY);
                }
                next = boot_min(next, v->progress_at);
        }
        if (v->stream.call && RB_EMPTY(&v->ids) && TAILQ_EMPTY(&v->fresh))
                call_stream_leave(&v->stream);
        if (TAILQ_EMPTY(&v->fresh))
                return next;
        make_all(v, now);
        if (v->stream.call && buf_len(&v->asked) > 0 && !v->held)
                next = boot_min(next, v->answer_by);
        return boot_before(now, v->stream.retry_at) ? boot_min(next, v->stream.retry_at) : next;
}

void watches_silent(struct tenure *t, size_t i)
{
        call_stream_silent(&t->watches->stream, i);
}

void watches_probe(struct tenure *t)
{
        struct watches *v = t->watches;

        if (v->stream.call && client_rpc(t->client, v->stream.endpoint))
                client_probe(t->client, v->stream.endpoint, CALLS_PROBE_WITHIN);
}

void watches_heard(struct tenure *t, int64_t revision)
{
        t->watches->seen = max_of(t->watches->seen, revision);
}

void watches_end(struct tenure *t, int error, const char *why)
{
        struct watches *v = t->watches;
        struct tenure_watch *w, *next;

        v->seen = 0;
        TAILQ_FOREACH_SAFE (w, &v->fresh, entry, next)
                watch_end(w, error, 0, why);
        TAILQ_FOREACH_SAFE (w, &v->there, entry, next)
                watch_end(w, error, 0, why);
}

/* ---- ---- */

int tenure_watch(struct tenure *t, const struct tenure_watch_options *o,
                 struct tenure_watch **ret)
{
        cleanup_(buf_fini) struct buf key = {0}, end = {0};
        struct watches *v = t->watches;
        struct tenure_watch *w;
        int r = range_copy(t, o->key, o->key_len, o->end, o->end_len, o->prefix, &key, &end);

        if (r == 0 && (o->revision < 0 || o->revision == INT64_MAX))
                r = tenure_fail(t, -EINVAL, "a revision is 0 or more");
        if (r < 0)
                return r;
        w = calloc(1, sizeof(*w));
        if (!w)
                return tenure_fail(t, -ENOMEM, "out of memory");
        w->key = key;
        w->end = end;
        key = end = (struct buf){0};
        w->watches = v;
        w->before = o->before;
        w->anchored = o->revision > 0;
        w->whole = max_of(o->revision - 1, INT64_C(0));
        w->keys = HASH_START;
        w->fresh = true;
        TAILQ_INSERT_TAIL(&v->fresh, w, entry);
        if (!w->anchored)
                watch_begins_open(w);
        calls_soon(t);
        *ret = w;
        return 0;
}

void watch_into(struct tenure_watch *w, watch_sink_fn sink, void *arg)
{
        w->sink = sink;
        w->arg = arg;
}

void watch_until_break(struct tenure_watch *w, watch_sink_fn sink, void *arg)
{
        watch_into(w, sink, arg);
        w->breaks = true;
}

struct tenure_watch *tenure_watch_free(struct tenure_watch *w)
{
        struct watches *v;
        struct queued *q;

        if (!w)
                return NULL;
        v = w->watches;
        if (w->id != 0 && v->stream.call)
                watch_take_back(w);
        watch_set_id(w, 0);
        watch_settle(w);
        TAILQ_REMOVE(w->fresh ? &v->fresh : &v->there, w, entry);
        while ((q = LIST_FIRST(&w->events))) {
                watch_event_left(q);
                queue_take_back(v->tenure, q);
        }
        calls_soon(v->tenure);
        buf_fini(&w->key);
        buf_fini(&w->end);
        free(w);
        return NULL;
}

int watches_new(struct tenure *t)
{
        struct watches *v = calloc(1, sizeof(*v));

        if (!v)
                return -ENOMEM;
        v->tenure = t;
        TAILQ_INIT(&v->there);
        TAILQ_INIT(&v->fresh);
        TAILQ_INIT(&v->open);
        RB_INIT(&v->ids);
        call_stream_init(&v->stream, t);
        t->watches = v;
        return 0;
}

void watches_stop(struct tenure *t)
{
        if (t->watches)
                call_stream_leave(&t->watches->stream);
}

void watches_free(struct tenure *t)
{
        struct watches *v = t->watches;
        struct tenure_watch *w;

        if (!v)
                return;
        while ((w = TAILQ_FIRST(&v->fresh)) || (w = TAILQ_FIRST(&v->there)))
                tenure_watch_free(w);
        buf_fini(&v->asked);
        free(v);
        t->watches = NULL;
}
