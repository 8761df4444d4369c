/*
 * Names to addresses, without stopping the loop: numeric ones at once, others in a worker's
 * thread (getaddrinfo(3)).
 */
#pragma once

#include <sys/socket.h>

#include "base/url.h"
#include "loop/worker.h"

struct resolver;
struct resolve_query;

/* @r: 0, or a negative errno and no address. */
typedef void (*resolve_fn)(int r, const struct sockaddr *addr, socklen_t addr_len,
                           void *userdata);

must_check_ int resolver_new(struct resolver **ret, struct loop *l);
struct resolver *resolver_free(struct resolver *r);
DEFINE_CLEANUP(struct resolver *, resolver_free)

/* Answers through @fn, perhaps before it returns; *@ret, NULL then, is for resolve_cancel(),
 * and good until @fn. */
must_check_ int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
                        struct resolve_query **ret);

/* @targets: host:port of each record, joined by commas, in the order in which RFC 2782 wants
 * them tried; borrowed. Every answer has 1 record at least; -ENOENT where there is none. */
typedef void (*resolve_srv_fn)(int r, const char *targets, void *userdata);

/* As resolve(), for the SRV records of @name. */
must_check_ int resolve_srv(struct resolver *rv, const char *name, resolve_srv_fn fn,
                            void *userdata, struct resolve_query **ret);

/* @fn will not be called. Accepts NULL; returns NULL. */
struct resolve_query *resolve_cancel(struct resolve_query *q);
