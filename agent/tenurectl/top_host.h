/*
 * This host's half of `tenurectl top`: what its agent says of its own place, over D-Bus. Never
 * waits for the agent, once it runs.
 */
#pragma once

#include "ctl.h"
#include "loop/loop.h"
#include "top_model.h"

struct top_host_bus;

/* What the agent said last of the core. Strings are the bus's own; "" where there is no agent.
 */
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
