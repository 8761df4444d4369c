/* Maps paths of etcd's JSON gateway (etcd's rpc.proto, google.api.http) to methods. Pure. */
#pragma once

#include "http/conn.h"

/* The method of a path such as "/v3/kv/range"; NULL: none. */
const struct gateway_method *gateway_method_of(const char *path);

/* All methods, for tests: sorted by path, without the version in front. */
const struct gateway_method *gateway_methods(size_t *ret_n);
