/*
 * What takes the whole screen of `tenurectl top` for a while: the help, and all of a node.
 * Pure.
 */
#pragma once

#include "top_view.h"

/* Return 0 or -ENOMEM. */
must_check_ int top_help(const struct top_look *k, struct top_screen *s);
/* Of the node k->detail. */
must_check_ int top_detail(const struct top_model *m, const struct top_look *k,
                           struct boot_time now, int64_t wall, struct top_screen *s);
