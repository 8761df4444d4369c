/*
 * The cluster's half of `tenurectl top`, by libtenure: members and services as they come and
 * go, how long leases have left, and the locks that hang on them.
 */
#pragma once

#include "loop/loop.h"
#include "tenure/tenure.h"
#include "top_model.h"

struct top_feed;

/* @t is not started yet; borrowed. Returns 0, or a negative errno and tenure_error() says why.
 */
must_check_ int top_feed_new(struct top_feed **ret, struct loop *l, struct top_model *m,
                             struct tenure *t);
struct top_feed *top_feed_free(struct top_feed *f);

/* Asks how long the leases of members have left: of those that are visible, model->shown from
 * @first on, and, where they are not many, of all; and now and then which locks hang on them.
 */
void top_feed_ask(struct top_feed *f, size_t first, size_t n, struct boot_time now,
                  int64_t wall);

/* Every question has its answer. */
bool top_feed_is_settled(const struct top_feed *f);

/* The members may not be read; model->down says why. */
bool top_feed_is_refused(const struct top_feed *f);

/* A negative errno once it cannot go on; tenure_error() says why. */
must_check_ int top_feed_error(const struct top_feed *f);
