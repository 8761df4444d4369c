/*
 * The core's half of `tenurectl top`: asks each replica for its status, over connections of its
 * own, and one of those that answer for the members and, if there are many, for all leases.
 */
#pragma once

#include "core.h"
#include "loop/loop.h"
#include "talk.h"
#include "top_model.h"

struct top_core;

/* @o: the user and the certificate; borrowed. Returns 0, or a negative errno after printing
 * why. */
must_check_ int top_core_new(struct top_core **ret, struct loop *l, struct top_model *m,
                             const struct core_options *o);
struct top_core *top_core_free(struct top_core *c);

/* Adds endpoints to begin with: URLs joined by commas, or srv://NAME. The members' own URLs are
 * added once they are known. Returns 0, or a negative errno with the reason in @why. */
must_check_ int top_core_add(struct top_core *c, const char *endpoints, char why[TOP_REASON]);
bool top_core_has_any(const struct top_core *c);

/* Asks all replicas, and notes in the model which have not answered. */
void top_core_ask(struct top_core *c, struct boot_time now, int64_t wall);

/* Why a replica does not answer; "" if none is silent. */
const char *top_core_why(const struct top_core *c);

/* Whether all known replicas have answered, or have been given up, and the history is read. */
bool top_core_is_settled(const struct top_core *c, struct boot_time now);

/* To be called in each turn: reads what happened in the last hour, once the members are known.
 */
void top_core_run(struct top_core *c, struct boot_time now);
