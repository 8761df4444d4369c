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

struct lock_queue;

/* A waiter's place in a queue; embedded. */
struct lock_place {
        RB_ENTRY(lock_place) by_rev; /* while `waits` */
        TAILQ_ENTRY(lock_place) next;
        TAILQ_ENTRY(lock_place) of_all; /* while `waits` */
        struct lock_queue *queue;       /* NULL: in none */
        uint64_t id;                    /* unique */
        int64_t lease;                  /* its key is the prefix and this id in hex */
        int64_t rev;                    /* the create_revision of the key; 0: unknown */
        bool waits;
};

RB_HEAD(lock_places, lock_place);

struct lock_queue {
        RB_ENTRY(lock_queue) by_prefix;
        RB_ENTRY(lock_queue) by_before;  /* while `before` is not 0 */
        struct kv_span span;             /* in the queue's own bytes */
        struct lock_places waiters;      /* ordered by the age of their keys */
        TAILQ_HEAD(, lock_place) places; /* the first one is charged for the queue */
        unsigned n;                      /* the number of places, plus 1 while they are being
                                          * walked */
        uint64_t id;
        int64_t before; /* the create_revision of the key that is waited for: the key lives, or
                         * its deletion was not processed yet; 0: nobody waits */
        uint8_t bytes[];
};

RB_HEAD(lock_by_prefix, lock_queue);
RB_HEAD(lock_by_before, lock_queue);

enum lock_turn {
        LOCK_WAITS, /* it waits from now on */
        LOCK_HOLDS, /* as far as this replica knows */
        LOCK_GONE,  /* its key is gone, most likely with its lease */
};

/* @p has its turn, or its key is gone, and it no longer waits. May call lock_place_look() or
 * lock_place_leave(). */
typedef void (*lock_woken_fn)(struct lock_place *p, enum lock_turn turn);

struct lock_queues {
        struct lock_by_prefix by_prefix;
        struct lock_by_before by_before;
        TAILQ_HEAD(, lock_place) waiting; /* all waiters */
        size_t n_waiting;
        size_t n_to_look; /* how many of these, from the first on, may have missed something */
        struct kv_place place; /* of the changes that are to be checked next */
        uint64_t ids;
        lock_woken_fn woken;
};

/* Changes up to revision @seen are known. */
void lock_queues_init(struct lock_queues *qs, int64_t seen, lock_woken_fn woken);
bool lock_queues_empty(const struct lock_queues *qs);

/* Adds @p, whose lease is set, to the queue of @name plus a slash. Returns 0 or -ENOMEM. */
must_check_ int lock_place_join(struct lock_queues *qs, ProtobufCBinaryData name,
                                struct lock_place *p);
/* Accepts a place that is in no queue. Returns the waiter that pays for the queue now; NULL:
 * the queue is gone. */
struct lock_place *lock_place_leave(struct lock_queues *qs, struct lock_place *p);
/* @p no longer waits: for example, it goes on only to give up. */
void lock_place_unqueue(struct lock_queues *qs, struct lock_place *p);

/* What its queue costs, if @p is the waiter that pays; else 0. */
size_t lock_place_cost(const struct lock_place *p);

/* The name; and the key, borrowed until the next such call for any place of the queue. */
ProtobufCBinaryData lock_place_name(const struct lock_place *p);
ProtobufCBinaryData lock_place_key(const struct lock_place *p);

/* Whether it is @p's turn; otherwise it waits from now on. `rev` is set. */
enum lock_turn lock_place_look(struct lock_queues *qs, const struct kv *kv,
                               struct lock_place *p);

/* Wakes the waiters that are next, or whose keys are gone, by the deletions up to @revision,
 * which is the present one: as many as take a millisecond or two. Returns false when there is
 * more to do. */
must_check_ bool lock_queues_flush(struct lock_queues *qs, const struct kv *kv,
                                   int64_t revision);
