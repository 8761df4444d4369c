/* What every message from the bus passes before sd-bus or a method looks at it. Nothing that
 * one message has, and no number of answers that the bus does not take, may cost the loop or
 * the memory more than it has room for: the host's place depends on both. */
#pragma once

#include "agent.h"

/* Looks at all messages of the connection. Returns 0 or a negative errno. */
must_check_ int door_attach(struct agent *a);
