/*
 * The mass-failure brake: when most of the nodes are gone at once, it is more likely that
 * something between them and us has failed than that they have. Software that moves work should
 * wait, and asks here. The brake delays nothing itself: what has expired has expired (I2).
 * Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define BRAKE_NODES_MIN 4 /* with fewer nodes, two failures would count as a mass failure */
#define BRAKE_KEEP 4096

struct brake_config {
        unsigned percent; /* of the nodes, expired within @window; 0: never */
        nsec_t window;
};

struct brake {
        struct boot_time expired[BRAKE_KEEP]; /* times of expiries: a ring, oldest at `from` */
        size_t from, n;
        bool on;
};

/* A node has expired. */
void brake_expired(struct brake *b, struct boot_time now);

/* @n_nodes: the nodes that are there now. Returns whether `on` has changed. */
bool brake_update(struct brake *b, const struct brake_config *cfg, size_t n_nodes,
                  struct boot_time now);

/* When to call brake_update() again if nothing happens; BOOT_TIME_NEVER: not at all. */
struct boot_time brake_wakeup(const struct brake *b, const struct brake_config *cfg);
