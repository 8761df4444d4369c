/* tenurectl metrics: what the agent counts, as Prometheus reads it. */
#pragma once

#include "ctl.h"

struct metrics_options {
        const char *output; /* a file for node_exporter's textfile collector; NULL: none */
        bool http;          /* one request on standard input, its answer on standard output */
};

/* @c: its bus may be NULL: then there is no agent. Returns the exit status, or -1 and has said
 * why. */
must_check_ int metrics_main(struct ctl *c, const struct metrics_options *o, int argc,
                             char **argv);
