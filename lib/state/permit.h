/*
 * Checks what a user's roles permit on keys, transactions and leases (auth.h).
 *
 * All functions return STATE_OK, STATE_E_USER_EMPTY for a client that is not logged in,
 * STATE_E_TOKEN for a login that has expired, or STATE_E_DENIED. While auth is off, and for the
 * core itself (@who NULL), everything is permitted.
 */
#pragma once

#include "state/state.h"

/* Which leases only the user that granted them may renew and revoke. */
enum lease_tie {
        LEASE_TIE_NONE,
        LEASE_TIE_AGENTS, /* those with a key of an agent's: they are a host's place */
        LEASE_TIE_ALL,
};

enum permit {
        PERMIT_READ = 1,
        PERMIT_WRITE = 2,
};

/* Somebody we know. */
enum state_outcome permit_user(const struct state *s, const struct cmd_user *who);

/* One with the role root. */
enum state_outcome permit_root(const struct state *s, const struct cmd_user *who);

/* The same, whatever became of the login; and nobody, where who they are is not known. */
enum state_outcome permit_name(const struct state *s, const struct cmd_user *who);

/* All of the range, by one role or by several together. */
enum state_outcome permit_range(const struct state *s, const struct cmd_user *who,
                                const ProtobufCBinaryData *key,
                                const ProtobufCBinaryData *range_end, enum permit what);

/* Every key of the lease: whoever renews nothing but the keys they may write cannot be made to
 * lose others' (A43). A lease that is not there is anybody's. */
enum state_outcome permit_lease(const struct state *s, const struct cmd_user *who, int64_t id,
                                enum permit what);

/* Whether they may renew or revoke @l, depending on the user that granted it. Beside that one
 * the role root may, and anybody where nobody is known. A login that is over still renews
 * (A17): only the name counts.
 */
enum state_outcome permit_owner(const struct state *s, const struct cmd_user *who,
                                const struct lease *l, enum lease_tie tie);

/* With what they do on the way: to attach to a lease is to write its keys, to be sent what was
 * there is to read it. */
enum state_outcome permit_put(const struct state *s, const struct cmd_user *who,
                              const Pb__PutRequest *q);
enum state_outcome permit_delete(const struct state *s, const struct cmd_user *who,
                                 const Pb__DeleteRangeRequest *q);
enum state_outcome permit_txn(const struct state *s, const struct cmd_user *who,
                              const Pb__TxnRequest *q);
