#include "http/http_status.h"

#include <http_parser.h>

unsigned http_status_of(enum rpc_code code)
{
        static const unsigned of[] = {
                [RPC_OK] = 200,
                [RPC_CANCELED] = 408,
                [RPC_UNKNOWN] = 500,
                [RPC_INVALID_ARGUMENT] = 400,
                [RPC_DEADLINE_EXCEEDED] = 504,
                [RPC_NOT_FOUND] = 404,
                [RPC_ALREADY_EXISTS] = 409,
                [RPC_PERMISSION_DENIED] = 403,
                [RPC_RESOURCE_EXHAUSTED] = 429,
                [RPC_FAILED_PRECONDITION] = 412,
                [RPC_ABORTED] = 409,
                [RPC_OUT_OF_RANGE] = 400,
                [RPC_UNIMPLEMENTED] = 501,
                [RPC_INTERNAL] = 500,
                [RPC_UNAVAILABLE] = 503,
                [RPC_DATA_LOSS] = 500,
                [RPC_UNAUTHENTICATED] = 401,
        };

        return of[code];
}

const char *http_status_text(unsigned status)
{
        return http_status_str((enum http_status) status);
}
