#include "etcd/claim_queue.h"

#include <inttypes.h>
#include <stdio.h>

#define HEX_MAX 17 /* a lease in hex, and the terminating NUL */
/* Limits for one turn of the loop. */
#define CHANGES 2000 /* changes checked; waking a waiter counts as several */
#define WAKE_COST 8
#define LOOKS 500 /* waiters checked */

static int by_number(int64_t a_rev, uint64_t a_id, int64_t b_rev, uint64_t b_id)
{
        if (a_rev != b_rev)
                return a_rev < b_rev ? -1 : 1;
        return a_id < b_id ? -1 : a_id > b_id;
}

static int place_cmp(const struct claim_place *a, const struct claim_place *b)
{
        return by_number(a->rev, a->id, b->rev, b->id);
}

static int prefix_cmp(const struct claim_queue *a, const struct claim_queue *b)
{
        return bytes_cmp(a->span.from.p, a->span.from.len, b->span.from.p, b->span.from.len);
}

static int before_cmp(const struct claim_queue *a, const struct claim_queue *b)
{
        return by_number(a->before, a->id, b->before, b->id);
}

TREE_GENERATE(claim_places, claim_place, by_rev, place_cmp)
TREE_GENERATE(claims_by_prefix, claim_queue, by_prefix, prefix_cmp)
TREE_GENERATE(claims_by_before, claim_queue, by_before, before_cmp)

void claim_queues_init(struct claim_queues *qs, int64_t seen, claim_woken_fn woken)
{
        *qs = (struct claim_queues){.place.next = seen + 1, .woken = woken};
        TAILQ_INIT(&qs->waiting);
        RB_INIT(&qs->by_prefix);
        RB_INIT(&qs->by_before);
}

bool claim_queues_empty(const struct claim_queues *qs)
{
        return RB_EMPTY(&qs->by_prefix);
}

/* ---- queues ---- */

struct kv_span claim_range(ProtobufCBinaryData name, uint8_t *bytes)
{
        size_t len = name.len + 1;
        uint8_t *from = bytes + len;

        if (name.len > 0) {
                memcpy(bytes, name.data, name.len);
                memcpy(from, name.data, name.len);
        }
        bytes[name.len] = '/' + 1;
        from[name.len] = '/';
        return (struct kv_span){.from = {from, len}, .end = {bytes, len}};
}

static struct claim_queue *find(struct claim_queues *qs, struct view prefix)
{
        struct claim_queue key = {.span.from = prefix};

        return RB_FIND(claims_by_prefix, &qs->by_prefix, &key);
}

/* Whose memory is that of the queue, of its range, and, behind [name/], of a lease in hex. */
static struct claim_queue *queue_new(struct claim_queues *qs, ProtobufCBinaryData name)
{
        struct claim_queue *q = calloc(1, sizeof(*q) + CLAIM_RANGE_SIZE(name) + HEX_MAX), *same;

        if (!q)
                return NULL;
        q->span = claim_range(name, q->bytes);
        same = RB_INSERT(claims_by_prefix, &qs->by_prefix, q);
        if (same) {
                free(q);
                return same;
        }
        RB_INIT(&q->waiters);
        TAILQ_INIT(&q->places);
        q->id = ++qs->ids;
        return q;
}

static void queue_put(struct claim_queues *qs, struct claim_queue *q)
{
        if (--q->n > 0)
                return;
        RB_REMOVE(claims_by_prefix, &qs->by_prefix, q);
        free(q);
}

static void wait_for(struct claim_queues *qs, struct claim_queue *q, int64_t before)
{
        if (q->before > 0)
                RB_REMOVE(claims_by_before, &qs->by_before, q);
        q->before = before;
        if (before > 0)
                RB_INSERT(claims_by_before, &qs->by_before, q);
}

/* ---- places ---- */

int claim_place_join(struct claim_queues *qs, ProtobufCBinaryData name, struct claim_place *p)
{
        struct claim_queue *q = queue_new(qs, name);

        if (!q)
                return -ENOMEM;
        p->queue = q;
        p->id = ++qs->ids;
        q->n++;
        TAILQ_INSERT_TAIL(&q->places, p, next);
        return 0;
}

