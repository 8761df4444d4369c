/*
 * The client port: accepts connections, plain or TLS, and runs the services on them: gRPC over
 * HTTP/2, and over HTTP/1.1 etcd's JSON gateway and what probes read.
 *
 * A connection that does not speak either within a few seconds, or leaves a unary request half
 * sent, is ended, without any effect on the others. Connections, and what is held for them,
 * have bounds; when they are reached, a connection that does nothing, or does not read, makes
 * room.
 */
#pragma once

#include "etcd/api.h"
#include "loop/stream.h"

struct server;

/* Connections at ports for probes, of all addresses: they are not among those of clients, so
 * that who may reach such a port alone keeps nobody from the others. */
#define SERVER_PROBES_MAX 256

struct server_config {
        const char *urls; /* joined by commas */
        /* The same, for those who ask how this replica is, and can ask for nothing else:
         * metrics and probes, over HTTP/1.1. */
        const char *probe_urls;
        struct tls *tls;   /* for the https:// ones, borrowed */
        const char *hosts; /* that requests of HTTP/1.1 without TLS may be for, joined by
                            * commas; "", and "*" among them: any */
        size_t request_max;
        /* Of all clients, and of those of one address. */
        size_t connections_max, connections_of_address;
        /* Bytes held for all clients, half of it for those of one address; and of what is kept
         * for them as many again. */
        size_t memory_max;
        /* Runs the node: again, where requests had waited behind others and are taken after it
         * has run. NULL: nobody does. Borrowed. */
        struct loop_hook *runs;
};

/* The reason of a failure is in @err. */
must_check_ int server_new(struct server **ret, struct loop *l, struct api *api,
                           const struct server_config *cfg, char *err, size_t err_size);
struct server *server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free)
