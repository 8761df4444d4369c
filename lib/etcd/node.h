/*
 * One replica, put together: the lease core, the etcd API on top of it, and the replicated log
 * below, in the one order that works. The daemon and the simulator run this same code; disk,
 * links and ports belong to its owner, which also passes in the time. Embedded; not
 * thread-safe.
 */
#pragma once

#include "consensus/replica.h"
#include "core/core.h"
#include "etcd/api.h"

struct node {
        struct core *core;
        struct api *api;
        struct replica *replica;
};

struct node_config {
        struct core_config core;
        struct replica_config replica;
        const struct replica_ops *ops; /* called between replica and core; NULL: the core's
                                        * own */
        const struct core_owner *owner;
        void *owner_arg;
        const struct api_conns *conns; /* NULL: a server sets its own */
        void *conns_arg;
        const char *name,
                *client_urls;     /* for MemberList; NULL: this replica publishes nothing */
        struct worker *passwords; /* borrowed; NULL: login is not possible */
        nsec_t token_ttl;
        const char *etcd_version; /* the version that is reported to clients; NULL:
                                   * API_VERSION */
        bool status_page;         /* serve the page for operators at "/" */
};

/* Loads the replica from @d. Returns 0, or a negative errno and @err: node_leave() and
 * node_free() end it in any case. @d and the owner are borrowed. */
must_check_ int node_init(struct node *n, const struct node_config *cfg, struct disk *d,
                          struct boot_time now, struct store_error *err);

/* Takes part from now on. Returns 0 or a negative errno. */
must_check_ int node_start(struct node *n);

/* The part of a turn that handles everything that has arrived, up to the frames for the other
 * replicas. @lap, if set, is called after each piece with its name. */
void node_run(struct node *n, struct boot_time now, void (*lap)(void *arg, const char *what),
              void *arg);

/* The part after the answers and after the frames for the other replicas, which do not wait for
 * watchers. */
void node_flush(struct node *n, struct boot_time now);

/* When to run again at the latest. Valid after both of these, and after answers were made. */
struct boot_time node_next(struct node *n);

/* Answers everything that still waits, and accepts nothing more. */
void node_leave(struct node *n);

/* Frees the rest, once the disk's thread has ended: its jobs point into the replica. */
void node_free(struct node *n);
