#include "state/kv_iter.h"

#define LOOK_STEPS 2              /* for a key of which one version is wanted */
#define KEY_STEPS 8               /* for one of which all are */
#define COUNT_STEPS 2             /* for one of these versions, before it is returned */
#define KEPT_STEPS 4              /* to find one that was dropped */
#define CHECK_STEPS 64            /* after this much work, *@steps is checked */
#define STEP_BYTES ((size_t) 512) /* bytes that are compared cost one more */
#define NOT_SEEN UINT64_MAX

static void begin(struct kv_iter *it, const struct kv *kv, int64_t from, int64_t upto)
{
        *it = (struct kv_iter){.kv = kv, .from = from, .upto = upto, .seen = NOT_SEEN};
}

void kv_iter_as_of(struct kv_iter *it, const struct kv *kv, const struct kv_span *span,
                   int64_t revision, bool down)
{
        begin(it, kv, revision, revision);
        it->span = *span;
        it->down = down;
}

void kv_iter_history(struct kv_iter *it, const struct kv *kv, int64_t revision)
{
        begin(it, kv, kv->compacted, revision);
        it->span = (struct kv_span){.to_end = true};
        it->history = true;
}

void kv_iter_pin(struct kv_iter *it, struct kv *kv)
{
        kept_pin(&kv->kept, &it->pin, it->from, it->upto);
        it->pinned = true;
}

void kv_iter_rewind(struct kv_iter *it)
{
        it->key = kv_key_release(it->key);
        it->doing = KV_LEAVE;
        it->seen = NOT_SEEN;
}

void kv_iter_fini(struct kv_iter *it)
{
        kept_unpin(&it->pin);
        kv_key_release(it->key);
        *it = (struct kv_iter){0};
}

/* ---- from key to key ---- */

static struct view name_of(const struct kv_key *k)
{
        return (struct view){k->bytes, k->len};
}

static bool is_same(const struct kv_key *a, const struct kv_key *b)
{
        return a == b || bytes_cmp(a->bytes, a->len, b->bytes, b->len) == 0;
}

/* The first key of the tree behind ours, which was removed, and may have been created again. */
static struct kv_key *behind(const struct kv_iter *it, bool live)
{
        struct kv_span rest = it->span;
        struct kv_key *k;

        *(it->down ? &rest.end : &rest.from) = name_of(it->key);
        rest.to_end = rest.to_end && !it->down;
        k = kv_first(it->kv, &rest, it->down, live);
        return k && is_same(k, it->key) ? kv_next(&rest, k, it->down, live) : k;
}

/* If nothing has changed since `upto`, deleted keys are skipped at no cost. */
static struct kv_key *next_in_tree(const struct kv_iter *it)
{
        bool live = !it->history && kv_is_newest(it->kv, it->upto);

        if (!it->key)
                return kv_first(it->kv, &it->span, it->down, live);
        if (it->key->gone && !it->span.single)
                return behind(it, live);
        return kv_next(&it->span, it->key, it->down, live);
}

/* The first dropped version behind our key, of whatever key. */
static struct kept_version *seek_kept(const struct kv_iter *it)
{
        struct kept_versions *all = (struct kept_versions *) (uintptr_t) &it->kv->kept.versions;
        const struct kv_span *s = &it->span;
        struct kept_version *e;

        if (!it->down) {
                e = it->key ? kept_before(&it->kv->kept, name_of(it->key), INT64_MAX, 0)
                            : kept_before(&it->kv->kept, s->from, 0, 0);
                return e ? RB_NEXT(kept_versions, NULL, e) : RB_MIN(kept_versions, all);
        }
        if (it->key)
                return kept_before(&it->kv->kept, name_of(it->key), 0, 0);
        if (s->to_end)
                return RB_MAX(kept_versions, all);
        return s->single ? kept_before(&it->kv->kept, s->from, INT64_MAX, 0)
                         : kept_before(&it->kv->kept, s->end, 0, 0);
}

/* The next key of which versions were dropped. */
static struct kv_key *next_kept(struct kv_iter *it)
{
        const struct kept *kept = &it->kv->kept;
        struct kept_version *e = it->kept;

        if (!kv_iter_is_overtaken(it))
                return NULL;
        if (it->seen == kept->n_changes && e && it->key && is_same(e->key, it->key))
                e = it->down ? RB_PREV(kept_versions, NULL, e)
                             : RB_NEXT(kept_versions, NULL, e);
        if (it->seen != kept->n_changes || (e && it->key && is_same(e->key, it->key)))
                e = seek_kept(it);
        it->seen = kept->n_changes;
        it->kept = e;
        return e && kv_span_has(&it->span, e->key->bytes, e->key->len) ? e->key : NULL;
}

