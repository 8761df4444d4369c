/* Maintenance/Hash and HashKV: hashes that must be equal on all replicas. */
#include "base/hash.h"
#include "base/probe.h"
#include "etcd/sliced.h"
#include "state/kv_hash.h"
#include "state/saver.h"

/* ---- Hash: the whole state, in the form of a snapshot ---- */

struct whole {
        struct sliced sliced;
        struct state_saver saver;
        bool encoded; /* everything has been encoded */
        uint64_t hash;
};

static void whole_fini(struct sliced *s)
{
        struct whole *w = container_of(s, struct whole, sliced);

        state_saver_fini(&w->saver);
        free(w);
}

static void whole_begin(struct sliced *s)
{
        struct whole *w = container_of(s, struct whole, sliced);

        state_save_start(&w->saver, core_state(s->q->api->core));
        w->hash = HASH_START;
        w->encoded = false;
        sliced_keep(s, sizeof(*w) + state_saver_bytes(&w->saver));
}

/* Adds what has been encoded to the hash, and drops it. */
static int whole_run(struct sliced *s)
{
        struct whole *w = container_of(s, struct whole, sliced);
        Pb__HashResponse p = PB__HASH_RESPONSE__INIT;
        struct buf *out = &w->saver.out;
        size_t n = min_of(buf_len(out), SLICE_BYTES);
        Pb__ResponseHeader h;
        int r;

        if (sliced_is_stale(s))
                return -ESTALE;
        r = n < SLICE_BYTES && !w->encoded ? state_save_more(&w->saver, SLICE_BYTES - n) : 1;
        if (r < 0)
                return r;
        w->encoded = w->encoded || r == 0;
        n = min_of(buf_len(out), SLICE_BYTES);
        w->hash = hash_add(w->hash, buf_head(out), n);
        buf_consume(out, n);
        if (!w->encoded || buf_len(out) > 0) {
                sliced_keep(s, sizeof(*w) + state_saver_bytes(&w->saver));
                return 0;
        }
        w->hash = hash_end(w->hash);
        core_header(s->q->api->core, &h);
        p.header = &h;
        p.hash = (uint32_t) (w->hash ^ w->hash >> 32);
        request_reply(s->q, &p.base);
        return 0;
}

static const struct sliced_ops whole_ops = {
        .begin = whole_begin, .run = whole_run, .fini = whole_fini};

void hash(struct request *q)
{
        struct whole *w = calloc(1, sizeof(*w));

        if (!w)
                return request_fail(q, status_nomem);
        sliced_start(&w->sliced, q, &whole_ops);
}

/* ---- HashKV: the keys and their history up to a revision ---- */

struct keys {
        struct sliced sliced;
        struct kv_hasher hasher;
        Pb__ResponseHeader header;
        Pb__HashKVResponse reply;
};

static void keys_fini(struct sliced *s)
{
        struct keys *k = container_of(s, struct keys, sliced);

        kv_hash_fini(&k->hasher);
        free(k);
}

static void keys_begin(struct sliced *s)
{
        struct keys *k = container_of(s, struct keys, sliced);
        const Pb__HashKVRequest *m = s->q->msg;
        struct state *st = core_state(s->q->api->core);

        if (m->revision > st->revision)
                return request_fail(s->q, status_of(STATE_E_FUTURE));
        if (m->revision > 0 && m->revision < st->kv.compacted) {
                PROBE("a hash is asked for at a revision that is compacted");
                return request_fail(s->q, status_of(STATE_E_COMPACTED));
        }
        core_header(s->q->api->core, &k->header);
        k->reply.hash_revision = m->revision > 0 ? m->revision : st->revision;
        k->reply.compact_revision = st->kv.compacted > 0 ? st->kv.compacted : -1;
        kv_hash_start(&k->hasher, &st->kv, k->reply.hash_revision);
}

static int keys_run(struct sliced *s)
{
        struct keys *k = container_of(s, struct keys, sliced);
        int r = sliced_is_stale(s) ? -ESTALE
                                   : kv_hash_more(&k->hasher, SLICE_BYTES, &k->reply.hash);

        PROBE_IF(r == 0 && core_state(s->q->api->core)->kv.compacted > k->reply.hash_revision,
                 "a compaction overtakes a hash, which is not changed by that");
        if (r != 0)
                return min_of(r, 0);
        k->reply.header = &k->header;
        request_reply(s->q, &k->reply.base);
        return 0;
}

static const struct sliced_ops keys_ops = {
        .begin = keys_begin, .run = keys_run, .fini = keys_fini};

void hash_kv(struct request *q)
{
        struct keys *k = calloc(1, sizeof(*k));

        if (!k)
                return request_fail(q, status_nomem);
        pb__hash_kvresponse__init(&k->reply);
        sliced_start(&k->sliced, q, &keys_ops);
}
