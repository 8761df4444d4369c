/* File descriptors: as many as may be, and not more clients than that. */
#pragma once

#include "options.h"

/* Raises the limit as far as that is allowed, and lowers the number of clients in @o to what it
 * allows. */
void descriptors_raise(struct options *o);
