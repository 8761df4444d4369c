/* Methods that return a descriptor of a file that programs of this host share with the agent:
 * OpenTenancy (holders.h) and OpenTurns. */
#pragma once

#include "agent.h"

/* Opens the file of the turns (loop/host_turn.h), in $RUNTIME_DIRECTORY if there is one, since
 * whoever has the turn keeps it across restarts of the agent. Returns a descriptor, or -1 after
 * logging why. */
must_check_ int openings_turns(void);

int method_open_tenancy(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_open_turns(sd_bus_message *m, void *userdata, sd_bus_error *error);
