#include "state/past.h"

#include "base/hash.h"

#define KEY_STEPS 8 /* to find the next key */
#define BYTES_PER_STEP 16

void past_begin(struct past *p, struct kv *kv, int64_t revision, bool pin)
{
        past_fini(p);
        p->kv = kv;
        p->pinned = pin;
        p->revision = revision;
        p->compacted = kv->compacted;
        if (pin)
                kept_pin_history(&kv->kept, &p->pin, revision, kv->compacted);
        past_rewind(p);
}

void past_fini(struct past *p)
{
        kept_unpin(&p->pin);
        kv_key_release(p->named);
        *p = (struct past){0};
}

void past_rewind(struct past *p)
{
        p->named = kv_key_release(p->named);
        p->key = NULL;
        p->doing = PAST_LEAVE;
}

static bool is_stale(const struct past *p)
{
        return p->pinned ? !p->pin.of : p->kv->compacted != p->compacted;
}

bool past_is_good(const struct past *p)
{
        return !is_stale(p);
}

static bool was_compacted(const struct past *p)
{
        return p->kv->compacted != p->compacted;
}

/* ---- from key to key ---- */

static void find_key(struct past *p)
{
        if (p->n_gone == p->kv->n_gone || !p->named)
                return;
        p->n_gone = p->kv->n_gone;
        p->key = p->named->gone ? kv_find(p->kv, p->named->bytes, p->named->len) : p->named;
}

static struct view name_of(const struct past *p)
{
        return p->named ? (struct view){p->named->bytes, p->named->len} : (struct view){0};
}

/* The first key after `named`. */
static struct kv_key *behind(const struct past *p)
{
        struct kv_span span = {.from = name_of(p), .to_end = true};
        struct kv_key *k;

        if (p->key)
                return kv_span_next(&span, p->key);
        k = kv_span_first(p->kv, &span);
        /* `named` had been removed, and may have been created again since. */
        if (k && bytes_cmp(k->bytes, k->len, span.from.p, span.from.len) == 0)
                k = kv_span_next(&span, k);
        return k;
}

/* Returns false if there is no other key. */
static bool next_key(struct past *p)
{
        struct kv_key *k = behind(p), *kept = NULL, *next = k;
        struct view name = name_of(p);

        if (was_compacted(p))
                kept = kept_behind(&p->kv->kept, name.p, name.len);
        if (kept && (!k || bytes_cmp(kept->bytes, kept->len, k->bytes, k->len) < 0)) {
                next = kept;
                k = NULL;
        }
        if (!next)
                return false;
        kv_key_hold(next);
        kv_key_release(p->named);
        p->named = next;
        p->key = k;
        p->n_gone = p->kv->n_gone;
        p->oldest = p->at = NULL;
        p->doing = PAST_SEEK;
        return true;
}

/* ---- from version to version ---- */

/* The oldest version of ours that was dropped since. NULL if all kept versions are too new and
 * kept for other readers: then none of ours was dropped. */
static const struct kv_version *oldest_dropped(const struct past *p, bool *ret_any)
{
        const struct kv_version *v = NULL;

        if (was_compacted(p))
                v = kept_oldest(&p->kv->kept, p->named->bytes, p->named->len, p->compacted);
        *ret_any = v;
        return v && v->mod_revision <= p->revision ? v : NULL;
}

/* Finds the oldest version: among the dropped ones or, if there are none, at the end of the
 * chain. There may be many versions newer than ours. Compacted versions are gone except for the
 * last of the chain, so the walk never pauses on that one. */
static bool seek(struct past *p, int64_t *steps)
{
        const struct kv_version *v = p->at;
        bool dropped;

        p->oldest = oldest_dropped(p, &dropped);
        if (dropped || !p->key)
                return true;
        if (!v || (p->at_revision > p->revision && p->at_revision < p->kv->compacted))
                v = p->key->newest;
        for (; v; v = v->older) {
                if (*steps <= 0 && v->older) {
                        p->at = v;
                        p->at_revision = v->mod_revision;
                        return false;
                }
                --*steps;
                if (v->mod_revision <= p->revision)
                        p->oldest = v;
        }
        return true;
}

/* The next newer version. In the chain, `newer` is valid; for a dropped version, it is known to
 * be valid only if the next version also belongs to this past. */
static const struct kv_version *newer(const struct past *p, const struct kv_version *v)
{
        if (v->key == p->key)
                return v->newer && v->newer->mod_revision <= p->revision ? v->newer : NULL;
        return kept_until(&p->kv->kept, v) <= p->revision ? v->newer : NULL;
}

static bool count(struct past *p, int64_t *steps)
{
        while (p->at) {
                if (*steps <= 0)
                        return false;
                --*steps;
                p->n++;
                p->at = newer(p, p->at);
        }
        return true;
}

int past_next(struct past *p, int64_t *steps)
{
        if (is_stale(p))
                return -ESTALE;
        find_key(p);
        for (;;) {
                if (*steps <= 0)
                        return PAST_PAUSE;
                switch (p->doing) {
                case PAST_SEEK:
                        if (!seek(p, steps))
                                return PAST_PAUSE;
                        p->at = p->oldest;
                        p->n = 0;
                        p->doing = PAST_COUNT;
                        break;
                case PAST_COUNT:
                        if (!count(p, steps))
                                return PAST_PAUSE;
                        p->at = p->oldest;
                        p->doing = PAST_TELL;
                        if (p->n > 0) /* the key was created later */
                                return PAST_KEY;
                        break;
                case PAST_TELL:
                        p->version = p->at;
                        if (!p->at) {
                                p->doing = PAST_LEAVE;
                                break;
                        }
                        --*steps;
                        p->at = newer(p, p->at);
                        return PAST_VERSION;
                case PAST_LEAVE:
                        *steps -= KEY_STEPS;
                        if (!next_key(p))
                                return 0;
                        break;
                }
        }
}

/* ---- hashing ---- */

void kv_hash_start(struct kv_hasher *h, struct kv *kv, int64_t revision)
{
        past_begin(&h->past, kv, revision, true);
        h->hash = HASH_START;
}

void kv_hash_fini(struct kv_hasher *h)
{
        past_fini(&h->past);
}

static size_t hash_version(struct kv_hasher *h, const struct kv_version *v)
{
        int64_t numbers[] = {v->mod_revision, v->create_revision, v->version, v->lease};

        h->hash = hash_add(h->hash, v->key->bytes, v->key->len);
        h->hash = hash_add(h->hash, numbers, sizeof(numbers));
        h->hash = hash_add(h->hash, v->value, v->value_len);
        return sizeof(numbers) + v->key->len + v->value_len;
}

int kv_hash_more(struct kv_hasher *h, size_t bytes, uint32_t *ret)
{
        int64_t steps = (int64_t) (bytes / BYTES_PER_STEP + 1);
        int r;

        while ((r = past_next(&h->past, &steps)) > 0) {
                if (r == PAST_PAUSE)
                        return 1;
                if (r == PAST_VERSION)
                        steps -= (int64_t) (hash_version(h, h->past.version) / BYTES_PER_STEP);
        }
        if (r < 0)
                return r;
        h->hash = hash_end(h->hash);
        *ret = (uint32_t) (h->hash ^ h->hash >> 32);
        return 0;
}
