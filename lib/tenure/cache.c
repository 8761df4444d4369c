/*
 * Caches: keys that are kept in the program, and may be read there while the core's promise
 * stands that they do not change. All caches of a tie share one stream. If the stream ends, the
 * content stays valid until the end of its term, which the core respects, and another stream
 * asks for the next term.
 *
 * A term counts from before it was requested, on a clock that advances during suspend, and is
 * shortened by how much the rates of two clocks may differ, so it ends here before it ends in
 * the core. When a term is recalled, the content is dropped first, and then the term given
 * back.
 */
#include "tenure/call_stream.h"

#define TERM_MS 3000
#define DRIFT_PPM 1000
#define ANSWER_WITHIN (2 * NSEC_PER_SEC)
#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC

struct tenure_cache {
        TAILQ_ENTRY(tenure_cache) entry;
        struct caches *caches;
        struct buf key, end;
        int64_t id;
        bool asked;   /* a term was requested on this stream, and not answered yet */
        bool crossed; /* ... and given back since, together with what the answer grants */
        bool there;   /* TENURE_CACHED was queued, and TENURE_UNCACHED not since */
        bool over;    /* it will never be readable */
        bool refused; /* once, by a login that may have ended */
        struct boot_time asked_at;
        struct boot_time until; /* the content may be read until then */
        struct boot_time ask_at;
        nsec_t backoff;
        struct found found;
        int64_t revision;
        LIST_HEAD(, queued) events; /* in line to be taken */
};

struct caches {
        struct tenure *tenure;
        TAILQ_HEAD(, tenure_cache) all;
        struct call_stream stream;
        bool ending; /* everything was given back; the stream ends when the core says so */
        int64_t id;  /* the last one */
};

/* ---- events for the program ---- */

static void event_left(struct queued *q)
{
        LIST_REMOVE(q, of_owner);
}

static void notify(struct tenure_cache *c, enum tenure_event_type type, int error,
                   const char *why)
{
        struct tenure *t = c->caches->tenure;
        struct queued *q = queue_new(t, type, strlen(why) + 1);

        if (!q)
                return;
        q->event.cache = c;
        q->event.error = error;
        q->event.revision = c->revision;
        q->event.reason = queue_text(q, why);
        q->left = event_left;
        LIST_INSERT_HEAD(&c->events, q, of_owner);
        queue_event(t, q);
}

static void empty(struct tenure_cache *c)
{
        c->until = (struct boot_time){0};
        free(c->found.kvs);
        c->found = (struct found){0};
}

/* Drops the content, which is no longer valid. */
static void drop(struct tenure_cache *c, int error, const char *why)
{
        empty(c);
        if (c->there || error < 0)
                notify(c, TENURE_UNCACHED, error, why);
        c->there = false;
        c->over = c->over || error < 0;
}

static void end_all(struct caches *v, int error, const char *why)
{
        struct tenure_cache *c;

        TAILQ_FOREACH (c, &v->all, entry)
                if (!c->over)
                        drop(c, error, why);
}

/* ---- messages of the core ---- */

static void ask_later(struct tenure_cache *c)
{
        c->ask_at = boot_add(loop_now(c->caches->tenure->loop), c->backoff);
        c->backoff = min_of(2 * c->backoff, RETRY_MAX);
        calls_soon(c->caches->tenure);
}

static void refused(struct tenure_cache *c, const Pb__CacheResponse *p)
{
        struct caches *v = c->caches;
        struct tenure *t = v->tenure;
        enum rpc_code code = (enum rpc_code) p->code;
        int r = code_errno(code, p->error);

        if (t->user && !c->refused && refusal_wants_login(code, p->error)) {
                c->refused = true;
                calls_log_in_later(t->calls, v->stream.endpoint);
                return call_stream_leave(&v->stream);
        }
        if (r == -EACCES || r == -EINVAL || r == -EMSGSIZE)
                return drop(c, r, p->error);
        ask_later(c); /* there was no room, or no leader */
}

/* Until when the content may be read if the term was requested at @asked_at. */
static struct boot_time end_of(struct boot_time asked_at, int64_t term_ms)
{
        nsec_t term = term_ms * NSEC_PER_MSEC;

        return boot_add(asked_at, term - term / 1000000 * DRIFT_PPM);
}

/* Returns 0, -ENOMEM, or -EBADMSG. */
static int given(struct tenure_cache *c, const Pb__CacheResponse *p)
{
        struct found fresh = {0};
        int r;

        if (p->term_ms < 0 || p->term_ms > TERM_MS || (p->unchanged && !c->there))
                return -EBADMSG;
        c->refused = false;
        if (p->term_ms == 0) {
                drop(c, 0, "a write waits");
                ask_later(c);
                return 0;
        }
        if (!p->unchanged) {
                r = found_copy(&fresh, p->kvs, p->n_kvs);
                if (r < 0)
                        return r;
                empty(c);
                c->found = fresh;
                c->revision = p->header->revision;
                if (c->there)
                        notify(c, TENURE_UNCACHED, 0, "its term has ended");
                notify(c, TENURE_CACHED, 0, "");
        }
        c->there = true;
        c->until = boot_max(c->until, end_of(c->asked_at, p->term_ms));
        /* Half of the term, however short it is. */
        c->ask_at = boot_add(c->asked_at, max_of(p->term_ms * NSEC_PER_MSEC / 2, RETRY_MIN));
        c->backoff = RETRY_MIN;
        call_stream_works(&c->caches->stream);
        return 0;
}

