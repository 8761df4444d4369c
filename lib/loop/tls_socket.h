/* The socket under a TLS connection, like SSL_set_fd(3), except that writing to it never raises
 * SIGPIPE, which OpenSSL leaves to the program. A library must not end its caller. */
#pragma once

#include "base/base.h"

struct ssl_st;

/* @fd stays the caller's. Returns 0 or -ENOMEM. */
must_check_ int tls_socket_set(struct ssl_st *ssl, int fd);

/* After SSL_read() wanted to read more: whether the socket was empty, so that more is announced
 * by an event. False: a record without data ended the read (a key update or a session ticket,
 * RFC 8446, 4.6), and the socket may hold more. */
bool tls_socket_is_empty(const struct ssl_st *ssl);
