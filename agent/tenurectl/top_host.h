/*
 * This host's half of `tenurectl top`: what its agent reports about its own place, over D-Bus.
 * After top_host_new(), it never waits for the agent.
 */
#pragma once

#include "ctl.h"
#include "loop/loop.h"
#include "top_model.h"

struct top_host_bus;

/* What the agent last reported about the core; "" if there is no agent. */
struct top_agent {
        char cluster[TOP_NAME], endpoint[320];
};

/* Looks for the agent on the bus of @c, and waits for its first answer. Returns 0, with or
 * without an agent, or a negative errno. */
must_check_ int top_host_new(struct top_host_bus **ret, struct loop *l, struct top_model *m,
                             const struct ctl *c);
struct top_host_bus *top_host_free(struct top_host_bus *h);

const struct top_agent *top_host_agent(const struct top_host_bus *h);
void top_host_ask(struct top_host_bus *h, int64_t wall);
