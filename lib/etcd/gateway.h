/* Which method is behind a path of etcd's JSON gateway (etcd's rpc.proto, google.api.http).
 * Pure. */
#pragma once

#include "http/conn.h"

/* "/v3/kv/range"; NULL: none. */
const struct gateway_method *gateway_method_of(const char *path);

/* All of them, for tests: sorted by path, without the version in front. */
const struct gateway_method *gateway_methods(size_t *ret_n);
