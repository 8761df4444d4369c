/* Keeps work from being moved needlessly: this node stays out for a while when it flaps, and a
 * mass failure is reported when most nodes are gone at once. Losses are kept in
 * $RUNTIME_DIRECTORY over a restart of the agent. */
#pragma once

#include "loop/loop.h"
#include "member/brake.h"
#include "runtime.h"
#include "session/damping.h"

struct stability {
        struct damping damping;
        struct damping_config damping_cfg;
        struct brake brake;
        struct brake_config brake_cfg;
        struct loop_timer timer;
        void (*brake_changed)(struct stability *s);
        size_t n_nodes;
        char file[RUNTIME_PATH_MAX]; /* "": nothing is kept */
};

void stability_init(struct stability *s, struct loop *l,
                    void (*brake_changed)(struct stability *s));
void stability_fini(struct stability *s);

/* The place was lost. Returns whether to stay out, until `damping.until`. */
bool stability_lost(struct stability *s, struct boot_time now);

/* An operator lets this node in again. */
void stability_forgive(struct stability *s);

/* There are @n_nodes now, and `brake` knows who has expired or joined; or its settings have
 * changed. */
void stability_nodes(struct stability *s, size_t n_nodes, struct boot_time now);