static void give_back(struct caches *v, int64_t id)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;

        if (!v->stream.call)
                return;
        q.id = id;
        q.release = true;
        if (call_stream_send(&v->stream, &q.base) < 0)
                call_stream_leave(&v->stream);
}

/* The core may have granted this term after it read our release, and be waiting for us again;
 * or before. In both cases we must not keep the term. */
static void taken_back(struct tenure_cache *c)
{
        c->crossed = false;
        give_back(c->caches, c->id);
        drop(c, 0, "a write waits");
        ask_later(c);
}

static int take(struct caches *v, const Pb__CacheResponse *p)
{
        struct tenure_cache *c;

        TAILQ_FOREACH (c, &v->all, entry)
                if (c->id == p->id)
                        break;
        if (!c) {
                /* The cache was freed meanwhile. The core may have read our release before it
                 * granted this term. */
                if (p->recall || p->term_ms > 0)
                        give_back(v, p->id);
                return 0;
        }
        if (p->recall) {
                c->crossed = c->asked;
                drop(c, 0, "a write waits");
                give_back(v, c->id);
                ask_later(c);
                return 0;
        }
        if (!c->asked)
                return -EBADMSG;
        c->asked = false;
        calls_soon(v->tenure);
        if (*p->error) {
                refused(c, p);
                return 0;
        }
        if (c->crossed && p->term_ms > 0) {
                taken_back(c);
                return 0;
        }
        return given(c, p);
}

static void on_message(struct rpc_call *call, struct view bytes)
{
        struct caches *v = call->userdata;
        Pb__CacheResponse *p = NULL;
        int r;

        if (v->stream.call != call)
                return;
        r = pb_unpack(&pb__cache_response__descriptor, bytes, &p);
        if (r == 0)
                r = call_stream_heard(&v->stream, p->header, false);
        if (r == 0)
                r = take(v, p);
        pb_free(p);
        if (r < 0)
                call_stream_go_elsewhere(&v->stream);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct caches *v = call->userdata;
        struct tenure *t = v->tenure;

        if (v->stream.call != call || v->ending)
                return;
        if (t->user && refusal_wants_login(code, message))
                calls_log_in_later(t->calls, v->stream.endpoint);
        else if (code == RPC_UNIMPLEMENTED)
                end_all(v, -EOPNOTSUPP,
                        "the core gives no cache leases: it is an etcd, or has CacheTerm=0; "
                        "read "
                        "with tenure_get()");
        else if (code == RPC_PERMISSION_DENIED || code == RPC_UNAUTHENTICATED ||
                 code == RPC_INVALID_ARGUMENT)
                end_all(v, code_errno(code, message), message);
        else if (client_rpc(t->client, v->stream.endpoint) == call->conn)
                calls_avoid(t, v->stream.endpoint);
        call_stream_try_again(&v->stream);
}

