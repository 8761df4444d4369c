/* The socket under a TLS connection, like SSL_set_fd(3), except that writing to it never raises
 * SIGPIPE, which OpenSSL leaves to the program. A library must not end its caller. */
#pragma once

#include "base/base.h"

struct ssl_st;

/* @fd stays the caller's. Returns 0 or -ENOMEM. */
must_check_ int tls_socket_set(struct ssl_st *ssl, int fd);
