/*
 * The first lines of `tenurectl top`: the verdict, the numbers of members and services, the
 * core, this host. Pure.
 */
#pragma once

#include "top_view.h"

#define TOP_HEAD_LINES 4

/* Returns 0 or -ENOMEM. */
must_check_ int top_head(const struct top_model *m, const struct top_look *k,
                         struct boot_time now, int64_t wall, struct top_screen *s);
