/*
 * The mass-failure brake: when most of the nodes are gone at once, something between them and
 * us has probably failed, and not they. Software that moves work asks here, and waits. The
 * brake delays nothing itself: what has expired has expired (I2).
 *
 * A node is missing from when it expires until it joins again, however often that happens; a
 * node that left in order is not. The brake is switched on when `percent` of the nodes, present
 * and missing, have expired within `window`; it is switched off when fewer than half of that
 * percentage are missing. While it is on, a node counts as missing for an hour at most, or for
 * `window` if that is longer. Pure. A call costs O(log missing).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/tree.h"

#define BRAKE_NODES_MIN 4 /* with fewer nodes, two failures would count as a mass failure */
#define BRAKE_MISSED_FOR (3600 * NSEC_PER_SEC)
#define BRAKE_MISSING_MAX ((size_t) 1 << 17) /* the oldest ones beyond that are forgotten */

struct brake_config {
        unsigned percent; /* 0: never */
        nsec_t window;
};

RB_HEAD(brake_tree, missing_node);
TAILQ_HEAD(brake_list, missing_node);

struct brake {
        struct brake_tree by_name;
        struct brake_list oldest_first;
        size_t n_missing;
        bool on;
};

void brake_init(struct brake *b);
void brake_fini(struct brake *b);

/* Node @name has expired, or has joined. An expired node is not counted if memory runs out. */
void brake_expired(struct brake *b, const char *name, struct boot_time now);
void brake_joined(struct brake *b, const char *name);

/* @n_nodes: the nodes that are there now. Returns whether `on` has changed. */
bool brake_update(struct brake *b, const struct brake_config *cfg, size_t n_nodes,
                  struct boot_time now);

/* When to call brake_update() again if nothing happens; BOOT_TIME_NEVER: not at all. */
struct boot_time brake_wakeup(const struct brake *b, const struct brake_config *cfg);
