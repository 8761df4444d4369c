/*
 * Clients that read from a cache (state/cached.h): each asks one replica after the other for a
 * term on one key or on ten, and answers its own reads while the term runs by its own clock.
 * Some do not get recalls. What they read must be what a read of the core would have found
 * (I8); and whatever it is that changes a key, a lease that ends for example, nothing changes
 * anywhere that a client may still read from its cache (I11).
 */
#include <stdio.h>

#include "world.h"

#define N_CACHES 3

struct cached_key {
        int64_t key, value, found;
};

struct client {
        struct wire link;
        struct rpc_call *stream;
        nsec_t act_at;
        int32_t ppm;
        bool deaf;    /* does not get recalls */
        bool crossed; /* it released its term while it waited for the next one */
        bool prefix;
        char name[4];        /* the key, or the prefix of its keys */
        struct prompt waits; /* for that term */
        nsec_t asked; /* when it asked for a term that is not answered yet; 0: it did not */
        nsec_t until; /* true time; until then what it has cached is valid ... */
        int64_t same; /* ... and was found unchanged up to this revision */
        struct cached_key has[N_KEYS];
        size_t n;
};

static struct client clients[N_CACHES];

static nsec_t some(nsec_t from, nsec_t to)
{
        return some_time(W, from, to);
}

static void forget(struct client *c)
{
        c->until = 0;
        c->n = 0;
}

static ProtobufCBinaryData key_of(const struct client *c)
{
        return pb_bytes(c->name, strlen(c->name));
}

/* The end of a range; or none, for one key. */
static ProtobufCBinaryData end_of(const struct client *c)
{
        static char end[sizeof(c->name)];

        strcpy(end, c->name);
        end[strlen(end) - 1]++;
        return c->prefix ? pb_bytes(end, strlen(end)) : (ProtobufCBinaryData){0};
}

/* Of a key: a letter and two digits. */
static int64_t number_in(const uint8_t *key)
{
        return (key[1] - '0') * 10 + key[2] - '0';
}

/* What it has cached stays valid. */
static void disconnect(void *arg)
{
        struct client *c = arg;

        wire_close(&c->link);
        prompt_end(&c->waits);
        c->stream = NULL;
        c->asked = 0;
        c->crossed = false;
        c->act_at = W->now + some(5 * MSEC, 300 * MSEC);
}

static void say(struct client *c, const Pb__CacheRequest *q)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, &q->base);
        if (buf_error(&b) < 0 || rpc_call_send(c->stream, b.data, buf_len(&b)) < 0)
                abort();
        c->link.client_dirty = true;
}

static void ask(struct client *c)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;

        q.id = 1;
        q.key = key_of(c);
        q.range_end = end_of(c);
        q.term_ms = W->cache_ms;
        q.have = c->n > 0 && c->until > W->now;
        c->asked = W->now;
        say(c, &q);
        prompt_begin(&c->waits, c->link.to, "a cache's term", PROMPT_MAJORITY + W->cache_term);
}

static void release(struct client *c)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;

        forget(c);
        q.id = 1;
        q.release = true;
        say(c, &q);
}

/* A process may read from its cache, whatever the network does. */
static void read_cache(struct client *c)
{
        if (W->now >= c->until || *c->name == TIED)
                return;
        for (int64_t key = 0; key < N_KEYS; key++) {
                struct cached_key none = {.key = key}, *k = &none;
                char name[16];

                snprintf(name, sizeof(name), "k%02d", (int) key);
                if (c->prefix ? strncmp(name, c->name, strlen(c->name)) != 0
                              : strcmp(name, c->name) != 0)
                        continue;
                for (size_t i = 0; i < c->n; i++)
                        if (c->has[i].key == key)
                                k = &c->has[i];
                check_cached(W, key, k->value, k->found);
                W->counts.cached++;
        }
}

static void take(struct client *c, const Pb__CacheResponse *p)
{
        nsec_t term;

        if (!p->unchanged) {
                c->n = 0;
                c->same = p->header->revision;
                for (size_t i = 0; i < p->n_kvs; i++) {
                        const Pb__KeyValue *kv = p->kvs[i];
                        struct cached_key *k = &c->has[c->n++];

                        k->key = number_in(kv->key.data);
                        k->value = 0;
                        memcpy(&k->value, kv->value.data,
                               min_of(kv->value.len, sizeof(k->value)));
                        k->found = kv->mod_revision;
                }
        } else if (c->until == 0) {
                fail(W, "a cache that has nothing is told that nothing has changed");
        }
        /* Our clock may be slow, and the core's fast. */
        term = p->term_ms * MSEC / 1000 * 999 / (1000000 + c->ppm) * 1000000;
        c->until = max_of(p->unchanged ? c->until : 0, c->asked + term);
        if (p->term_ms == 0)
                forget(c);
        W->met.cache_refused += p->term_ms == 0;
        c->asked = 0;
        read_cache(c);
}

