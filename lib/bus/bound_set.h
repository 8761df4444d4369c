/* A set of units that all go down with the first one, and what systemd reports of each: for
 * bound.c. */
#pragma once

#include <systemd/sd-bus.h>

#include "bus/bound.h"

struct bound_set {
        struct bound_unit *units;
        size_t n, size;
        bool is_full; /* there are more units */
};

void bound_set_clear(struct bound_set *s);
struct bound_unit *bound_set_find(const struct bound_set *s, const char *name);

/* Once. What is beyond BOUND_MAX is left out. */
void bound_set_add(struct bound_set *s, const char *name);

/* @m: all properties of the unit with that index, as GetAll has them. Adds what goes down with
 * it. @own: see below. Returns 0 or a negative errno. */
must_check_ int bound_set_read(struct bound_set *s, size_t unit, sd_bus_message *m,
                               const char *own);

/* Sets is_after: directly, or after another one of the set that is. */
void bound_set_order(struct bound_set *s);

bool bound_set_is_other(const struct bound_set *a, const struct bound_set *b);
enum bound_sight bound_set_sight(const struct bound_set *s);

/* True for groups that a process must not fence: its own, those that contain it, and the
 * service manager's. @own: our own control group. */
bool bound_is_ours(const char *group, const char *own);

bool bound_is_down_state(const char *state);
