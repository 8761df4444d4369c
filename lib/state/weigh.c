/* Computes how much a command will read, answer and add, before the command is run. The result
 * depends only on the state and the command, so every replica refuses the same commands. */
#include "state/charge.h"
#include "state/internal.h"
#include "state/lease_names.h"

#define PER_KEY 64 /* bytes of an answer, besides key and value */

/* One step is about 0.65 us with a million keys that are not in a cache. A key next to the
 * previous one costs one step. */
#define FIND_STEPS 10                    /* to look up a key, or the ends of a range */
#define ANSWER_STEPS 3                   /* for a key in the answer */
#define STEP_BYTES ((size_t) 1 << 10)    /* this many bytes of an answer cost one more step */
#define COMPARE_BYTES ((size_t) 4 << 10) /* this many compared bytes cost one more step */
#define STEP_VERSIONS 2                  /* this many skipped versions of a key cost one step */

static bool take(size_t *left, size_t n)
{
        if (n > *left)
                return false;
        *left -= n;
        return true;
}

static bool take_bytes(struct weight *b, size_t bytes)
{
        b->answer += bytes;
        return take(&b->steps, bytes / STEP_BYTES);
}

/* How many keys a read of @span visits, besides the first one. */
static size_t keys_in(const struct state *s, const struct kv_span *span)
{
        return span->single ? 0 : kv_span_count(&s->kv, span);
}

/* Each visited key is compared with both ends of @span, which may be long, and may have a long
 * common prefix with the keys. */
static size_t end_steps(const struct kv_span *span, const struct weight *b)
{
        return b->counts_compared ? (span->from.len + span->end.len) / COMPARE_BYTES : 0;
}

/* Values with a common prefix are read to the end of the shorter one. */
bool weigh_compare(const struct state *s, const Pb__Compare *q, struct weight *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        bool any = take(&b->steps, FIND_STEPS + keys_in(s, &span) * (1 + end_steps(&span, b)));

        if (!b->counts_compared || q->target != PB__COMPARE__COMPARE_TARGET__VALUE ||
            q->target_union_case != PB__COMPARE__TARGET_UNION_VALUE ||
            q->value.len < COMPARE_BYTES)
                return any;
        for (struct kv_key *k = kv_live_first(&s->kv, &span); any && k;
             k = kv_live_next(&span, k))
                any = take(&b->steps,
                           min_of(q->value.len, k->newest->value_len) / COMPARE_BYTES);
        return any;
}

static size_t bytes_of(const struct kv_version *v)
{
        return PER_KEY + v->key->len + v->value_len;
}

/* Adds up the bytes in @span; stops when they exceed @most. */
static size_t bytes_in(const struct state *s, const struct kv_span *span, size_t most)
{
        size_t bytes = 0;

        for (struct kv_key *k = kv_live_first(&s->kv, span); k && bytes <= most;
             k = kv_live_next(span, k))
                bytes += bytes_of(k->newest);
        return bytes;
}

bool weigh_delete(const struct state *s, const Pb__DeleteRangeRequest *q, struct weight *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        size_t keys = keys_in(s, &span);

        b->writes = true;
        return take(&b->steps, FIND_STEPS + keys * ((q->prev_kv ? ANSWER_STEPS : 1) +
                                                    end_steps(&span, b))) &&
               (!q->prev_kv || take_bytes(b, bytes_in(s, &span, (b->steps + 1) * STEP_BYTES)));
}

/* How much a put may add at most. */
static size_t put_room(const struct state *s, const Pb__PutRequest *q)
{
        const struct kv_key *k =
                q->ignore_value ? kv_find(&s->kv, q->key.data, q->key.len) : NULL;

        return CHARGE_KEY + q->key.len + CHARGE_VERSION +
               (k ? k->newest->value_len : q->value.len);
}

/* Keeps the two longest. */
static void take_longer(size_t *longest, size_t *second, size_t len)
{
        *second = max_of(*second, min_of(*longest, len));
        *longest = max_of(*longest, len);
}

