#include "state/kv.h"

#include "state/charge.h"

#define COMPACT_MAX 2048                  /* changes in one compaction: about 5 ms ... */
#define COMPACT_BYTES ((size_t) 64 << 20) /* ... and bytes, which take about 3 ms to free */

static int kv_key_cmp(const struct kv_key *a, const struct kv_key *b)
{
        return bytes_cmp(a->bytes, a->len, b->bytes, b->len);
}

static bool is_live(const struct kv_key *k)
{
        return k->newest && kv_live(k);
}

static size_t live_below(const struct kv_key *k)
{
        return k ? k->n_live : 0;
}

static int64_t created(const struct kv_key *k)
{
        return is_live(k) ? k->newest->create_revision : 0;
}

static int64_t elder(int64_t a, int64_t b)
{
        return a == 0 || (b != 0 && b < a) ? b : a;
}

static void count_again(struct kv_key *k)
{
        const struct kv_key *left = RB_LEFT(k, by_key), *right = RB_RIGHT(k, by_key);

        k->n_live = (uint32_t) (is_live(k) + live_below(left) + live_below(right));
        k->eldest = created(k);
        if (left)
                k->eldest = elder(k->eldest, left->eldest);
        if (right)
                k->eldest = elder(k->eldest, right->eldest);
}

/* tree(3bsd) calls this for nodes whose children changed, but not for every node above one that
 * is inserted or removed. So a key must not be live when it is inserted or removed; then all
 * counts above it stay as they are. In between, lives() and dies() maintain the counts. */
#undef RB_AUGMENT
#define RB_AUGMENT(k) count_again(k)

TREE_GENERATE(kv_tree, kv_key, by_key, kv_key_cmp)

/* @k has become live: each key above it counts one more; nothing else about @k has changed. */
static void lives(struct kv_key *k)
{
        int64_t born = created(k);

        for (; k; k = RB_PARENT(k, by_key)) {
                k->n_live++;
                k->eldest = elder(k->eldest, born);
        }
}

static void dies(struct kv_key *k)
{
        for (; k; k = RB_PARENT(k, by_key))
                count_again(k);
}

/* @k has a new newest version. */
static void count(struct kv_key *k, bool was_live)
{
        if (is_live(k) && !was_live)
                lives(k);
        else if (!is_live(k) && was_live)
                dies(k);
}

struct kv_span kv_span(const ProtobufCBinaryData *key, const ProtobufCBinaryData *range_end)
{
        return (struct kv_span){
                .from = {key->data, key->len},
                .end = {range_end->data, range_end->len},
                .single = range_end->len == 0,
                .to_end = range_end->len == 1 && range_end->data[0] == 0,
        };
}

bool kv_span_has(const struct kv_span *span, const void *key, size_t key_len)
{
        int c = bytes_cmp(key, key_len, span->from.p, span->from.len);

        if (span->single)
                return c == 0;
        if (c < 0)
                return false;
        return span->to_end || bytes_cmp(key, key_len, span->end.p, span->end.len) < 0;
}

bool kv_span_is_empty(const struct kv_span *s)
{
        return !s->single && !s->to_end &&
               bytes_cmp(s->from.p, s->from.len, s->end.p, s->end.len) >= 0;
}

bool kv_spans_overlap(const struct kv_span *a, const struct kv_span *b)
{
        if (kv_span_is_empty(a) || kv_span_is_empty(b))
                return false;
        return kv_span_has(a, b->from.p, b->from.len) || kv_span_has(b, a->from.p, a->from.len);
}

void kv_init(struct kv *kv)
{
        *kv = (struct kv){0};
        RB_INIT(&kv->keys);
        kept_init(&kv->kept);
}

CHARGES(struct kv_key, CHARGE_KEY);
CHARGES(struct kv_version, CHARGE_VERSION);

static size_t version_cost(const struct kv_version *v)
{
        return CHARGE_VERSION + v->value_len;
}

static void key_free(struct kv *kv, struct kv_key *k)
{
        RB_REMOVE(kv_tree, &kv->keys, k);
        kv->n_all--;
        kv->bytes -= CHARGE_KEY + k->len;
        k->gone = true;
        kv_key_release(k);
}

/* The first revision to which a compaction drops @v, which a version of revision @next follows.
 * A value is seen until then. A deletion is an event at its own revision and nothing later; so
 * is what a txn overwrites itself. */
