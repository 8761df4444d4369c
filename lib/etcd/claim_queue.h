/*
 * The waiters for one lock or election, in the order in which their keys were made.
 *
 * Of the live keys of a prefix the one with the smallest create_revision holds. So all waiters
 * under one prefix wait for one key, the eldest; when that is gone, the waiter whose key is the
 * eldest now is next, and the others wait for that one. It does not matter whose keys these
 * are: clients also make them by themselves, and the keys of `a/b/` are keys of `a/`.
 *
 * A queue exists while it has waiters, and owns the prefix for all of them; nothing else is
 * allocated. Pure and single-threaded. Looking, waiting and waking cost O(log keys + log
 * waiters) each, and a deletion O(log queues).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/tree.h"
#include "state/kv.h"

/* The keys of a lock or an election: from its name plus a slash, up to its name plus the byte
 * after the slash. They are written into @bytes, which are borrowed for as long as the range;
 * what it begins with comes last. */
#define CLAIM_RANGE_SIZE(name) (2 * ((name).len + 1))
struct kv_span claim_range(ProtobufCBinaryData name, uint8_t *bytes);

struct claim_queue;

/* A waiter's place in a queue; embedded. */
struct claim_place {
        RB_ENTRY(claim_place) by_rev; /* while `waits` */
        TAILQ_ENTRY(claim_place) next;
        TAILQ_ENTRY(claim_place) of_all; /* while `waits` */
        struct claim_queue *queue;       /* NULL: in none */
        uint64_t id;                     /* unique */
        int64_t lease;                   /* its key is the prefix and this id in hex */
        int64_t rev;                     /* the create_revision of the key; 0: unknown */
        bool waits;
};

RB_HEAD(claim_places, claim_place);

struct claim_queue {
        RB_ENTRY(claim_queue) by_prefix;
        RB_ENTRY(claim_queue) by_before;  /* while `before` is not 0 */
        struct kv_span span;              /* in `bytes` */
        struct claim_places waiters;      /* ordered by the age of their keys */
        TAILQ_HEAD(, claim_place) places; /* the first one is charged for the queue */
        unsigned n;                       /* the number of places, plus 1 while they are being
                                           * walked */
        uint64_t id;
        int64_t before; /* the create_revision of the key that is waited for: the key lives, or
                         * its deletion was not processed yet; 0: nobody waits */
        uint8_t bytes[];
};

RB_HEAD(claims_by_prefix, claim_queue);
RB_HEAD(claims_by_before, claim_queue);

enum claim_turn {
        TURN_LATER, /* it waits from now on */
        TURN_NOW,   /* as far as this replica knows */
        TURN_NEVER, /* its key is gone, most likely with its lease */
};

/* @p has its turn, or its key is gone, and it no longer waits. May call claim_place_look() or
 * claim_place_leave(). */
typedef void (*claim_woken_fn)(struct claim_place *p, enum claim_turn turn);

struct claim_queues {
        struct claims_by_prefix by_prefix;
        struct claims_by_before by_before;
        TAILQ_HEAD(, claim_place) waiting; /* all waiters */
        size_t n_waiting;
        size_t n_to_look; /* how many of these, from the first on, may have missed something */
        struct kv_place place; /* of the changes that are to be checked next */
        uint64_t ids;
        claim_woken_fn woken;
};

/* Changes up to revision @seen are known. */
void claim_queues_init(struct claim_queues *qs, int64_t seen, claim_woken_fn woken);
bool claim_queues_empty(const struct claim_queues *qs);

/* Adds @p, whose lease is set, to the queue of @name plus a slash. Returns 0 or -ENOMEM. */
must_check_ int claim_place_join(struct claim_queues *qs, ProtobufCBinaryData name,
                                 struct claim_place *p);
/* Accepts a place that is in no queue. Returns the waiter that pays for the queue now; NULL:
 * the queue is gone. */
struct claim_place *claim_place_leave(struct claim_queues *qs, struct claim_place *p);
/* @p no longer waits: for example, it only has to withdraw. */
void claim_place_unqueue(struct claim_queues *qs, struct claim_place *p);

/* What its queue costs, if @p is the waiter that pays; else 0. */
size_t claim_place_cost(const struct claim_place *p);

/* The name; and the key, borrowed until the next such call for any place of the queue. */
ProtobufCBinaryData claim_place_name(const struct claim_place *p);
ProtobufCBinaryData claim_place_key(const struct claim_place *p);

/* Whether it is @p's turn; otherwise it waits from now on. `rev` is set. */
enum claim_turn claim_place_look(struct claim_queues *qs, const struct kv *kv,
                                 struct claim_place *p);

/* Wakes the waiters that are next, or whose keys are gone, by the deletions up to @revision,
 * which is the present one: as many as take a millisecond or two. Returns false when there is
 * more to do. */
must_check_ bool claim_queues_flush(struct claim_queues *qs, const struct kv *kv,
                                    int64_t revision);
