/*
 * The client port: accepts connections, plain or TLS, and runs the services on them.
 *
 * What does not speak HTTP/2 in a few seconds, or leaves a unary request half sent, is ended;
 * nobody else notices.
 */
#pragma once

#include "loop/stream.h"
#include "service/api.h"

struct server;

/* @urls joined by commas; @tls for the https:// ones, borrowed. The reason of a failure is in
 * @err. */
must_check_ int server_new(struct server **ret, struct loop *l, struct api *api,
                           const char *urls, struct tls *tls, size_t request_max, char *err,
                           size_t err_size);
struct server *server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free)