static int64_t until(const struct kv_version *v, int64_t next)
{
        return v->version == 0 ? v->mod_revision + 1 : max_of(next, v->mod_revision + 1);
}

static int64_t next_revision(const struct kv_version *v)
{
        return v->newer ? v->newer->mod_revision : INT64_MAX;
}

/* A compaction drops @v and all older versions. A version of revision @next follows @v. */
static void versions_drop(struct kv *kv, struct kv_version *v, int64_t next,
                          struct budget *left)
{
        while (v) {
                struct kv_version *older = v->older;
                int64_t revision = v->mod_revision;

                kv->bytes -= version_cost(v);
                kv->n_dropped++;
                /* If @next is the revision of the compaction before, that one has left @v,
                 * unless it was the first to reach @v. */
                if (!kept_take(&kv->kept, v, max_of(until(v, next), kv->compacted_before + 1),
                               left)) {
                        budget_charge_free(left, v->value_len);
                        free(v);
                }
                next = revision;
                v = older;
        }
}

/* Frees the leaves first. No key is looked up any more, so the tree need not stay balanced. */
static void leaf_free(struct kv *kv, struct kv_key *k)
{
        struct kv_key *above = RB_PARENT(k, by_key);

        if (!above)
                RB_INIT(&kv->keys);
        else if (RB_LEFT(above, by_key) == k)
                RB_LEFT(above, by_key) = NULL;
        else
                RB_RIGHT(above, by_key) = NULL;
        k->gone = true;
        kv_key_release(k);
}

static bool versions_free(struct kv_key *k, struct budget *left)
{
        while (k->newest && !budget_is_spent(left)) {
                struct kv_version *v = k->newest;

                k->newest = v->older;
                budget_charge_free(left, v->value_len);
                free(v);
        }
        return !k->newest;
}

bool kv_free_some(struct kv *kv, struct budget *left)
{
        struct kv_key *k = RB_ROOT(&kv->keys), *next;

        if (!kept_free_some(&kv->kept, left) || !kv_order_free_some(kv, left))
                return false;
        /* First, since in memory they lie between the versions. */
        for (; kv->n_history_blocks > 0; kv->n_history_blocks--) {
                if (budget_is_spent(left))
                        return false;
                budget_charge_free(left, KV_BLOCK_BYTES);
                free(kv->history[kv->n_history_blocks - 1]);
        }
        free(kv->history);
        kv->history = NULL;
        for (; k; k = next) {
                next = RB_LEFT(k, by_key) ? RB_LEFT(k, by_key) : RB_RIGHT(k, by_key);
                if (next)
                        continue;
                if (budget_is_spent(left) || !versions_free(k, left))
                        return false;
                budget_charge_free(left, k->len);
                next = RB_PARENT(k, by_key);
                leaf_free(kv, k);
        }
        return true;
}

struct kv_key *kv_find(const struct kv *kv, const void *key, size_t key_len)
{
        struct kv_key *k = RB_ROOT(&kv->keys);

        while (k) {
                int c = bytes_cmp(key, key_len, k->bytes, k->len);

                if (c == 0)
                        return k;
                k = c < 0 ? RB_LEFT(k, by_key) : RB_RIGHT(k, by_key);
        }
        return NULL;
}

/* The subtrees that come before and after @k; @down: in descending order. */
static struct kv_key *before(const struct kv_key *k, bool down)
{
        return down ? RB_RIGHT(k, by_key) : RB_LEFT(k, by_key);
}

static struct kv_key *behind(const struct kv_key *k, bool down)
{
        return down ? RB_LEFT(k, by_key) : RB_RIGHT(k, by_key);
}

/* The first live key in @k's subtree, which has at least one. */
static struct kv_key *first_live(struct kv_key *k, bool down)
{
        for (;;)
                if (live_below(before(k, down)) > 0)
                        k = before(k, down);
                else if (is_live(k))
                        return k;
                else
                        k = behind(k, down);
}

static struct kv_key *next_live(struct kv_key *k, bool down)
{
        struct kv_key *up;

        if (live_below(behind(k, down)) > 0)
                return first_live(behind(k, down), down);
        for (; (up = RB_PARENT(k, by_key)); k = up) {
                if (k != before(up, down))
                        continue;
                if (is_live(up))
                        return up;
                if (live_below(behind(up, down)) > 0)
                        return first_live(behind(up, down), down);
        }
        return NULL;
}

