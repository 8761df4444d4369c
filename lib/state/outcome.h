/* Outcomes of a command or a query; core/status.c has the gRPC code and the text of each. */
#pragma once

enum state_outcome {
        STATE_OK = 0,
        STATE_E_KEY_MISSING = 1, /* no key given */
        STATE_E_KEY_NOT_FOUND, /* ignore_value or ignore_lease without a key to take it from */
        STATE_E_VALUE_GIVEN,   /* ignore_value and a value */
        STATE_E_LEASE_GIVEN,   /* ignore_lease and a lease */
        STATE_E_TXN_TOO_LARGE,
        STATE_E_TXN_DUPLICATE,
        STATE_E_DELETE_TOO_LARGE, /* more keys than one command may delete */
        STATE_E_SORT,
        STATE_E_COMPACTED,
        STATE_E_FUTURE,
        STATE_E_LEASE_NOT_FOUND,
        STATE_E_LEASE_EXISTS,
        STATE_E_TTL_TOO_LARGE,
        STATE_E_LEASES_FULL,          /* the limit of leases is reached */
        STATE_E_LEASE_KEYS,           /* the lease has reached its limit of keys */
        STATE_E_LEASE_NAME,           /* too long */
        STATE_E_LEASE_NAME_USED,      /* a living lease has it */
        STATE_E_LEASE_NAME_NOT_FOUND, /* no lease has it */
        STATE_E_LEASE_TWICE,          /* given both by id and by name */
        STATE_E_NOSPACE,
        STATE_E_MALFORMED, /* not a message of its type; checked where requests come in */
        /* Permissions: state/auth.h. */
        STATE_E_ROOT_USER, /* without the user root, nobody could disable auth again */
        STATE_E_ROOT_ROLE, /* the user root does not have the role root */
        STATE_E_USER_EXISTS,
        STATE_E_USER_EMPTY, /* no name; or a client that is not logged in */
        STATE_E_USER_NOT_FOUND,
        STATE_E_ROLE_EXISTS,
        STATE_E_ROLE_EMPTY,
        STATE_E_ROLE_NOT_FOUND,
        STATE_E_ROLE_NOT_GRANTED,
        STATE_E_PERMISSION_EMPTY,
        STATE_E_PERMISSION_NOT_GRANTED, /* the role does not have it */
        STATE_E_DENIED,
        STATE_E_TOKEN,     /* from a login that is over */
        STATE_E_AUTH_MGMT, /* root cannot be removed while auth is on */
        STATE_E_AUTH_NAME, /* the name of a user or a role is too long */
        STATE_E_AUTH_FULL, /* the limit of users, roles or permissions is reached */
        /* Cache leases: state/cached.h. */
        STATE_E_CACHED,          /* a client may have cached a key that would be changed */
        STATE_E_CACHE_TOO_LARGE, /* too many keys for one cached range */
        STATE_E_CACHE_FULL,      /* the limit of cached ranges is reached */
        STATE_E_PERMISSION_TYPE, /* neither READ nor WRITE nor READWRITE */
        STATE_E_CORRUPT,         /* there is an alarm about corruption */
        STATE_E_LAST_ = STATE_E_CORRUPT,
};
