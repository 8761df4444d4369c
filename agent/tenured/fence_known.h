/* The set of bound units as the previous agent knew it, in a file: the service manager may be
 * too busy to tell the next agent in time. */
#pragma once

#include "bus/bound.h"

#define FENCE_KNOWN "/run/tenure/bound"

void fence_known_load(struct bound *b);
void fence_known_save(const struct bound *b);
