/* All unary methods of the services, in one list. */
#pragma once

#include "etcd/internal.h"

/* NULL: past the last. */
const struct method *fuzz_method(size_t i);
size_t fuzz_methods(void);
