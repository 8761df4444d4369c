/* Outcomes of a command or a query, as the state machine names them; core/status.c has the gRPC
 * code and the text of each. */
#pragma once

enum state_outcome {
        STATE_OK = 0,
        STATE_E_KEY_MISSING = 1, /* no key given */
        STATE_E_KEY_NOT_FOUND, /* ignore_value or ignore_lease without a key to take it from */
        STATE_E_VALUE_GIVEN,   /* ignore_value and a value */
        STATE_E_LEASE_GIVEN,   /* ignore_lease and a lease */
        STATE_E_TXN_TOO_LARGE,
        STATE_E_TXN_DUPLICATE,
        STATE_E_DELETE_TOO_LARGE, /* more keys than go at once */
        STATE_E_SORT,
        STATE_E_COMPACTED,
        STATE_E_FUTURE,
        STATE_E_LEASE_NOT_FOUND,
        STATE_E_LEASE_EXISTS,
        STATE_E_TTL_TOO_LARGE,
        STATE_E_LEASES_FULL,          /* as many as there may be */
        STATE_E_LEASE_KEYS,           /* the most keys are attached to it */
        STATE_E_LEASE_NAME,           /* longer than one may be */
        STATE_E_LEASE_NAME_USED,      /* a lease that lives has it */
        STATE_E_LEASE_NAME_NOT_FOUND, /* none has it */
        STATE_E_LEASE_TWICE,          /* given by its id and by its name */
        STATE_E_NOSPACE,
        STATE_E_MALFORMED, /* not of its command type; refused where requests come in */
        /* Permissions: state/auth.h. */
        STATE_E_ROOT_USER, /* there is none, and so no way back */
        STATE_E_ROOT_ROLE, /* the user root has not the role root */
        STATE_E_USER_EXISTS,
        STATE_E_USER_EMPTY, /* no name; or a client that is not logged in */
        STATE_E_USER_NOT_FOUND,
        STATE_E_ROLE_EXISTS,
        STATE_E_ROLE_EMPTY,
        STATE_E_ROLE_NOT_FOUND,
        STATE_E_ROLE_NOT_GRANTED,
        STATE_E_PERMISSION_EMPTY,
        STATE_E_PERMISSION_NOT_GRANTED, /* a role has it not */
        STATE_E_DENIED,
        STATE_E_TOKEN,     /* of a login that is over */
        STATE_E_AUTH_MGMT, /* root cannot be taken away while auth is on */
        STATE_E_AUTH_NAME, /* of a user or a role: longer than one may be */
        STATE_E_AUTH_FULL, /* as many users, roles or permissions as there may be */
        /* Cache leases: state/cached.h. */
        STATE_E_CACHED,          /* a client may have in a cache what would be changed */
        STATE_E_CACHE_TOO_LARGE, /* more keys than may be cached together */
        STATE_E_CACHE_FULL,      /* as many ranges are cached as may be */
        STATE_E_LAST_ = STATE_E_CACHE_FULL,
};
