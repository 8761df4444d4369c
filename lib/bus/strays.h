/* Control groups that must be fenced with a bound unit although they are not its own: a main
 * process that a session manager or another service has moved, or that PIDFile= names, is
 * elsewhere (su(1), runuser(1) with -l, PAMName= in systemd.exec(5)). Systemd then stops that
 * one process, and not what it has started there. For bound.c. */
#pragma once

#include "bus/bound.h"

struct strays {
        struct bound_stray *all;
        size_t n;
};

/* Once. Returns whether it is new. */
bool strays_add(struct strays *s, const char *unit, const char *group, bool is_ours);

/* Forgets the groups of which @is_over is true. Returns whether there were any. */
bool strays_forget(struct strays *s, bool (*is_over)(const void *userdata, const char *group),
                   const void *userdata);

void strays_clear(struct strays *s);
