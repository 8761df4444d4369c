/* tenurectl core ...: asks the lease core itself, over its client port. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct core_options {
        const char *endpoints; /* joined by commas */
        const char *cacert, *cert, *key;
        const char *user; /* NAME or NAME:PASSWORD; NULL: nobody */
        const char *password_file;
        bool voter;  /* add: at once, not as a learner */
        bool finish; /* upgrade: raise the cluster version */
        bool once;   /* lease keep-alive, cache, top: once, then end */
        bool keys;   /* lease ttl: also the keys of the lease */
        nsec_t wait; /* lock: wait so long; -1: without a limit */
        bool legend;
        int json; /* enum json_mode of main.c: 0 off, 1 short, 2 pretty */
};

/* Runs a command; returns the exit status. */
must_check_ int core_main(const struct core_options *o, int argc, char **argv);
