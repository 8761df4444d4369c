/* What the simulator reads inside an agent: which endpoint has its watch, and whether the
 * membership waits for an answer. */
#pragma once

#include <stddef.h>

#include "base/base.h"

struct member;

struct insides {
        uint64_t core;   /* the id of the cluster that it follows */
        size_t watch_at; /* the number of an endpoint */
        bool watching;
        uint64_t asked; /* the number of its last request that is about its own place */
        bool waits;     /* for a page, for a watch that is being created, or for an answer */
};

struct insides insides_of(const struct member *m);