static struct kv_key *within(const struct kv_span *span, struct kv_key *k)
{
        return k && kv_span_has(span, k->bytes, k->len) ? k : NULL;
}

/* Memory brings the key after @k, which is most often there, while the caller looks at @k. */
static void fetch_behind(const struct kv_key *k, bool down)
{
        const struct kv_key *next = behind(k, down);

        __builtin_prefetch(k->newest);
        if (!next)
                return;
        __builtin_prefetch(next);
        __builtin_prefetch(next->bytes);
}

struct kv_key *kv_next(const struct kv_span *span, struct kv_key *k, bool down, bool live)
{
        if (span->single)
                return NULL;
        if (live)
                k = next_live(k, down);
        else
                k = down ? RB_PREV(kv_tree, NULL, k) : RB_NEXT(kv_tree, NULL, k);
        if (k)
                fetch_behind(k, down);
        return within(span, k);
}

/* Whether @k is not beyond the end of @span that is looked for: its last key, or its first. */
static bool is_on_side(const struct kv_span *span, const struct kv_key *k, bool down)
{
        if (!down)
                return bytes_cmp(k->bytes, k->len, span->from.p, span->from.len) >= 0;
        return span->to_end || bytes_cmp(k->bytes, k->len, span->end.p, span->end.len) < 0;
}

struct kv_key *kv_first(const struct kv *kv, const struct kv_span *span, bool down, bool live)
{
        struct kv_key *k = RB_ROOT(&kv->keys), *best = NULL;

        if (span->single) {
                k = kv_find(kv, span->from.p, span->from.len);
                return k && live && !is_live(k) ? NULL : k;
        }
        while (k) {
                bool in = is_on_side(span, k, down);

                if (in)
                        best = k;
                k = in == down ? RB_RIGHT(k, by_key) : RB_LEFT(k, by_key);
        }
        best = within(span, best);
        return !best || !live || is_live(best) ? best : kv_next(span, best, down, true);
}

/* How many live keys are less than @bound. */
static size_t live_before(const struct kv *kv, struct view bound)
{
        struct kv_key *k = RB_ROOT(&kv->keys);
        size_t n = 0;

        while (k) {
                if (bytes_cmp(k->bytes, k->len, bound.p, bound.len) < 0) {
                        n += is_live(k) + live_below(RB_LEFT(k, by_key));
                        k = RB_RIGHT(k, by_key);
                } else {
                        k = RB_LEFT(k, by_key);
                }
        }
        return n;
}

size_t kv_span_count(const struct kv *kv, const struct kv_span *span)
{
        size_t end, from;

        if (span->single) {
                const struct kv_key *k = kv_find(kv, span->from.p, span->from.len);

                return k && kv_live(k);
        }
        from = live_before(kv, span->from);
        end = span->to_end ? kv->n_keys : live_before(kv, span->end);
        return end > from ? end - from : 0;
}

/* The key in @k's subtree that was created at @revision, the lowest in that subtree. */
static struct kv_key *eldest_below(struct kv_key *k, int64_t revision)
{
        for (;;) {
                struct kv_key *left = RB_LEFT(k, by_key);

                if (left && left->eldest == revision)
                        k = left;
                else if (created(k) == revision)
                        return k;
                else
                        k = RB_RIGHT(k, by_key);
        }
}

/* Replaces *@best by @k if @k is older, or as old and sorts before it. */
static void take_elder(struct kv_key **best, struct kv_key *k)
{
        if (created(k) != 0 && (!*best || created(k) < created(*best) ||
                                (created(k) == created(*best) && kv_key_cmp(k, *best) < 0)))
                *best = k;
}

/* Like take_elder(), for all keys in @k's subtree. */
static void take_elder_below(struct kv_key **best, struct kv_key *k)
{
        if (k && k->eldest != 0 && (!*best || k->eldest <= created(*best)))
                take_elder(best, eldest_below(k, k->eldest));
}

struct kv_key *kv_span_eldest(const struct kv *kv, const struct kv_span *span)
{
        struct kv_key *top = RB_ROOT(&kv->keys), *best = NULL, *k;

