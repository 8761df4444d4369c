/*
 * What production code does with a state in slices, in one go.
 */
#pragma once

#include "base/hash.h"
#include "state/loader.h"
#include "state/saver.h"

/* Applies one command. Returns 0 or -ENOMEM. */
must_check_ static inline int state_apply(struct state *s, const struct cmd *c,
                                          struct state_reply *reply)
{
        struct budget all = BUDGET_ALL;

        return state_apply_some(s, c, reply, &all);
}

/* Appends a snapshot; @out remembers if memory ran out. */
static inline void state_save(const struct state *s, struct buf *out)
{
        struct state_saver sv = {0};

        state_save_start(&sv, (struct state *) (uintptr_t) s);
        if (state_save_more(&sv, SIZE_MAX) < 0)
                out->failed = true;
        else
                buf_add(out, buf_head(&sv.out), buf_len(&sv.out));
        state_saver_fini(&sv);
}

/* Fills a fresh @s. Returns 0, -EBADMSG or -ENOMEM; on failure @s is empty. */
must_check_ static inline int state_load(struct state *s, struct view snapshot)
{
        struct state_loader l;
        struct budget all = BUDGET_ALL;
        int r;

        state_load_start(&l, s, snapshot);
        r = state_load_some(&l, &all);
        if (r < 0) {
                state_fini(s);
                state_init(s);
        }
        return r;
}

/* A hash of the snapshot. */
static inline uint64_t state_hash(const struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};

        state_save(s, &b);
        return hash_end(hash_add_words(HASH_START, buf_head(&b), buf_len(&b)));
}

static inline void kv_compact(struct kv *kv, int64_t revision)
{
        struct budget all = BUDGET_ALL;

        (void) !kv_compact_some(kv, revision, &all);
}

static inline void kv_fini(struct kv *kv)
{
        struct budget all = BUDGET_ALL;

        kept_unpin_all(&kv->kept);
        (void) !kv_free_some(kv, &all);
        *kv = (struct kv){0};
}

/* The value of @k as of @revision (0: now); NULL if it did not exist then. */
static inline const struct kv_version *kv_at(const struct kv_key *k, int64_t revision)
{
        const struct kv_version *v = k->newest;

        while (v && revision > 0 && v->mod_revision > revision)
                v = v->older;
        return v && v->version > 0 ? v : NULL;
}
