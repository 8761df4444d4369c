/*
 * Names of leases: at most one lease that lives has a name, and a lease has at most one.
 *
 * A lease has the name that it was granted with. One that was granted without, and holds the
 * key of a node, has the node's name: NODE in the cluster "default", CLUSTER/nodes/NODE in
 * another one. That name follows the key: a host that takes its place over from an earlier life
 * has the name of the place in the same command, and needs no free one to begin with. Where a
 * lease was granted with such a name before, the node's has none.
 *
 * Pure functions of the replicated state: what a command finds by a name is decided where it is
 * applied.
 */
#pragma once

#include "state/state.h"

/* NULL: no lease has it. */
struct lease *names_find(const struct state *s, const ProtobufCBinaryData *name);

/* Its name; empty: it has none. Borrowed until the state changes. */
struct view names_of(const struct state *s, const struct lease *l);

/* What a request says of its lease, by id and by name: is it one of the two? */
enum state_outcome names_check(int64_t id, const ProtobufCBinaryData *name);

/* The lease that a put is to hang on; NULL: none. STATE_E_LEASE_NOT_FOUND or
 * STATE_E_LEASE_NAME_NOT_FOUND: the one that it says is not there. */
enum state_outcome names_put_lease(const struct state *s, const Pb__PutRequest *q,
                                   struct lease **ret);

/* Gives the puts of a txn that was checked the ids of the leases that they name: as it is
 * before the txn, which may itself move the key that such a name comes of. */
void names_settle(const struct state *s, Pb__TxnRequest *q);
