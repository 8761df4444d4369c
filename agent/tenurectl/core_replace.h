/* tenurectl core replace: puts a new member in the place of one whose data directory is lost.
 */
#pragma once

#include "core.h"

/* @argv: a name or an id. Waits until the new member is what the old one was, and may be run
 * again at any time. Returns 0, or a negative errno after printing why. */
must_check_ int core_replace(const struct core_options *o, char **argv);