        /* The topmost key that is in the span. The span's two ends... */
        while (top && !kv_span_has(span, top->bytes, top->len))
                top = bytes_cmp(top->bytes, top->len, span->from.p, span->from.len) < 0
                              ? RB_RIGHT(top, by_key)
                              : RB_LEFT(top, by_key);
        if (!top)
                return NULL;
        take_elder(&best, top);
        if (span->single)
                return best;
        /* ...lie in its left and its right subtree. */
        for (k = RB_LEFT(top, by_key); k;) {
                if (kv_span_has(span, k->bytes, k->len)) {
                        take_elder(&best, k);
                        take_elder_below(&best, RB_RIGHT(k, by_key));
                        k = RB_LEFT(k, by_key);
                } else {
                        k = RB_RIGHT(k, by_key);
                }
        }
        for (k = RB_RIGHT(top, by_key); k;) {
                if (kv_span_has(span, k->bytes, k->len)) {
                        take_elder(&best, k);
                        take_elder_below(&best, RB_LEFT(k, by_key));
                        k = RB_RIGHT(k, by_key);
                } else {
                        k = RB_LEFT(k, by_key);
                }
        }
        return best;
}

bool kv_is_newest(const struct kv *kv, int64_t revision)
{
        return revision <= 0 || kv->history_from == kv->history_to ||
               kv_history_at(kv, kv->history_to - 1)->mod_revision <= revision;
}

static struct kv_key *key_new(struct kv *kv, const void *key, size_t key_len)
{
        struct kv_key *k = calloc(1, sizeof(*k) + key_len);

        if (!k)
                return NULL;
        k->n_held = 1;
        k->len = (uint32_t) key_len;
        memcpy(k->bytes, key, key_len);
        kv->bytes += CHARGE_KEY + key_len;
        return k;
}

/* Makes room for one more version. */
static int history_reserve(struct kv *kv)
{
        size_t n = kv->history_to / KV_HISTORY_BLOCK - kv->history_from / KV_HISTORY_BLOCK;

        if (n < kv->n_history_blocks)
                return 0;
        if (array_reserve(&kv->history, &kv->history_cap, n + 1, sizeof(*kv->history)) < 0)
                return -ENOMEM;
        kv->history[n] = malloc(KV_HISTORY_BLOCK * sizeof(**kv->history));
        if (!kv->history[n])
                return -ENOMEM;
        kv->n_history_blocks++;
        return 0;
}

static void history_add(struct kv *kv, struct kv_version *v)
{
        kv->history[kv->n_history_blocks - 1][kv->history_to++ % KV_HISTORY_BLOCK] = v;
}

static void history_drop_first(struct kv *kv, struct budget *left)
{
        if (++kv->history_from % KV_HISTORY_BLOCK != 0)
                return;
        budget_charge_free(left, KV_BLOCK_BYTES);
        free(kv->history[0]);
        memmove(kv->history, kv->history + 1, --kv->n_history_blocks * sizeof(*kv->history));
}

static int version_add(struct kv *kv, struct kv_key *k, int64_t revision, uint32_t sub,
                       const void *value, size_t value_len, int64_t lease, bool deletion)
{
        struct kv_version *v;
        bool was_live;

        if (history_reserve(kv) < 0)
                return -ENOMEM;
        v = malloc(sizeof(*v) + value_len);
        if (!v)
                return -ENOMEM;
        *v = (struct kv_version){
                .key = k,
                .older = k->newest,
                .mod_revision = revision,
                .create_revision = revision,
                .version = deletion ? 0 : 1,
                .lease = lease,
                .sub = sub,
                .value_len = (uint32_t) value_len,
        };
        if (value_len > 0)
                memcpy(v->value, value, value_len);
        if (!deletion && k->newest && kv_live(k)) {
                v->create_revision = k->newest->create_revision;
                v->version = k->newest->version + 1;
        } else if (!deletion) {
                kv->n_keys++;
        } else {
                v->create_revision = 0;
                kv->n_keys--;
        }
        was_live = is_live(k);
        if (k->newest)
                k->newest->newer = v;
        k->newest = v;
        count(k, was_live);
        history_add(kv, v);
        kv->bytes += version_cost(v);
        return 0;
}

