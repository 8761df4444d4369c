/*
 * Flap damping: a node that loses its place again and again stays out for a while, so that work
 * does not move back and forth with it. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define DAMPING_LIMIT_MAX 16

struct damping_config {
        unsigned limit;  /* so many losses; 0: never damped */
        nsec_t window;   /* within so much time */
        nsec_t suppress; /* keep the node out for so long */
};

struct damping {
        struct boot_time losses[DAMPING_LIMIT_MAX]; /* the latest ones, oldest first */
        size_t n;
        struct boot_time until; /* it stays out; 0: it does not */
};

/* The place was lost, not given back. Returns whether the node stays out now, until `until`;
 * the losses before it are forgiven then. */
bool damping_lost(struct damping *d, const struct damping_config *cfg, struct boot_time now);

/* Somebody lets it in again. */
void damping_forgive(struct damping *d);
