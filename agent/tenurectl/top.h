/* tenurectl top: the fleet, live on a terminal, or as tables. */
#pragma once

#include "core.h"
#include "ctl.h"

struct top_options {
        bool once;
        const char *iterations, *interval, *filter, *sort, *cluster; /* NULL: not given */
};

/* Returns the exit status, or -1 and has said why; or does not return, where a signal ends it.
 */
must_check_ int top_main(struct ctl *c, const struct core_options *core, bool endpoints_given,
                         const struct top_options *o, int argc, char **argv);
