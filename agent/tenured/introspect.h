/* The interfaces on the bus as D-Bus introspection data, for tools that generate code from it,
 * in /usr/share/dbus-1/interfaces. sd-bus makes it from the vtables that are served; needs no
 * bus and no agent. */
#pragma once

#include <stdio.h>

#include "base/base.h"

/* Writes the document of @interface to @f. Returns 0, -ENOENT if it is not one of ours, or
 * another negative errno. */
must_check_ int introspect_print(const char *interface, FILE *f);

/* The names of our interfaces: "A, B or C". */
const char *introspect_interfaces(void);
