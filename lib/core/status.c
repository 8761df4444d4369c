#include "core/status.h"

#include <stdio.h>

const struct status status_ok = {RPC_OK, ""};
const struct status status_no_leader = {RPC_UNAVAILABLE, "etcdserver: no leader"};
const struct status status_timeout = {RPC_UNAVAILABLE, "etcdserver: request timed out"};
const struct status status_lost = {
        RPC_UNAVAILABLE,
        "etcdserver: request timed out, possibly due to previous leader failure"};
const struct status status_too_many = {RPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests"};
const struct status status_malformed = {RPC_INTERNAL, "grpc: the message does not parse"};
const struct status status_stopped = {RPC_UNAVAILABLE, "etcdserver: server stopped"};

const struct status status_not_leader = {RPC_FAILED_PRECONDITION, "etcdserver: not leader"};
const struct status status_not_moved = {
        RPC_UNAVAILABLE, "etcdserver: request timed out, leader transfer took too long"};
const struct status status_bad_transferee = {RPC_FAILED_PRECONDITION,
                                             "etcdserver: bad leader transferee"};
const struct status status_nomem = {RPC_RESOURCE_EXHAUSTED, "out of memory"};
const struct status status_too_large = {RPC_INVALID_ARGUMENT,
                                        "etcdserver: request is too large"};

/* etcd's clients switch to another replica when one answers UNAVAILABLE. */
const struct status status_learner = {RPC_UNAVAILABLE,
                                      "etcdserver: rpc not supported for learner"};

static const struct status of_outcome[] = {
        [STATE_OK] = {RPC_OK, ""},
        [STATE_E_KEY_MISSING] = {RPC_INVALID_ARGUMENT, "etcdserver: key is not provided"},
        [STATE_E_KEY_NOT_FOUND] = {RPC_INVALID_ARGUMENT, "etcdserver: key not found"},
        [STATE_E_VALUE_GIVEN] = {RPC_INVALID_ARGUMENT, "etcdserver: value is provided"},
        [STATE_E_LEASE_GIVEN] = {RPC_INVALID_ARGUMENT, "etcdserver: lease is provided"},
        [STATE_E_TXN_TOO_LARGE] = {RPC_INVALID_ARGUMENT,
                                   "etcdserver: too many operations in txn request"},
        [STATE_E_TXN_DUPLICATE] = {RPC_INVALID_ARGUMENT,
                                   "etcdserver: duplicate key given in txn request"},
        [STATE_E_DELETE_TOO_LARGE] =
                {RPC_INVALID_ARGUMENT,
                 "etcdserver: request is too large: a delete is limited to 100000 keys, or to "
                 "10000 keys and 16 MiB of values if previous values are requested; delete in "
                 "parts"},
        [STATE_E_SORT] = {RPC_INVALID_ARGUMENT, "etcdserver: invalid sort option"},
        [STATE_E_COMPACTED] = {RPC_OUT_OF_RANGE,
                               "etcdserver: mvcc: required revision has been compacted"},
        [STATE_E_FUTURE] = {RPC_OUT_OF_RANGE,
                            "etcdserver: mvcc: required revision is a future revision"},
        [STATE_E_LEASE_NOT_FOUND] = {RPC_NOT_FOUND, "etcdserver: requested lease not found"},
        [STATE_E_LEASE_EXISTS] = {RPC_FAILED_PRECONDITION, "etcdserver: lease already exists"},
        [STATE_E_TTL_TOO_LARGE] = {RPC_OUT_OF_RANGE, "etcdserver: too large lease TTL"},
        [STATE_E_LEASES_FULL] = {RPC_RESOURCE_EXHAUSTED,
                                 "etcdserver: too many leases: the limit is 4194304"},
        [STATE_E_LEASE_KEYS] = {RPC_RESOURCE_EXHAUSTED,
                                "etcdserver: too many keys on the lease: the limit is 100000"},
        [STATE_E_LEASE_NAME] = {RPC_INVALID_ARGUMENT,
                                "etcdserver: a lease's name is longer than 1024 bytes"},
        [STATE_E_LEASE_NAME_USED] = {RPC_FAILED_PRECONDITION,
                                     "etcdserver: lease already exists with that name"},
        [STATE_E_LEASE_NAME_NOT_FOUND] = {RPC_NOT_FOUND, "etcdserver: no lease has that name"},
        [STATE_E_LEASE_TWICE] = {RPC_INVALID_ARGUMENT,
                                 "etcdserver: a lease is given by its id or by its name, not "
                                 "by both"},
        [STATE_E_NOSPACE] = {RPC_RESOURCE_EXHAUSTED,
                             "etcdserver: mvcc: database space exceeded"},
        [STATE_E_ROOT_USER] = {RPC_FAILED_PRECONDITION, "etcdserver: root user does not exist"},
        [STATE_E_ROOT_ROLE] = {RPC_FAILED_PRECONDITION,
                               "etcdserver: root user does not have root role"},
        [STATE_E_USER_EXISTS] = {RPC_FAILED_PRECONDITION,
                                 "etcdserver: user name already exists"},
        [STATE_E_USER_EMPTY] = {RPC_INVALID_ARGUMENT, "etcdserver: user name is empty"},
        [STATE_E_USER_NOT_FOUND] = {RPC_FAILED_PRECONDITION, "etcdserver: user name not found"},
        [STATE_E_ROLE_EXISTS] = {RPC_FAILED_PRECONDITION,
                                 "etcdserver: role name already exists"},
        [STATE_E_ROLE_EMPTY] = {RPC_INVALID_ARGUMENT, "etcdserver: role name is empty"},
        [STATE_E_ROLE_NOT_FOUND] = {RPC_FAILED_PRECONDITION, "etcdserver: role name not found"},
        [STATE_E_ROLE_NOT_GRANTED] = {RPC_FAILED_PRECONDITION,
                                      "etcdserver: role is not granted to the user"},
        [STATE_E_PERMISSION_EMPTY] = {RPC_INVALID_ARGUMENT, "etcdserver: permission not given"},
        [STATE_E_PERMISSION_NOT_GRANTED] =
                {RPC_FAILED_PRECONDITION, "etcdserver: permission is not granted to the role"},
        [STATE_E_DENIED] = {RPC_PERMISSION_DENIED, "etcdserver: permission denied"},
        [STATE_E_TOKEN] = {RPC_UNAUTHENTICATED, "etcdserver: invalid auth token"},
        [STATE_E_AUTH_MGMT] = {RPC_INVALID_ARGUMENT, "etcdserver: invalid auth management"},
        [STATE_E_AUTH_NAME] =
                {RPC_INVALID_ARGUMENT,
                 "etcdserver: the name of a user or a role is longer than 255 bytes"},
        [STATE_E_AUTH_FULL] = {RPC_RESOURCE_EXHAUSTED,
                               "etcdserver: too many: the limits are 10000 users, 10000 "
                               "roles, 1000 roles of a user and 1000 permissions of a role"},
        [STATE_E_CACHED] = {RPC_UNAVAILABLE,
                            "etcdserver: request timed out: a client may read this from its "
                            "cache until its cache term ends"},
        [STATE_E_CACHE_TOO_LARGE] =
                {RPC_INVALID_ARGUMENT,
                 "etcdserver: too large to be cached: the limit of a range is "
                 "1000 keys and 1 MiB"},
        [STATE_E_CACHE_FULL] = {RPC_RESOURCE_EXHAUSTED,
                                "etcdserver: too many cached ranges: the limit is 256"},
        [STATE_E_PERMISSION_TYPE] = {RPC_INVALID_ARGUMENT,
                                     "etcdserver: a permission's type is 0 (READ), 1 (WRITE) "
                                     "or 2 (READWRITE)"},
        [STATE_E_CORRUPT] = {RPC_DATA_LOSS, "etcdserver: corrupt cluster"},
        [STATE_E_MALFORMED] = {RPC_INTERNAL, "grpc: the message does not parse"},
};

struct status status_of(enum state_outcome o)
{
        assert((size_t) o < ARRAY_SIZE(of_outcome));
        return of_outcome[o];
}

const char *status_code_name(enum rpc_code code)
{
        static const char *const names[] = {
                [RPC_OK] = "OK",
                [RPC_CANCELED] = "Canceled",
                [RPC_UNKNOWN] = "Unknown",
                [RPC_INVALID_ARGUMENT] = "InvalidArgument",
                [RPC_DEADLINE_EXCEEDED] = "DeadlineExceeded",
                [RPC_NOT_FOUND] = "NotFound",
                [RPC_ALREADY_EXISTS] = "AlreadyExists",
                [RPC_PERMISSION_DENIED] = "PermissionDenied",
                [RPC_RESOURCE_EXHAUSTED] = "ResourceExhausted",
                [RPC_FAILED_PRECONDITION] = "FailedPrecondition",
                [RPC_ABORTED] = "Aborted",
                [RPC_OUT_OF_RANGE] = "OutOfRange",
                [RPC_UNIMPLEMENTED] = "Unimplemented",
                [RPC_INTERNAL] = "Internal",
                [RPC_UNAVAILABLE] = "Unavailable",
                [RPC_DATA_LOSS] = "DataLoss",
                [RPC_UNAUTHENTICATED] = "Unauthenticated",
        };

        assert((size_t) code < ARRAY_SIZE(names));
        return names[code];
}

void status_print(struct status st, char out[STATUS_PRINTED])
{
        snprintf(out, STATUS_PRINTED, "rpc error: code = %s desc = %s",
                 status_code_name(st.code), st.text);
}

struct status status_unpacked(int r)
{
        return r == -ENOMEM ? status_nomem : r == -E2BIG ? status_too_large : status_malformed;
}
