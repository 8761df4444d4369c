/*
 * Claims, which are the calls of Lock and Campaign: a claim creates the key NAME/LEASE-IN-HEX,
 * waits until no older key of that name is left, and holds. Not for other folders.
 *
 *      GRANTING ---> CREATING ---> WAITING <--> CONFIRMING ---> holds: the key stays
 *                     |    ^          ^
 *    the key exists:  v    | it went  |
 *                    ADOPTING --------+
 *
 *      from each of these, if it fails or its client goes away:
 *
 *        this claim has not written the key, or it is gone ---> the end
 *        this claim has created it, or adopted it and it is not its turn
 *                                                    ---> WITHDRAWING <--> PAUSED
 *                                                              +---> the end
 *
 * All of them end in one function, leave(). While the core has the write of a GRANTING,
 * CREATING or ADOPTING claim, leave() answers the client at once, and the claim is left when
 * the outcome is known: by then it may have created its key.
 */
#pragma once

#include "etcd/claim_queue.h"
#include "etcd/internal.h"

enum claim_phase {
        CLAIM_GRANTING, /* a lease, to a caller that brings none */
        CLAIM_CREATING, /* writes its key, if there is none */
        CLAIM_ADOPTING, /* writes the key that it found, so that its creator leaves it alone */
        CLAIM_WAITING,  /* for its turn */
        CLAIM_CONFIRMING,  /* that it is its turn, by a linearizable read */
        CLAIM_WITHDRAWING, /* deletes the key that it wrote; it has no client any more */
        CLAIM_PAUSED,      /* the same, a little later: the core did not do it */
};

/* Runs Lock, or, if @election, Campaign. */
void claim_begin(struct request *q, ProtobufCBinaryData name, int64_t lease, bool election);

/* What @who may read of the keys in @range, as a claim sees those of others. */
struct status claim_may_look(struct api *a, const struct identity *who,
                             const struct kv_span *range);

/* The revision in which a key has to have been created, 0: there must be none; or, if
 * @modified, last written. */
struct guard {
        ProtobufCBinaryData key;
        int64_t rev;
        bool modified;
};
#define GUARDS_MAX 2

/* Transactions that write a key if it was created in revision @created; with lease 0 it stays
 * on the lease that it has. Or that delete the key of the first of @n guards, if all hold. */
void guarded_put(struct request *q, ProtobufCBinaryData key, int64_t created,
                 ProtobufCBinaryData value, int64_t lease);
void guarded_delete(struct request *q, const struct guard *guards, size_t n);
/* Whether they did, from their answer. Needs no memory: a claim must learn what it has done. */
bool guarded_did(struct view reply);
