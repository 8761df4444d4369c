/*
 * What keeps a cluster from being moved about: a node of ours that flaps stays out for a while,
 * and when most nodes are gone at once, we say so. Losses are kept in $RUNTIME_DIRECTORY over a
 * restart of the agent.
 */
#pragma once

#include "client/brake.h"
#include "loop/loop.h"
#include "runtime.h"
#include "session/damping.h"

struct steady {
        struct damping damping;
        struct damping_config damping_cfg;
        struct brake brake;
        struct brake_config brake_cfg;
        struct loop_timer timer;
        void (*brake_changed)(struct steady *s);
        size_t n_nodes;
        char file[RUNTIME_PATH_MAX]; /* "": nothing is kept */
};

void steady_init(struct steady *s, struct loop *l, void (*brake_changed)(struct steady *s));
void steady_fini(struct steady *s);

/* Our place was lost. Returns whether to stay out, until `damping.until`. */
bool steady_lost(struct steady *s, struct boot_time now);

/* Somebody lets us in again. */
void steady_forgive(struct steady *s);

/* There are @n_nodes now, and one of them has @expired, or has not. */
void steady_nodes(struct steady *s, size_t n_nodes, bool expired, struct boot_time now);