bool weigh_put(const struct state *s, const Pb__PutRequest *q, struct weight *b)
{
        const struct kv_key *k = kv_find(&s->kv, q->key.data, q->key.len);

        b->writes = true;
        b->put += put_room(s, q);
        b->n_puts++;
        take_longer(&b->longest, &b->second,
                    q->key.len + (k && q->ignore_value ? k->newest->value_len : q->value.len));
        return take(&b->steps, FIND_STEPS) &&
               (!k || !kv_live(k) || (!q->prev_kv && !q->ignore_value) ||
                take_bytes(b, bytes_of(k->newest)));
}

/* The answer to a range. If it is sorted and has a limit, the largest values are assumed. */
struct answers {
        size_t limit, n, sum, largest;
        size_t longest, second; /* bytes of the longest two items, as a sort reads them */
        bool all;               /* items beyond the limit may be in the answer, too */
};

static bool is_full(const struct answers *a)
{
        return !a->all && a->n >= a->limit;
}

/* The bytes of an item that a sort may have to read. */
static size_t compared(const Pb__RangeRequest *q, const struct kv_version *v)
{
        return v->key->len +
               (q->sort_target == PB__RANGE_REQUEST__SORT_TARGET__VALUE ? v->value_len : 0);
}

static void answer(struct answers *a, const Pb__RangeRequest *q, const struct kv_version *v)
{
        if (is_full(a))
                return;
        a->n++;
        a->sum += q->keys_only ? PER_KEY + v->key->len : bytes_of(v);
        a->largest = max_of(a->largest, bytes_of(v));
        take_longer(&a->longest, &a->second, compared(q, v));
}

/* The heap compares at most two items for each of its levels when an item is added, and the
 * same once more when one is removed; no comparison reads more bytes than the second longest
 * item has. Values that the txn has just put may be among the items. */
static bool take_sort(const struct answers *a, const Pb__RangeRequest *q, struct weight *b)
{
        size_t longest = a->longest, second = a->second, n = a->n + b->n_puts, levels = 0;

        if (!b->counts_compared || q->sort_target == PB__RANGE_REQUEST__SORT_TARGET__KEY)
                return true;
        take_longer(&longest, &second, b->longest);
        take_longer(&longest, &second, b->second);
        while (n >> levels > 1)
                levels++;
        return take(&b->steps, 3 * n * levels * (second / 64) / (COMPARE_BYTES / 64));
}

/* A range of the newest revision. */
static bool weigh_newest(const struct state *s, const Pb__RangeRequest *q, struct answers *a,
                         struct weight *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        size_t keys = keys_in(s, &span);

        if (q->count_only)
                return true;
        if (!a->all && a->limit < keys)
                keys = a->limit + 1;
        if (!take(&b->steps, (ANSWER_STEPS + end_steps(&span, b)) * keys))
                return false;
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k && !is_full(a);
             k = kv_live_next(&span, k))
                answer(a, q, k->newest);
        return true;
}

/* A range of an earlier revision: visits all keys, including those that were deleted since or
 * created later, and the later versions of each. */
static bool weigh_past(const struct state *s, const Pb__RangeRequest *q, struct answers *a,
                       struct weight *b)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        size_t passed = 0, ends = end_steps(&span, b);

        for (struct kv_key *k = kv_span_first(&s->kv, &span); k; k = kv_span_next(&span, k)) {
                const struct kv_version *v = k->newest;

                for (; v && v->mod_revision > q->revision; v = v->older)
                        if (++passed % STEP_VERSIONS == 0 && !take(&b->steps, 1))
                                return false;
                if (!take(&b->steps, (v && v->version > 0 ? ANSWER_STEPS : 1) + ends))
                        return false;
                if (v && v->version > 0)
                        answer(a, q, v);
        }
        return true;
}

/* Keep in step with state_range(). After a write in the same txn, the newest revision is no
 * longer the newest state. */
bool weigh_range(const struct state *s, const Pb__RangeRequest *q, struct weight *b)
{
        bool newest = kv_is_newest(&s->kv, q->revision) && (q->revision <= 0 || !b->writes);
        struct answers a = {
                .limit = q->limit > 0 ? (size_t) q->limit : SIZE_MAX,
                .all = q->sort_order != PB__RANGE_REQUEST__SORT_ORDER__NONE ||
                       q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
                       q->max_create_revision,
        };

        b->n_ranges++;
        if (!take(&b->steps, FIND_STEPS))
                return false;
        if (q->revision > 0 && q->revision < s->kv.compacted)
                return true; /* the answer is this error */
        if (!(newest ? weigh_newest : weigh_past)(s, q, &a, b))
                return false;
        if (q->count_only)
                return true;
        if (!take_sort(&a, q, b))
                return false;
        return take_bytes(b, a.limit < a.n ? min_of(a.sum, a.limit * a.largest) : a.sum);
}

