/* What a core's refusal says, where its gRPC code does not say enough: texts of etcd, from 3.4
 * on, decide there. Pure. */
#pragma once

#include "base/base.h"
#include "rpc/code.h"

/* Whether a login, or another one, may mend it: the connection's login has ended, or it was set
 * up while authentication was off, and it is on now. Not where a user lacks a permission. */
bool refusal_wants_login(enum rpc_code code, const char *message);
