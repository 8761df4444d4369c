/* Methods that return a descriptor of a file that programs of this host share: OpenTenancy
 * (holders.h) and OpenTurn. */
#pragma once

#include "agent.h"

/* Opens the directory of the files for turns (loop/host_turn.h), in $RUNTIME_DIRECTORY, since
 * whoever has a turn keeps it across restarts of the agent; without that, a file in memory.
 * Returns a descriptor, or -1 after logging why. */
must_check_ int openings_turns(void);

int method_open_tenancy(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_open_turn(sd_bus_message *m, void *userdata, sd_bus_error *error);
