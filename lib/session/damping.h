/*
 * Flap damping: a node that loses its place again and again stays out for a while, so that work
 * does not move back and forth with it. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define DAMPING_LIMIT_MAX 16

struct damping_config {
        unsigned limit;  /* this many losses (0: never) ... */
        nsec_t window;   /* ... within this time ... */
        nsec_t suppress; /* ... keep the node out for this long */
};

struct damping {
        struct boot_time losses[DAMPING_LIMIT_MAX]; /* the latest ones, oldest first */
        size_t n;
        struct boot_time until; /* the node stays out until then; 0: it does not */
};

/* Records that the place was lost, not given back. Returns whether the node has to stay out
 * now, until `until`; if so, all losses so far are forgotten. */
bool damping_lost(struct damping *d, const struct damping_config *cfg, struct boot_time now);

/* Forgets the losses, and lets the node in again, because somebody has asked for that. */
void damping_forgive(struct damping *d);