static void on_message(struct rpc_call *k, struct view m)
{
        struct client *c = k->userdata;
        Pb__CacheResponse *p = pb__cache_response__unpack(NULL, m.len, m.p);

        if (!p)
                abort();
        if (!p->recall)
                prompt_end(&c->waits);
        if (p->recall && c->deaf) {
                W->met.cache_deaf += c->until > W->now;
        } else if (p->recall) {
                read_cache(c); /* as late as possible */
                W->counts.recalled++;
                c->crossed = c->asked != 0;
                release(c);
        } else if (*p->error) {
                c->asked = 0;
                c->crossed = false;
        } else if (c->crossed) {
                /* The core may have read our release after it gave this term, or before. */
                c->asked = 0;
                c->crossed = false;
                release(c);
        } else {
                take(c, p);
        }
        pb_free(p);
}

static void on_status(struct rpc_call *k, enum rpc_code code, const char *message)
{
        struct client *c = k->userdata;

        (void) code;
        (void) message;
        c->link.broken = true;
}

static void on_close(struct rpc_call *k)
{
        struct client *c = k->userdata;

        c->stream = NULL;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static void connect_somewhere(struct client *c)
{
        if (!wire_connect(&c->link, (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1)))
                return;
        if (rpc_call_new(c->link.client, "/tenurepb.Cache/Cache", false, &handler, c,
                         &c->stream) < 0)
                abort();
        /* It may read another key from now on; then it drops what it has cached. */
        if (chance(W, 30)) {
                forget(c);
                c->prefix = chance(W, 50);
                snprintf(c->name, sizeof(c->name), c->prefix ? "k0" : "k%02d",
                         (int) rnd_between(&W->rnd, 0, N_KEYS - 1));
                if (W->tied && chance(W, 50))
                        *c->name = TIED;
        }
        c->deaf = chance(W, 30);
        ask(c);
}

static void act(void *arg)
{
        struct client *c = arg;

        c->act_at = W->now + some(10 * MSEC, 150 * MSEC);
        read_cache(c);
        if (load_ended(W)) {
                forget(c);
                if (c->link.client)
                        disconnect(c);
                c->act_at = NEVER;
        } else if (!c->link.client) {
                connect_somewhere(c);
        } else if (!c->stream || chance(W, 2) ||
                   (c->asked && W->now - c->asked > 3 * NSEC_PER_SEC)) {
                c->link.broken = true;
        } else if (!c->asked && (c->until - W->now < W->cache_ms * MSEC / 2 || chance(W, 10))) {
                ask(c);
        }
}

void caches_begin(void)
{
        for (unsigned i = 0; i < N_CACHES; i++) {
                struct client *c = &clients[i];

                *c = (struct client){.prefix = i > 0};
                wire_init(&c->link, NULL, NULL);
                strcpy(c->name, i > 0 ? "k0" : "k05");
                if (W->tied && i > 1)
                        *c->name = TIED;
                c->ppm = (int32_t) rnd_between(&W->rnd, 0, 1000) - 500;
                c->act_at = some(0, 2000 * MSEC);
                if (!(W->does & USUAL_CACHES))
                        c->act_at = NEVER;
        }
}

static bool has(const struct client *c, const struct kv_key *k)
{
        for (size_t i = 0; i < c->n; i++)
                if (c->has[i].key == number_in(k->bytes) &&
                    c->has[i].found == k->newest->mod_revision)
                        return true;
        return false;
}

static void look_at(struct client *c, const struct state *s)
{
        ProtobufCBinaryData key = key_of(c), end = end_of(c);
        struct kv_span span = kv_span(&key, &end);
        size_t n = 0;

        if (W->now >= c->until || s->revision <= c->same)
                return;
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k;
             k = kv_live_next(&span, k), n++)
                if (!has(c, k))
                        fail(W,
                             "I11: %.*s changed at revision %lld, while a cache may have it "
                             "for %.3f s more",
                             (int) k->len, (const char *) k->bytes,
                             (long long) k->newest->mod_revision,
                             (double) (c->until - W->now) / 1e9);
        if (n < c->n)
                fail(W,
                     "I11: a key of %s was deleted by revision %lld, while a cache may have it "
                     "for %.3f s more",
                     c->name, (long long) s->revision, (double) (c->until - W->now) / 1e9);
        c->same = s->revision;
}

void caches_applied(const struct state *s)
{
        for (unsigned i = 0; i < N_CACHES; i++)
                look_at(&clients[i], s);
}

void caches_end(void)
{
        for (unsigned i = 0; i < N_CACHES; i++)
                disconnect(&clients[i]);
}

void caches_go_on(void)
{
        for (unsigned i = 0; i < N_CACHES && W->does & USUAL_CACHES; i++)
                clients[i].act_at = min_of(clients[i].act_at, W->now + some(0, 2000 * MSEC));
}

void caches_run(void)
{
        for (unsigned i = 0; i < N_CACHES; i++) {
                struct client *c = &clients[i];

                wire_run(&c->link, &c->act_at, act, disconnect, c);
        }
}

nsec_t caches_next(void)
{
        nsec_t at = NEVER;

        for (unsigned i = 0; i < N_CACHES; i++) {
                at = min_of(at, clients[i].act_at);
                at = min_of(at, wire_next(&clients[i].link));
        }
        return at;
}
