/*
 * Names of leases: no two living leases have the same name, and a lease has at most one.
 *
 * A lease has the name with which it was granted. A lease that was granted without a name, and
 * to which the key of a node is attached, has the node's name: NODE in the cluster "default",
 * CLUSTER/nodes/NODE in another one. That name follows the key: a host that takes over its
 * place from an earlier life gets the name of the place by the same command, although that name
 * is in use. If another lease was granted with such a name before, the node's lease has none.
 *
 * Pure functions of the replicated state: a name is looked up when a command is applied.
 */
#pragma once

#include "state/state.h"

/* NULL: no lease has the name. */
struct lease *names_find(const struct state *s, const ProtobufCBinaryData *name);

/* The lease's name; empty: none. Borrowed until the state changes. */
struct view names_of(const struct state *s, const struct lease *l);

/* Checks that a request does not give its lease both by id and by name. */
enum state_outcome names_check(int64_t id, const ProtobufCBinaryData *name);

/* The lease to which a put attaches its key; NULL: none. STATE_E_LEASE_NOT_FOUND or
 * STATE_E_LEASE_NAME_NOT_FOUND: that lease does not exist. */
enum state_outcome names_put_lease(const struct state *s, const Pb__PutRequest *q,
                                   struct lease **ret);

/* In a txn that was checked, replaces the names of leases in puts by ids. It uses the names as
 * they are before the txn, because the txn itself may move the key from which a name comes. */
void names_settle(const struct state *s, Pb__TxnRequest *q);