static void on_close(struct rpc_call *call)
{
        struct caches *v = call->userdata;
        struct tenure_cache *c;

        if (v->stream.call != call)
                return;
        v->stream.call = NULL;
        v->ending = false;
        TAILQ_FOREACH (c, &v->all, entry) {
                c->asked = false;
                c->ask_at = (struct boot_time){0};
        }
        calls_soon(v->tenure);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

/* ---- in each turn ---- */

static bool has_stream(struct caches *v, struct boot_time now)
{
        if (v->stream.call)
                return !v->ending;
        return call_stream_begin(&v->stream, "/tenurepb.Cache/Cache", &handler, v, now);
}

static void ask(struct tenure_cache *c, struct boot_time now)
{
        struct caches *v = c->caches;
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;

        q.id = c->id;
        q.key = pb_bytes(buf_head(&c->key), buf_len(&c->key));
        q.range_end = pb_bytes(buf_head(&c->end), buf_len(&c->end));
        q.term_ms = TERM_MS;
        q.have = c->there;
        c->asked = true;
        c->crossed = false;
        c->asked_at = now;
        if (call_stream_send(&v->stream, &q.base) == 0)
                return;
        call_stream_leave(&v->stream);
        call_stream_try_again(&v->stream);
}

struct boot_time caches_run(struct tenure *t, struct boot_time now)
{
        struct caches *v = t->caches;
        struct boot_time next = BOOT_TIME_NEVER;
        struct tenure_cache *c;

        if (TAILQ_EMPTY(&v->all) && v->stream.call && !v->ending) {
                v->ending = true;
                rpc_call_end(v->stream.call); /* after everything that was given back */
                client_kick(t->client, v->stream.endpoint);
        }
        TAILQ_FOREACH (c, &v->all, entry) {
                if (c->there && !boot_before(now, c->until))
                        drop(c, 0, "the core has not answered in time");
                if (c->there)
                        next = boot_min(next, c->until);
                if (c->over)
                        continue;
                if (c->asked && !boot_before(now, boot_add(c->asked_at, ANSWER_WITHIN)))
                        call_stream_go_elsewhere(&v->stream);
                if (c->asked)
                        next = boot_min(next, boot_add(c->asked_at, ANSWER_WITHIN));
                else if (boot_before(now, c->ask_at))
                        next = boot_min(next, c->ask_at);
                else if (has_stream(v, now))
                        ask(c, now);
                else if (boot_before(now, v->stream.retry_at))
                        next = boot_min(next, v->stream.retry_at);
        }
        return next;
}

void caches_silent(struct tenure *t, size_t i)
{
        call_stream_silent(&t->caches->stream, i);
}

void caches_end(struct tenure *t, int error, const char *why)
{
        end_all(t->caches, error, why);
        call_stream_leave(&t->caches->stream);
}

/* ---- ---- */

int tenure_cache(struct tenure *t, const struct tenure_range *q, struct tenure_cache **ret)
{
        cleanup_(buf_fini) struct buf key = {0}, end = {0};
        struct caches *v = t->caches;
        struct tenure_cache *c;
        int r = range_copy(t, q->key, q->key_len, q->end, q->end_len, q->prefix, &key, &end);

        if (r == 0 && (q->revision != 0 || q->limit != 0 || q->keys_only || q->count_only ||
                       q->serializable))
                r = tenure_fail(t, -EINVAL,
                                "a cache takes a key, an end and a prefix; leave revision, "
                                "limit and the like 0");
        if (r < 0)
                return r;
        c = calloc(1, sizeof(*c));
        if (!c)
                return tenure_fail(t, -ENOMEM, "out of memory");
        c->key = key;
        c->end = end;
        key = end = (struct buf){0};
        c->caches = v;
        c->id = ++v->id;
        c->backoff = RETRY_MIN;
        TAILQ_INSERT_TAIL(&v->all, c, entry);
        calls_soon(t);
        *ret = c;
        return 0;
}

struct tenure_cache *tenure_cache_free(struct tenure_cache *c)
{
        struct queued *q;

        if (!c)
                return NULL;
        empty(c);
        give_back(c->caches, c->id);
        while ((q = LIST_FIRST(&c->events))) {
                event_left(q);
                queue_take_back(c->caches->tenure, q);
        }
        TAILQ_REMOVE(&c->caches->all, c, entry);
        calls_soon(c->caches->tenure);
        buf_fini(&c->key);
        buf_fini(&c->end);
        free(c);
        return NULL;
}

bool tenure_cache_is_good(const struct tenure_cache *c)
{
        return c->there && tenure_is_ours(c->caches->tenure) &&
               boot_before(boot_now(), c->until);
}

size_t tenure_cache_n_kvs(const struct tenure_cache *c)
{
        return tenure_cache_is_good(c) ? c->found.n : 0;
}

const struct tenure_kv *tenure_cache_kv(const struct tenure_cache *c, size_t i)
{
        return i < c->found.n && tenure_cache_is_good(c) ? &c->found.kvs[i] : NULL;
}

static int kv_cmp(const void *key, const void *kv)
{
        const struct view *a = key;
        const struct tenure_kv *b = kv;

        return bytes_cmp(a->p, a->len, b->key, b->key_len);
}

int tenure_cache_get(const struct tenure_cache *c, const void *key, size_t key_len,
                     const struct tenure_kv **ret)
{
        struct view k = {key, key_len};

        if (!tenure_cache_is_good(c))
                return -EAGAIN;
        *ret = c->found.n > 0
                       ? bsearch(&k, c->found.kvs, c->found.n, sizeof(*c->found.kvs), kv_cmp)
                       : NULL;
        /* The term may have ended during the search; until then, what was found was correct. */
        return *ret ? 0 : -ENOENT;
}

int caches_new(struct tenure *t)
{
        struct caches *v = calloc(1, sizeof(*v));

        if (!v)
                return -ENOMEM;
        v->tenure = t;
        TAILQ_INIT(&v->all);
        call_stream_init(&v->stream, t);
        t->caches = v;
        return 0;
}

void caches_stop(struct tenure *t)
{
        struct caches *v = t->caches;
        struct tenure_cache *c;

        if (!v || !v->stream.call)
                return;
        TAILQ_FOREACH (c, &v->all, entry) {
                empty(c);
                give_back(v, c->id);
        }
        /* To cancel the stream would drop what is not sent yet. */
        v->ending = true;
        if (tenure_is_ours(t))
                client_flush(t->client, v->stream.endpoint);
}

void caches_free(struct tenure *t)
{
        if (!t->caches)
                return;
        while (!TAILQ_EMPTY(&t->caches->all))
                tenure_cache_free(TAILQ_FIRST(&t->caches->all));
        free(t->caches);
        t->caches = NULL;
}
