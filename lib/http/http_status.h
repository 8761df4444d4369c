/* The HTTP status for each gRPC code, as in grpc-gateway, and the names of statuses (RFC 9110,
 * 15). Pure. */
#pragma once

#include "rpc/code.h"

unsigned http_status_of(enum rpc_code code);
/* "Not Found" */
const char *http_status_text(unsigned status);
