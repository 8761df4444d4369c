/* Sends a message to a helper that runs as a service of its own: a datagram to its socket, to
 * which only root may send. It does not wait for the helper. */
#pragma once

#include "base/base.h"

/* Whether somebody listens at @path. */
bool helper_is_up(const char *path);

/* Returns 0, or a negative errno: nobody listens, or the socket's queue is full. */
must_check_ int helper_send(const char *path, const void *word, size_t n);

/* For the helper: listens at @path, where it removes the socket of an earlier run. @flags:
 * SOCK_NONBLOCK or 0. Returns the socket or a negative errno. */
must_check_ int helper_listen(const char *path, int flags);
