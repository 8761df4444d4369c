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
 *        the key is not this claim's, or is gone ---> the end
 *        this claim has created it ---> WITHDRAWING <--> PAUSED
 *                                            +---> the end
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
        CLAIM_WITHDRAWING, /* deletes the key that it created; it has no client any more */
        CLAIM_PAUSED,      /* the same, a little later: the core did not do it */
};

/* Runs Lock, or, if @election, Campaign. */
void claim_begin(struct request *q, ProtobufCBinaryData name, int64_t lease, bool election);

/* What @who may read of the keys in @range, as a claim sees those of others. */
struct status claim_may_look(struct api *a, const struct identity *who,
                             const struct kv_span *range);

/* Transactions that write a key if it was created in revision @created, 0: if there is none;
 * with lease 0 it stays on the lease that it has. Or that delete it if nobody has written to it
 * since revision @modified, or since it was @created. */
void guarded_put(struct request *q, ProtobufCBinaryData key, int64_t created,
                 ProtobufCBinaryData value, int64_t lease);
void guarded_delete(struct request *q, ProtobufCBinaryData key,
                    Pb__Compare__CompareTarget target, int64_t rev);
/* Whether they did, from their answer. Needs no memory: a claim must learn what it has done. */
bool guarded_did(struct view reply);