/* Returns false if there is no other key. */
static bool next_key(struct kv_iter *it)
{
        struct kv_key *k = next_in_tree(it), *kept = next_kept(it);

        if (k && kept) {
                int c = bytes_cmp(kept->bytes, kept->len, k->bytes, k->len);

                k = (it->down ? c > 0 : c < 0) ? kept : k;
        } else {
                k = k ? k : kept;
        }
        if (!k)
                return false;
        kv_key_hold(k);
        kv_key_release(it->key);
        it->key = k;
        it->at = NULL;
        it->n = 0;
        return true;
}

/* ---- from version to version ---- */

/* The last dropped version of our key before this place, unless it is kept for others. */
static const struct kv_version *kept_older(const struct kv_iter *it, int64_t revision,
                                           uint32_t sub, int64_t *steps)
{
        struct kept_version *e;

        if (!kv_iter_is_overtaken(it))
                return NULL;
        *steps -= KEPT_STEPS +
                  (int64_t) (budget_search_bytes(it->kv->kept.n, it->key->len) / STEP_BYTES);
        e = kept_before(&it->kv->kept, name_of(it->key), revision, sub);
        return e && is_same(e->key, it->key) && e->until > it->from ? e->v : NULL;
}

static const struct kv_version *older(const struct kv_iter *it, const struct kv_version *v,
                                      int64_t *steps)
{
        return v->older ? v->older : kept_older(it, v->mod_revision, v->sub, steps);
}

/* Finds the newest version of ours. There may be many that are newer than `upto`: a compaction
 * beyond the one where we stood still may have freed it. Returns false if *@steps ran out. */
static bool seek(struct kv_iter *it, int64_t *steps)
{
        const struct kv_version *v = it->at;

        if (!v || (it->n_dropped != it->kv->n_dropped && it->at_revision < it->kv->compacted))
                v = it->key->newest;
        for (size_t i = 1; v && v->mod_revision > it->upto; i++, v = v->older) {
                --*steps;
                if (i % CHECK_STEPS != 0 || *steps > 0)
                        continue;
                it->at = v;
                it->at_revision = v->mod_revision;
                it->n_dropped = it->kv->n_dropped;
                return false;
        }
        it->at = it->newest = v ? v : kept_older(it, it->upto, UINT32_MAX, steps);
        return true;
}

/* Goes from the newest version to the oldest, by one at least if there are steps left. */
static bool count(struct kv_iter *it, int64_t *steps)
{
        while (*steps > 0) {
                const struct kv_version *v = it->n == 0 ? it->at : older(it, it->at, steps);

                if (!v)
                        return true;
                *steps -= COUNT_STEPS;
                it->n++;
                it->at = v;
        }
        return false;
}

int kv_iter_next(struct kv_iter *it, int64_t *steps)
{
        if (!kv_iter_is_good(it))
                return -ESTALE;
        for (;;) {
                if (it->doing == KV_LEAVE) {
                        if (!next_key(it))
                                return 0;
                        it->doing = KV_ARRIVE;
                }
                if (it->doing == KV_ARRIVE) {
                        if (*steps <= 0)
                                return KV_PAUSE;
                        *steps -= it->history
                                          ? KEY_STEPS
                                          : LOOK_STEPS + (int64_t) (it->key->len / STEP_BYTES);
                        it->doing = KV_SEEK;
                }
                if (it->doing == KV_SEEK) {
                        if (!seek(it, steps))
                                return KV_PAUSE;
                        it->doing = it->history ? KV_COUNT : KV_LEAVE;
                        it->version = it->newest;
                        if (!it->history && it->newest && it->newest->version > 0)
                                return KV_VERSION;
                }
                if (it->doing == KV_COUNT) {
                        if (!count(it, steps))
                                return KV_PAUSE;
                        it->doing = KV_TELL;
                        if (it->n > 0)
                                return KV_KEY;
                }
                if (it->doing == KV_TELL && it->at) {
                        if (*steps <= 0)
                                return KV_PAUSE;
                        --*steps;
                        it->version = it->at;
                        /* All of ours exist, and between two of them there was no other. */
                        it->at = it->at == it->newest ? NULL : it->at->newer;
                        return KV_VERSION;
                }
                it->doing = KV_LEAVE;
        }
}
