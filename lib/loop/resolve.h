/*
 * Resolves names to addresses, without stopping the loop: numeric ones at once, others in
 * threads of their own, a few beside each other (getaddrinfo(3)). The last address of a name is
 * kept, and is the answer when DNS does not answer within a moment, or only with errors; a late
 * answer of DNS counts for the next query.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <sys/socket.h>

#include "base/url.h"
#include "loop/worker.h"

struct resolver;
struct resolve_query;

#define ADDRESSES_MAX 8 /* of one name; more than those are not tried */

struct inet_address {
        struct sockaddr_storage addr;
        socklen_t len;
};

struct inet_addresses {
        struct inet_address a[ADDRESSES_MAX];
        size_t n;
};

/* The address of @u, which is a socket of this host. */
void inet_address_local(const struct url *u, struct inet_address *ret);

bool inet_address_is(const struct inet_address *a, const struct inet_address *b);

/* The order of RFC 8305, section 4: as they are, but family by family in turn, so that one
 * family that leads nowhere does not come before all of the other. */
void inet_addresses_alternate(struct inet_addresses *a);

/* @r: 0 and at least 1 address, to be tried in this order; or a negative errno and NULL. */
typedef void (*resolve_fn)(int r, const struct inet_addresses *a, void *userdata);

must_check_ int resolver_new(struct resolver **ret, struct loop *l);
struct resolver *resolver_free(struct resolver *r);
DEFINE_CLEANUP(struct resolver *, resolver_free)

/* Calls @fn with the answer, perhaps before this returns; then *@ret is NULL. Otherwise *@ret
 * is for resolve_cancel(), and valid until @fn is called. */
must_check_ int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
                        struct resolve_query **ret);

/* Tells the resolver the last known numeric address of @u, which it keeps until DNS answers.
 * Ignored if @at is not numeric. */
void resolver_know(struct resolver *rv, const struct url *u, const struct url *at);

/* @targets: host:port of each record, joined by commas, in the order of RFC 2782; borrowed.
 * There is at least 1 record; otherwise @r is -ENOENT. */
typedef void (*resolve_srv_fn)(int r, const char *targets, void *userdata);

/* Like resolve(), for the SRV records of @name. */
must_check_ int resolve_srv(struct resolver *rv, const char *name, resolve_srv_fn fn,
                            void *userdata, struct resolve_query **ret);

/* @fn will not be called. Must be called before the resolver is freed. Accepts NULL; returns
 * NULL. */
struct resolve_query *resolve_cancel(struct resolve_query *q);
