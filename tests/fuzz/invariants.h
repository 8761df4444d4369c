/* What must hold for a state (state/state.h) between any two commands. */
#pragma once

#include "state/state.h"

/* Aborts where it does not. */
void check_state(const struct state *s);

/* The part of it that is checked of a state from any snapshot: that each key is attached to the
 * lease that it names. */
void check_attached(const struct state *s);

/* Aborts unless the two are one story: what is saved, hashed and counted. */
void check_equal(const struct state *a, const struct state *b);

/* For core_owner.expired: what a leader says of a lease that ends. */
void check_expired(void *u, int64_t lease, size_t n_keys, uint64_t term);
