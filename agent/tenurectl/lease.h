/* tenurectl lease ...: the leases of the core, by their ids and by their names. */
#pragma once

#include "core.h"

/* Runs a command; returns the exit status. */
must_check_ int lease_main(const struct core_options *o, int argc, char **argv);

/* All of them, as `core leases` lists them, too. Returns 0 or a negative errno, and has said
 * why. */
must_check_ int lease_list(const struct core_options *o);
