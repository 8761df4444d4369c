/* Follows units of systemd: reports when one starts, stops, reloads or restarts, without
 * polling (org.freedesktop.systemd1(5), PropertiesChanged). Talks to the service manager
 * directly, as pid1.h does; after a daemon-reload or -reexec everything is queried anew. */
#pragma once

#include "base/base.h"

struct loop;
struct units;

struct unit_state {
        bool active;         /* active, or reloading */
        char sub_state[32];  /* running, exited, reload, ... */
        char invocation[64]; /* another one for every start; "" where it never ran */
};

/* @s: its present state; reported once it is known, and then whenever it changes. */
typedef void (*unit_changed_fn)(void *userdata, const char *unit, const struct unit_state *s);

/* Connects when there is something to follow. Returns 0 or -ENOMEM. */
must_check_ int units_new(struct units **ret, struct loop *l, unit_changed_fn changed,
                          void *userdata);
struct units *units_free(struct units *u);
DEFINE_CLEANUP(struct units *, units_free)

/* Each units_follow() of a unit needs a units_leave(). Returns 0 or -ENOMEM. */
must_check_ int units_follow(struct units *u, const char *unit);
void units_leave(struct units *u, const char *unit);

/* What is known of it; NULL: nothing yet. */
const struct unit_state *units_state(const struct units *u, const char *unit);

/* Each has been reported once. */
bool units_known(const struct units *u);
