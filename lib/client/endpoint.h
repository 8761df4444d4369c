/* One endpoint of the core, and our connection to it: carries out what member/reach.h decides.
 * Logs in if there is a user, and reports when the endpoint is up or down.
 *
 * When the other side announces the end of a connection (GOAWAY), the calls on it continue, and
 * another connection is made beside it. Until the server has sent something on the new one,
 * which may take any time, the endpoint takes no new calls; then it is reported to be up
 * again. */
#pragma once

#include "base/url.h"
#include "loop/dial.h"
#include "member/reach.h"
#include "rpc/conn.h"

struct endpoint;

/* Our login at the core, where it needs one; strings are borrowed. */
struct endpoint_login {
        const char *user, *password;
};

struct endpoint_ops {
        /* Passes the time, before each other callback here, and before each event of a call on
         * this endpoint; may be NULL. */
        void (*at)(struct boot_time now, void *userdata);
        void (*up)(struct endpoint *e, void *userdata);
        /* The calls on it have ended with RPC_UNAVAILABLE already. */
        void (*down)(struct endpoint *e, const char *why, void *userdata);
        /* The endpoint is up, and has not answered a probe in time, or is suspected. */
        void (*silent)(struct endpoint *e, void *userdata);
};

must_check_ int endpoint_new(struct endpoint **ret, struct loop *l, struct resolver *rv,
                             const char *url, struct tls *tls,
                             const struct endpoint_login *login, const struct endpoint_ops *ops,
                             void *userdata);
struct endpoint *endpoint_free(struct endpoint *e);
DEFINE_CLEANUP(struct endpoint *, endpoint_free)

/* To be called when a call was refused because its token has expired: logs in again, on a new
 * connection. */
void endpoint_log_in_again(struct endpoint *e);

/* Whether the endpoint refused our user on its last connection. */
bool endpoint_is_refused(const struct endpoint *e);

/* Connects, unless it is connected, connecting, or waiting after a failure. */
void endpoint_want(struct endpoint *e);
/* Like endpoint_want(), but at @pace: see reach_hurry(). */
void endpoint_hurry(struct endpoint *e, nsec_t pace);

/* The connection to make calls on; NULL while it is not up. Call endpoint_kick() after making
 * calls, and after sending more messages of a call. */
struct rpc_conn *endpoint_rpc(const struct endpoint *e);
void endpoint_kick(struct endpoint *e);
/* Like endpoint_kick(), but at once; see stream_flush(). */
void endpoint_flush(struct endpoint *e);

/* Checks whether the other side of a connection that is up still answers. An endpoint that does
 * not answer @within that time is silent, until something comes from it or the connection is
 * given up. A suspected endpoint is silent in the same way. */
void endpoint_probe(struct endpoint *e, nsec_t within);
void endpoint_suspect(struct endpoint *e);
bool endpoint_is_silent(const struct endpoint *e);

/* Begins a new connection at once, if one is wanted, connecting or up, because the network has
 * changed. Do not call it from a handler. */
void endpoint_again(struct endpoint *e);

/* The address and port of the endpoint; "" while it is not up. */
void endpoint_at(const struct endpoint *e, char *out, size_t size);

/* Our own address on this connection; "" while it is not up. */
void endpoint_source(const struct endpoint *e, char *out, size_t size);

const char *endpoint_name(const struct endpoint *e);
