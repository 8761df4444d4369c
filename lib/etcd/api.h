/*
 * The etcd v3 services over one replica's core: KV, Lease, Watch, Lock, Election, Cluster,
 * Maintenance, Auth and health.
 *
 * A call begins at api_accept(), with the path that selects its method; answers go out through
 * rpc. Owns the requests and streams that are under way. No socket, no clock.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "core/core.h"
#include "loop/worker.h"
#include "rpc/conn.h"

struct api;

/* The version of etcd that is reported to clients, unless another is set: three numbers, since
 * clients parse it. DECISIONS.md says what depends on it. */
#define API_VERSION "3.5.24"
#define API_VERSION_SIZE 32
#define API_QUEUED_MAX (1536 * 1024) /* a stream with this many bytes queued gets no more */

/* @passwords hashes them, in its thread; borrowed, and must be freed before the api. A login
 * lasts for @token_ttl of lease time. */
must_check_ int api_new(struct api **ret, struct core *core, struct worker *passwords,
                        nsec_t token_ttl);
struct api *api_free(struct api *a);
DEFINE_CLEANUP(struct api *, api_free)

/* Reports another version of etcd to clients, "X.Y.Z". Returns 0, or -EINVAL if it is not
 * valid. */
must_check_ int api_set_version(struct api *a, const char *version);
/* Whether @version is valid. */
bool api_is_version(const char *version);

/* Switches the page for operators at "/" on or off, see status_page.h. It is off at first. */
void api_set_status_page(struct api *a, bool on);

/* For connections: who they are from, see core/shares.h. */
struct shares *api_shares(struct api *a);

/* For rpc_limits: true while no request may be accepted. */
const bool *api_busy(const struct api *a);

/* For rpc_conn_new_server(); the userdata is the api. */
void api_accept(struct rpc_call *call, void *api);
/* Like api_accept(), for a port for probes: accepts only the resources that probes read with
 * GET. */
void api_accept_probe(struct rpc_call *call, void *api);

/* Whether there is a resource at this path; and whether probes may read it as well. */
bool resource_is(const char *path);
bool resource_is_probe(const char *path);

/* Recalls the cache leases that delay a write, and proposes to return those that were given
 * back: before core_flush(), so that this is proposed in the same turn. */
void api_recall(struct api *a, struct boot_time now);

/* Sends applied events to the watches that want them, and continues calls that take many
 * slices: after the answers (LOOP_BEHIND). */
void api_run(struct api *a, struct boot_time now);
/* When to call it again, for a watch that waits for its reader or its progress report, or for a
 * call that takes many slices. */
struct boot_time api_next(const struct api *a);

/* What a call waits for in a line, see line.h. */
enum line_of {
        LINE_SLICED, /* its next slice */
        LINE_TURN,   /* a turn for work that may take long */
        LINE_ROOM,   /* room for its answer */
        LINE_LOG,    /* fewer costly writes under way */
        N_LINES,
};

struct line_place;

struct line_part {
        TAILQ_ENTRY(line_part) next;     /* linked while it has calls */
        TAILQ_HEAD(, line_part) parts;   /* for an address: its connections */
        TAILQ_HEAD(, line_place) places; /* for a connection: its calls */
        size_t n;                        /* the number of calls */
};

/* When a connection, and the address that it comes from, were last served, so that they take
 * turns. The owner zeroes it, except for `of`. */
struct api_turn {
        struct api_turn *of; /* the turn of the address; NULL: this is an address */
        uint64_t served;     /* when it was last served, or began to wait */
        size_t n_waiting;
        struct line_part lines[N_LINES];
};

/* The number of clients, and their load. */
struct api_load {
        size_t connections;
        size_t held;         /* bytes */
        nsec_t longest_turn; /* the longest recent turn of the loop */
};

/* Callbacks to the owner of the connections. */
struct api_conns {
        /* There is output to send. */
        void (*kick)(struct rpc_conn *c, void *arg);
        /* The common name in the client's certificate, which was verified; NULL: none. Borrowed
         * until the next call. */
        const char *(*common_name)(struct rpc_conn *c, void *arg);
        /* The turn of the connection; borrowed while it lives. */
        struct api_turn *(*turn)(struct rpc_conn *c, void *arg);
        struct api_load (*load)(void *arg); /* may be NULL */
        /* A pointer to the present time, see loop_clock(); borrowed, as long as the api. NULL:
         * the core's time, which stands still while the loop sleeps. */
        const struct boot_time *(*clock)(void *arg);
        /* The lengths of the loop's turns (histogram_way); may be NULL. */
        const struct histogram *(*turns)(void *arg);
        /* Called when an account may have recorded that there is no room, see struct
         * rpc_account: may end connections. May be NULL. */
        void (*relieve)(void *arg);
};
void api_set_conns(struct api *a, const struct api_conns *conns, void *arg);
