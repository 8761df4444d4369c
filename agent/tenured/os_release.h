/* The name of this host's operating system, os-release(5). */
#pragma once

#include <stddef.h>

/* Its PRETTY_NAME, cut to fit; "Linux" when it does not say. */
void os_release(char *out, size_t size);
