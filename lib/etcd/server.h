/*
 * The client port: accepts connections, plain or TLS, and runs the services on them: gRPC over
 * HTTP/2, and over HTTP/1.1 etcd's JSON gateway and the resources for probes.
 *
 * A connection that speaks neither within a few seconds, or leaves a unary request half sent,
 * is ended, without any effect on the others. The number of connections, and the memory held
 * for them, is bounded; when a bound is reached, a connection that does nothing, or does not
 * read, is ended for others.
 */
#pragma once

#include "etcd/api.h"
#include "loop/stream.h"

struct server;

/* Connections at ports for probes, of all addresses together: they do not count among those of
 * clients, so that a host that can reach only such a port cannot use up the clients'
 * connections. */
#define SERVER_PROBES_MAX 256

struct server_config {
        const char *urls; /* separated by commas */
        /* URLs for monitoring, and nothing else: metrics and probes, over HTTP/1.1. */
        const char *probe_urls;
        struct tls *tls;   /* for the https:// ones, borrowed */
        const char *hosts; /* the hosts that HTTP/1.1 requests without TLS may name, separated
                            * by commas; "" or "*": any */
        size_t request_max;
        /* For all clients, and for the clients of one address. */
        size_t connections_max, connections_of_address;
        /* Bytes held for all clients, half of that for the clients of one address; and the same
         * again for what is kept for them. */
        size_t memory_max;
        /* The hook that runs the node; started again if requests that waited behind others are
         * taken after it has run. NULL: none. Borrowed. */
        struct loop_hook *runs;
};

/* The reason of a failure is in @err. */
must_check_ int server_new(struct server **ret, struct loop *l, struct api *api,
                           const struct server_config *cfg, char *err, size_t err_size);
struct server *server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free)
