/* The name of this host's operating system, os-release(5). */
#pragma once

#include <stddef.h>

/* The PRETTY_NAME, cut to fit; "Linux" if there is none. */
void os_release(char *out, size_t size);