void claim_place_unqueue(struct claim_queues *qs, struct claim_place *p)
{
        if (!p->waits)
                return;
        p->waits = false;
        qs->n_waiting--;
        TAILQ_REMOVE(&qs->waiting, p, of_all);
        RB_REMOVE(claim_places, &p->queue->waiters, p);
        if (RB_EMPTY(&p->queue->waiters))
                wait_for(qs, p->queue, 0);
}

struct claim_place *claim_place_leave(struct claim_queues *qs, struct claim_place *p)
{
        struct claim_queue *q = p->queue;
        struct claim_place *payer;

        if (!q)
                return NULL;
        claim_place_unqueue(qs, p);
        TAILQ_REMOVE(&q->places, p, next);
        p->queue = NULL;
        payer = TAILQ_FIRST(&q->places);
        queue_put(qs, q);
        return payer;
}

size_t claim_place_cost(const struct claim_place *p)
{
        const struct claim_queue *q = p->queue;

        return TAILQ_FIRST(&q->places) == p ? sizeof(*q) + 2 * q->span.from.len + HEX_MAX : 0;
}

ProtobufCBinaryData claim_place_name(const struct claim_place *p)
{
        const struct claim_queue *q = p->queue;

        return pb_bytes(q->span.from.p, q->span.from.len - 1);
}

ProtobufCBinaryData claim_place_key(const struct claim_place *p)
{
        struct claim_queue *q = p->queue;
        size_t len = q->span.from.len;
        char *hex = (char *) q->bytes + 2 * len;
        int n = snprintf(hex, HEX_MAX, "%" PRIx64, (uint64_t) p->lease);

        return pb_bytes(q->span.from.p, len + (size_t) n);
}

static bool has_key(const struct claim_place *p, const struct kv *kv)
{
        ProtobufCBinaryData key = claim_place_key(p);
        const struct kv_key *k = kv_find(kv, key.data, key.len);

        return k && kv_live(k) && k->newest->create_revision == p->rev;
}

static int64_t eldest(const struct claim_queue *q, const struct kv *kv)
{
        const struct kv_key *k = kv_span_eldest(kv, &q->span);

        return k ? k->newest->create_revision : 0;
}

enum claim_turn claim_place_look(struct claim_queues *qs, const struct kv *kv,
                                 struct claim_place *p)
{
        struct claim_queue *q = p->queue;
        int64_t before;

        claim_place_unqueue(qs, p);
        if (!has_key(p, kv))
                return TURN_NEVER;
        before = eldest(q, kv);
        if (before >= p->rev)
                return TURN_NOW;
        p->waits = true;
        qs->n_waiting++;
        if (qs->n_to_look > 0) { /* the key that its queue waits for may be gone */
                qs->n_to_look++;
                TAILQ_INSERT_HEAD(&qs->waiting, p, of_all);
        } else {
                TAILQ_INSERT_TAIL(&qs->waiting, p, of_all);
        }
        RB_INSERT(claim_places, &q->waiters, p);
        /* The key that others wait for may be gone already, which flush() will see: only a lone
         * waiter sets what the queue waits for. */
        if (q->before == 0)
                wait_for(qs, q, before);
        return TURN_LATER;
}

/* ---- deletions ---- */

static void wake(struct claim_queues *qs, struct claim_place *p, enum claim_turn turn)
{
        claim_place_unqueue(qs, p);
        qs->woken(p, turn);
}

/* Any key may be gone: checks all waiters. */
static void look_at_all(struct claim_queues *qs)
{
        qs->n_to_look = qs->n_waiting;
}

/* Returns false if this turn is used up; then all are checked, bit by bit. */
static bool may_wake(struct claim_queues *qs, size_t *left)
{
        if (*left == 0) {
                look_at_all(qs);
                return false;
        }
        *left -= min_of(*left, (size_t) WAKE_COST);
        return true;
}

