/*
 * One endpoint of the core, and our connection to it: connects when asked to, tries again after
 * a failure, logs in where there is a user to log in as, and tells when it is up or down. Keeps
 * an HTTP/2 PING going, so that a half-open connection is known within seconds.
 */
#pragma once

#include "base/url.h"
#include "loop/dial.h"
#include "rpc/conn.h"

struct endpoint;

/* Who we are to the core, where it asks; strings are borrowed. */
struct endpoint_login {
        const char *user, *password;
};

struct endpoint_ops {
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

/* Connects, unless it is connected, connecting, or waiting after a failure. */
void endpoint_want(struct endpoint *e);

/* The connection to make calls on; NULL while it is not up. endpoint_kick() after calls. */
struct rpc_conn *endpoint_rpc(const struct endpoint *e);
void endpoint_kick(struct endpoint *e);

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

/* Ends a connection that is of no use. */
void endpoint_drop(struct endpoint *e, const char *why);

const char *endpoint_name(const struct endpoint *e);