bool weigh_end(struct weight *b)
{
        /* Any range may visit all keys that the same txn puts. */
        return b->n_ranges == 0 || b->put <= b->steps * STEP_BYTES / b->n_ranges;
}

/* ---- commands other than transactions ---- */

/* Where it is applied, room for the answer has been found. */
static void weigh_lone_put(const struct state *s, const Pb__PutRequest *q,
                           struct state_admission *a)
{
        const struct kv_key *k = NULL;

        if (q->prev_kv && a->at != ADMIT_APPLIED)
                k = kv_find(&s->kv, q->key.data, q->key.len);
        a->answer = k ? bytes_of(k->newest) : 0;
        a->room = put_room(s, q);
}

/* If previous values are returned, their sizes are added up in one go, so fewer keys are
 * allowed. */
static enum state_outcome weigh_lone_delete(const struct state *s,
                                            const Pb__DeleteRangeRequest *q,
                                            struct budget *left, struct state_admission *a)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        size_t keys = keys_in(s, &span);

        if (keys > (q->prev_kv ? STATE_DELETE_PREV_MAX : STATE_DELETE_MAX))
                return STATE_E_DELETE_TOO_LARGE;
        budget_charge(left, q->prev_kv ? keys / 2 : 0);
        a->answer = q->prev_kv ? bytes_in(s, &span, STATE_DELETE_BYTES_MAX) : 0;
        a->steps = FIND_STEPS + keys;
        return a->answer > STATE_DELETE_BYTES_MAX ? STATE_E_DELETE_TOO_LARGE : STATE_OK;
}

/* Deletions free memory, so they always pass. */
static size_t auth_room(const Pb__AuthChange *q)
{
        switch (q->change_case) {
        case PB__AUTH_CHANGE__CHANGE_USER_ADD:
        case PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE:
        case PB__AUTH_CHANGE__CHANGE_ROLE_ADD:
        case PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION:
                return CHARGE_AUTH + protobuf_c_message_get_packed_size(&q->base);
        default:
                return 0;
        }
}

static enum state_outcome weigh_cache(const struct state *s, const Pb__CacheTerm *q)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);

        if (q->term_ms < CACHED_TERM_MIN_MS || q->term_ms > CACHED_TERM_MAX_MS)
                return STATE_E_MALFORMED;
        return kv_span_count(&s->kv, &span) > CACHED_KEYS_MAX ? STATE_E_CACHE_TOO_LARGE
                                                              : STATE_OK;
}

struct lease *state_revoked(const struct state *s, const Pb__LeaseRevokeRequest *q)
{
        return q->name.len > 0 ? names_find(s, &q->name) : leases_find(&s->leases, q->id);
}

enum state_outcome state_weigh(const struct state *s, enum cmd_type type, const void *m,
                               struct budget *left, struct state_admission *a)
{
        const Pb__AuthChange *auth = m;
        const Pb__LeaseGrantRequest *grant = m;

        switch (type) {
        case CMD_PUT:
                weigh_lone_put(s, m, a);
                return STATE_OK;
        case CMD_DELETE_RANGE:
                return weigh_lone_delete(s, m, left, a);
        case CMD_TXN:
                return state_weigh_txn(s, m, left, a);
        case CMD_GRANT:
                a->room = CHARGE_GRANT + grant->name.len;
                return STATE_OK;
        case CMD_REVOKE:
                a->lease = state_revoked(s, m);
                a->steps = FIND_STEPS + (a->lease ? a->lease->n_keys : 0);
                return STATE_OK;
        case CMD_AUTH:
                /* Any user may have the role. */
                if (auth->change_case == PB__AUTH_CHANGE__CHANGE_ROLE_DELETE)
                        budget_charge(left, s->auth.n_users);
                a->room = auth_room(auth);
                return STATE_OK;
        case CMD_CACHE:
                return weigh_cache(s, m);
        default:
                return STATE_OK;
        }
}
