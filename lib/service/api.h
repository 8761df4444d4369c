/*
 * The etcd v3 services over one replica's core: KV, Lease, Watch, Lock, Election, Cluster,
 * Maintenance, Auth and health.
 *
 * A call begins at api_accept(), with the path that selects its method; answers go out through
 * rpc. Owns the requests and streams that are under way. No socket, no clock.
 */
#pragma once

#include "rpc/conn.h"
#include "service/core.h"

struct api;

#define API_VERSION \
        "3.4.0+tenure." TENURE_VERSION /* clients that look expect an etcd version */
#define API_QUEUED_MAX (1536 * 1024)   /* no more into a stream that holds so much */

must_check_ int api_new(struct api **ret, struct core *core);
struct api *api_free(struct api *a);
DEFINE_CLEANUP(struct api *, api_free)

/* For rpc_conn_new_server(); the userdata is the api. */
void api_accept(struct rpc_call *call, void *api);

/* Sends events that were applied to those who watch for them; at the end of an iteration,
 * before the connections flush. */
void api_flush(struct api *a, struct boot_time now);
/* When a watch that waits for its reader, or for its progress report, wants api_flush() again.
 */
struct boot_time api_next(const struct api *a);

/* Called when a connection has something to send; set by the owner of the connections. */
void api_set_kick(struct api *a, void (*kick)(struct rpc_conn *c, void *arg), void *arg);
