/*
 * The mass-failure brake: when most of the nodes are gone at once, it is more likely that
 * something between them and us has failed than that they have. Software that moves work should
 * wait, and asks here. The brake delays nothing itself: what has expired has expired (I2).
 * Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define BRAKE_NODES_MIN 4 /* of fewer nodes, two are a mass */
#define BRAKE_KEEP 4096

struct brake_config {
        unsigned percent; /* of the nodes, expired within @window; 0: never */
        nsec_t window;
};

struct brake {
        struct boot_time expired[BRAKE_KEEP]; /* a ring; when nodes did, oldest at `from` */
        size_t from, n;
        bool on;
};

/* A node has expired. */
void brake_expired(struct brake *b, struct boot_time now);

/* With @n_nodes there now. Returns whether `on` has changed. */
bool brake_update(struct brake *b, const struct brake_config *cfg, size_t n_nodes,
                  struct boot_time now);

/* When to look again if nothing happens; BOOT_TIME_NEVER while there is nothing to see. */
struct boot_time brake_wakeup(const struct brake *b, const struct brake_config *cfg);
