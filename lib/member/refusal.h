/* What a core's refusal means, where its gRPC code is ambiguous: there the text decides, which
 * is etcd's, from 3.4 on. Pure. */
#pragma once

#include "base/base.h"
#include "rpc/code.h"

/* Whether a new login may help: the connection's login has expired, or authentication was
 * enabled after the connection was made. False if the user lacks a permission. */
bool refusal_wants_login(enum rpc_code code, const char *message);