int kv_put(struct kv *kv, int64_t revision, uint32_t sub, const void *key, size_t key_len,
           const void *value, size_t value_len, int64_t lease, struct kv_key **ret)
{
        struct kv_key *k = kv_find(kv, key, key_len), *fresh = NULL;
        int r;

        if (!k) {
                k = fresh = key_new(kv, key, key_len);
                if (!k)
                        return -ENOMEM;
        }
        if (fresh) {
                RB_INSERT(kv_tree, &kv->keys, fresh);
                kv->n_all++;
        }
        r = version_add(kv, k, revision, sub, value, value_len, lease, false);
        if (r < 0) {
                if (fresh)
                        key_free(kv, fresh);
                return r;
        }
        *ret = k;
        return 0;
}

int kv_delete(struct kv *kv, int64_t revision, uint32_t sub, struct kv_key *k)
{
        assert(kv_live(k));
        return version_add(kv, k, revision, sub, NULL, 0, 0, true);
}

/* Called for a version @v below @revision. Of the older versions only those exist that the last
 * compaction left. Drops them, and @v itself unless a reader sees it at @revision. */
static void version_compact(struct kv *kv, struct kv_version *v, int64_t revision,
                            struct budget *left)
{
        struct kv_version *newer = v->newer;
        struct kv_key *k = v->key;

        versions_drop(kv, v->older, v->mod_revision, left);
        v->older = NULL;
        if (until(v, next_revision(v)) > revision)
                return;
        if (newer)
                newer->older = NULL;
        else
                k->newest = NULL;
        versions_drop(kv, v, next_revision(v), left);
        if (!k->newest) {
                budget_charge_free(left, k->len);
                key_free(kv, k);
        }
}

bool kv_compact_some(struct kv *kv, int64_t revision, struct budget *left)
{
        if (kv->compacted != revision)
                kv->compacted_before = kv->compacted;
        kv->compacted = revision;
        while (kv->history_from < kv->history_to) {
                struct kv_version *v = kv_history_at(kv, kv->history_from);

                if (v->mod_revision >= revision)
                        break;
                if (budget_is_spent(left))
                        return false;
                budget_charge(left, 1);
                version_compact(kv, v, revision, left);
                history_drop_first(kv, left);
        }
        return true;
}

int64_t kv_compact_step(const struct kv *kv, int64_t revision)
{
        size_t at = kv->history_from, bytes = 0;

        for (size_t end = at + COMPACT_MAX;
             at < end && at < kv->history_to && bytes < COMPACT_BYTES; at++) {
                const struct kv_version *v = kv_history_at(kv, at);

                bytes += v->value_len + (v->older ? v->older->value_len : 0);
        }
        if (at >= kv->history_to || kv_history_at(kv, at)->mod_revision >= revision)
                return revision;
        /* A revision is compacted as a whole, however many changes it has. */
        return max_of(kv_history_at(kv, at)->mod_revision, kv->compacted + 1);
}

size_t kv_history_seek(const struct kv *kv, int64_t revision)
{
        size_t lo = kv->history_from, hi = kv->history_to;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;

                if (kv_history_at(kv, mid)->mod_revision < revision)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

int kv_restore(struct kv *kv, struct view key, struct kv_version *v, struct kv_key **at)
{
        struct kv_key *k = *at;
        bool was_live;
        int r;

        if (k && (v->mod_revision < k->newest->mod_revision ||
                  (v->mod_revision == k->newest->mod_revision && v->sub <= k->newest->sub)))
                return -EBADMSG;
        /* The event of a version from before the compaction is not in the history, but its
         * value is still live. */
        if (v->mod_revision >= kv->compacted) {
                r = history_reserve(kv);
                if (r < 0)
                        return r;
                history_add(kv, v);
        }
        if (!k) {
                *at = k = key_new(kv, key.p, key.len);
                if (!k)
                        return -ENOMEM;
                RB_INSERT(kv_tree, &kv->keys, k);
                kv->n_all++;
        }
        was_live = is_live(k);
        v->key = k;
        v->older = k->newest;
        if (v->older)
                v->older->newer = v;
        k->newest = v;
        count(k, was_live);
        kv->bytes += version_cost(v);
        kv->n_keys += (size_t) (v->version > 0) - (size_t) was_live;
        return 0;
}

void kv_fill(const struct kv_version *v, Pb__KeyValue *out)
{
        pb__key_value__init(out);
        out->key = pb_bytes(v->key->bytes, v->key->len);
        out->mod_revision = v->mod_revision;
        if (v->version == 0)
                return;
        out->create_revision = v->create_revision;
        out->version = v->version;
        out->value = pb_bytes(v->value, v->value_len);
        out->lease = v->lease;
}
