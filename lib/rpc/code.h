/* gRPC status codes (grpc/doc/statuscodes.md) and the percent-encoding of grpc-message
 * (grpc/doc/PROTOCOL-HTTP2.md). Pure. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

enum rpc_code {
        RPC_OK = 0,
        RPC_CANCELED = 1,
        RPC_UNKNOWN = 2,
        RPC_INVALID_ARGUMENT = 3,
        RPC_DEADLINE_EXCEEDED = 4,
        RPC_NOT_FOUND = 5,
        RPC_ALREADY_EXISTS = 6,
        RPC_PERMISSION_DENIED = 7,
        RPC_RESOURCE_EXHAUSTED = 8,
        RPC_FAILED_PRECONDITION = 9,
        RPC_ABORTED = 10,
        RPC_OUT_OF_RANGE = 11,
        RPC_UNIMPLEMENTED = 12,
        RPC_INTERNAL = 13,
        RPC_UNAVAILABLE = 14,
        RPC_DATA_LOSS = 15,
        RPC_UNAUTHENTICATED = 16,
};

/* As in grpc-status. */
const char *rpc_code_text(enum rpc_code code);

/* Parses the value of grpc-timeout. Returns 0 if it is not valid. */
nsec_t rpc_timeout_parse(const void *text, size_t n);

/* Appends @s with every byte outside of ' '..'~', and '%' itself, as %XX. */
void rpc_percent_encode(const char *s, struct buf *out);

/* Appends the decoded form of @n bytes at @s; a '%' without two digits stays as it is. */
void rpc_percent_decode(const char *s, size_t n, struct buf *out);
