/*
 * The cluster's half of `tenurectl top`, by libtenure: members and services, the remaining time
 * of leases, and the locks attached to them.
 */
#pragma once

#include "loop/loop.h"
#include "tenure/tenure.h"
#include "top_model.h"

struct top_feed;

/* @t is not started yet; borrowed. Returns 0, or a negative errno with the reason in
 * tenure_error(). */
must_check_ int top_feed_new(struct top_feed **ret, struct loop *l, struct top_model *m,
                             struct tenure *t);
struct top_feed *top_feed_free(struct top_feed *f);

/* Reads the remaining time of the members' leases: for the members that are visible,
 * model->shown from @first on, or for all if they are few. At intervals, also reads which locks
 * are attached to the leases. */
void top_feed_ask(struct top_feed *f, size_t first, size_t n, struct boot_time now,
                  int64_t wall);

/* Whether every question was answered. */
bool top_feed_is_settled(const struct top_feed *f);

/* Whether we have no permission to read the members; model->down has the reason. */
bool top_feed_is_refused(const struct top_feed *f);

/* Returns 0, or a negative errno once it cannot continue, with the reason in tenure_error(). */
must_check_ int top_feed_error(const struct top_feed *f);
