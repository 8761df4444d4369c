/* What is looked at inside of an agent: on which endpoint its watch is, and whether the
 * membership waits for an answer. */
#pragma once

#include <stddef.h>

#include "base/base.h"

struct member;

struct insides {
        size_t watch_at; /* the endpoint's number */
        bool watching;
        bool waits; /* for a page, for a watch that is being created, or for an answer */
};

struct insides insides_of(const struct member *m);