/* The key that @q waits for may be gone: wakes the next waiter, and waits for its key. */
static void advance(struct claim_queues *qs, const struct kv *kv, struct claim_queue *q,
                    size_t *left)
{
        int64_t before = eldest(q, kv);
        struct claim_place *p;

        q->n++;
        while ((p = RB_MIN(claim_places, &q->waiters)) && (before == 0 || p->rev <= before)) {
                if (!may_wake(qs, left))
                        return queue_put(qs, q);
                wake(qs, p, has_key(p, kv) ? TURN_NOW : TURN_NEVER);
        }
        if (p)
                wait_for(qs, q, before);
        queue_put(qs, q);
}

/* Wakes the waiters of @q whose keys, of revision @rev, are gone. */
static void wake_gone(struct claim_queues *qs, const struct kv *kv, struct claim_queue *q,
                      int64_t rev, size_t *left)
{
        struct claim_place *p = RB_NFIND(claim_places, &q->waiters,
                                         &(struct claim_place){.rev = rev}),
                           *next;

        q->n++;
        for (; p && p->rev == rev; p = next) {
                next = RB_NEXT(claim_places, &q->waiters, p);
                if (has_key(p, kv))
                        continue;
                if (!may_wake(qs, left))
                        break;
                wake(qs, p, TURN_NEVER);
        }
        queue_put(qs, q);
}

/* @k existed from revision @rev on, and is now deleted. */
static void look_at(struct claim_queues *qs, const struct kv *kv, const struct kv_key *k,
                    int64_t rev, size_t *left)
{
        const uint8_t *slash = memrchr(k->bytes, '/', k->len);
        struct claim_queue *q, *next;

        q = slash ? find(qs, (struct view){k->bytes, (size_t) (slash + 1 - k->bytes)}) : NULL;
        if (q)
                wake_gone(qs, kv, q, rev, left);
        for (q = RB_NFIND(claims_by_before, &qs->by_before,
                          &(struct claim_queue){.before = rev});
             q && q->before == rev; q = next) {
                next = RB_NEXT(claims_by_before, &qs->by_before, q);
                /* One txn may have created the keys of many waiters. */
                if (kv_span_has(&q->span, k->bytes, k->len))
                        advance(qs, kv, q, left);
        }
}

static void look_at_changes(struct claim_queues *qs, const struct kv *kv, int64_t revision)
{
        size_t left = CHANGES;

        if (qs->place.next > revision)
                return;
        /* If the history is compacted there, any key may be gone. */
        if (qs->place.next < kv->compacted)
                look_at_all(qs);
        else if (!RB_EMPTY(&qs->by_before))
                for (size_t i = kv_place_seek(kv, &qs->place); i < kv->history_to; i++) {
                        const struct kv_version *v = kv_history_at(kv, i);

                        if (left == 0)
                                return;
                        left--;
                        kv_place_read(&qs->place, v);
                        if (v->version > 0)
                                continue;
                        /* At `compacted` itself the deletion remains, but not what it deleted.
                         */
                        if (!v->older)
                                look_at_all(qs);
                        else
                                look_at(qs, kv, v->key, v->older->create_revision, &left);
                }
        kv_place_pass(&qs->place, revision + 1);
}

/* Checks some of the waiters that may have missed something, and moves them to the end, so that
 * each gets its turn however often this starts again. */
static void look_at_some(struct claim_queues *qs, const struct kv *kv)
{
        struct claim_place *p;

        for (size_t left = LOOKS * WAKE_COST;
             left > 0 && qs->n_to_look > 0 && (p = TAILQ_FIRST(&qs->waiting));) {
                struct claim_queue *q = p->queue;

                left -= min_of(left, (size_t) WAKE_COST);
                qs->n_to_look--;
                TAILQ_REMOVE(&qs->waiting, p, of_all);
                TAILQ_INSERT_TAIL(&qs->waiting, p, of_all);
                q->n++;
                if (!has_key(p, kv))
                        wake(qs, p, TURN_NEVER);
                if (q->before > 0)
                        advance(qs, kv, q, &left);
                queue_put(qs, q);
        }
        if (TAILQ_EMPTY(&qs->waiting))
                qs->n_to_look = 0;
}

bool claim_queues_flush(struct claim_queues *qs, const struct kv *kv, int64_t revision)
{
        look_at_changes(qs, kv, revision);
        look_at_some(qs, kv);
        return qs->place.next > revision && qs->n_to_look == 0;
}
