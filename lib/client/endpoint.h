/* One endpoint of the core, and our connection to it: does with a real connection what
 * member/reach.h decides. Logs in if there is a user to log in as, and reports when the
 * endpoint is up or down. */
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
        /* The time, before any of these, and before calls on it are notified of anything; may
         * be NULL. */
        void (*at)(struct boot_time now, void *userdata);
        void (*up)(struct endpoint *e, void *userdata);
        /* The calls on it have ended with RPC_UNAVAILABLE already. */
        void (*down)(struct endpoint *e, const char *why, void *userdata);
        /* It is up, and has not answered a probe in time, or is suspected. */
        void (*silent)(struct endpoint *e, void *userdata);
};

must_check_ int endpoint_new(struct endpoint **ret, struct loop *l, struct resolver *rv,
                             const char *url, struct tls *tls,
                             const struct endpoint_login *login, const struct endpoint_ops *ops,
                             void *userdata);
struct endpoint *endpoint_free(struct endpoint *e);
DEFINE_CLEANUP(struct endpoint *, endpoint_free)

/* A call was refused for its token, which has an end: logs in again, on a new connection. */
void endpoint_log_in_again(struct endpoint *e);

/* It answered our login, when it was connected last, and does not let such a user in. */
bool endpoint_is_refused(const struct endpoint *e);

/* Connects, unless it is connected, connecting, or waiting after a failure. */
void endpoint_want(struct endpoint *e);

/* The connection to make calls on; NULL while it is not up. endpoint_kick() after calls. */
struct rpc_conn *endpoint_rpc(const struct endpoint *e);
void endpoint_kick(struct endpoint *e);
/* The same, at once; see stream_flush(). */
void endpoint_flush(struct endpoint *e);

/* Asks a connection that is up whether somebody is still there. One that does not say so within
 * that time is silent, until it says something or is given up; so is one that is suspected. */
void endpoint_probe(struct endpoint *e, nsec_t within);
void endpoint_suspect(struct endpoint *e);
bool endpoint_is_silent(const struct endpoint *e);

/* Begins a new connection at once, where one is wanted, connecting or up: the network has
 * changed. Not from inside a handler. */
void endpoint_again(struct endpoint *e);

/* The address and port that it is at; "" while it is not up. */
void endpoint_at(const struct endpoint *e, char *out, size_t size);

/* The address that we reach it from; "" while it is not up. */
void endpoint_source(const struct endpoint *e, char *out, size_t size);

const char *endpoint_name(const struct endpoint *e);
