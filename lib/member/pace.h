/* How long to wait before something that failed is retried. Pure. */
#pragma once

#include <stddef.h>

#include "base/base.h"
#include "base/clock.h"

struct pace {
        struct boot_time failed_at; /* last */
        unsigned n;                 /* failures, none of them long after the one before */
};

/* Records a failure at @now, on one of @n_endpoints, and returns how long to wait: from 100 ms
 * to 5 s, doubled after each round of the endpoints. */
nsec_t pace_next(struct pace *p, size_t n_endpoints, struct boot_time now);

/* Whether there were @n_endpoints failures in a row, so that each endpoint has been tried. */
bool pace_is_round(const struct pace *p, size_t n_endpoints);
