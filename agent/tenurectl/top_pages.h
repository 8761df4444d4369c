/*
 * The pages of `tenurectl top` that take the whole screen for a while: the help, and the
 * details of a node. Pure.
 */
#pragma once

#include "top_view.h"

/* Return 0 or -ENOMEM. */
must_check_ int top_help(const struct top_look *k, struct top_screen *s);
/* The details of the node k->detail. */
must_check_ int top_detail(const struct top_model *m, const struct top_look *k,
                           struct boot_time now, int64_t wall, struct top_screen *s);
