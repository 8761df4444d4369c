/* How long to wait before something that failed is retried. Pure. */
#pragma once

#include <stddef.h>

#include "base/base.h"
#include "base/clock.h"

struct pace {
        struct boot_time failed_at; /* last */
        unsigned n;                 /* failures, none of them long after the one before */
};

/* It has failed at @now, on one of @n_endpoints: after each round of them it takes twice as
 * long, from 100 ms up to 5 s. */
nsec_t pace_next(struct pace *p, size_t n_endpoints, struct boot_time now);

/* Whether each endpoint has failed since it last worked. */
bool pace_is_round(const struct pace *p, size_t n_endpoints);
