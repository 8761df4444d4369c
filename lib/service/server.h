/*
 * The client port: accepts connections, plain or TLS, and runs the services on them.
 *
 * What does not speak HTTP/2 in a few seconds, or leaves a unary request half sent, is ended;
 * nobody else notices. Connections, and what is held for them, have bounds; when they are
 * reached, one that does nothing, or takes nothing, makes room.
 */
#pragma once

#include "loop/stream.h"
#include "service/api.h"

struct server;

struct server_config {
        const char *urls; /* joined by commas */
        struct tls *tls;  /* for the https:// ones, borrowed */
        size_t request_max;
        /* Of all clients, and of one address. */
        size_t connections_max, connections_of_address;
        /* Bytes held for all clients, half of it for those of one address; and of what is kept
         * for them as many again. */
        size_t memory_max;
};

/* The reason of a failure is in @err. */
must_check_ int server_new(struct server **ret, struct loop *l, struct api *api,
                           const struct server_config *cfg, char *err, size_t err_size);
struct server *server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free)
