/* What carries a TLS connection: a socket, as of SSL_set_fd(3), but one whose other side may be
 * gone without SIGPIPE, which OpenSSL leaves to the program. A library must not end its caller.
 */
#pragma once

#include "base/base.h"

struct ssl_st;

/* The socket stays the caller's. Returns 0 or -ENOMEM. */
must_check_ int tls_socket_set(struct ssl_st *ssl, int fd);
