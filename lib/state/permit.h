/*
 * Checks what a user's roles permit on keys, transactions and leases (auth.h).
 *
 * All functions return STATE_OK, STATE_E_USER_EMPTY for a client that is not logged in,
 * STATE_E_TOKEN for a login that has expired, or STATE_E_DENIED. While auth is off, and for the
 * core itself (@who NULL), everything is permitted. To check a lease may take long, and the
 * first check of a user after a change of roles: that is charged to @left, which may be NULL.
 */
#pragma once

#include "state/state.h"

/* Which leases can be renewed and revoked only by the user that granted them. */
enum lease_tie {
        LEASE_TIE_NONE,
        LEASE_TIE_AGENTS, /* those that have a key of an agent, and so are a host's place */
        LEASE_TIE_ALL,
};

enum permit {
        PERMIT_READ = 1,
        PERMIT_WRITE = 2,
};

/* Any known user. */
enum state_outcome permit_user(const struct state *s, const struct cmd_user *who);

/* A user with the role root. */
enum state_outcome permit_root(const struct state *s, const struct cmd_user *who);

/* Like permit_root(), even if the login has expired; also passes a client whose user is
 * unknown. */
enum state_outcome permit_name(const struct state *s, const struct cmd_user *who);

/* Every key of the range, by one role or by several together. */
enum state_outcome permit_range(const struct state *s, const struct cmd_user *who,
                                const ProtobufCBinaryData *key,
                                const ProtobufCBinaryData *range_end, enum permit what);

/* Every key of the lease, so that no user can use a lease to affect keys that they may not read
 * or write (A43). A lease that does not exist permits everybody. */
enum state_outcome permit_lease(const struct state *s, const struct cmd_user *who, int64_t id,
                                enum permit what, struct budget *left);

/* Whether @who may renew or revoke @l: the user that granted it may, users with the role root
 * may, and everybody if no user is recorded. A login that has expired still renews (A17): only
 * the name counts.
 */
enum state_outcome permit_owner(const struct state *s, const struct cmd_user *who,
                                const struct lease *l, enum lease_tie tie);

/* All that a command does, except that for a revocation permit_lease() and permit_owner() are
 * asked. Including side effects: attaching to a lease requires permission to write its keys,
 * and returning previous values requires permission to read them. Any user may list alarms, and
 * only root raise one, which stops all writes, or change users. */
enum state_outcome permit_command(const struct state *s, const struct cmd_user *who,
                                  enum cmd_type type, const void *m, struct budget *left);
