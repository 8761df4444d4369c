/*
 * A word to a helper of ours that runs as a service of its own: a datagram to its socket, which
 * root alone may send. Nobody waits for it.
 */
#pragma once

#include "base/base.h"

/* Whether somebody listens at @path. */
bool word_is_heard(const char *path);

/* Returns 0 or a negative errno: nobody listens, or too much waits there already. */
int word_send(const char *path, const void *word, size_t n);

/* The helper's side; what an earlier one has left at @path goes. @flags: SOCK_NONBLOCK or 0.
 * Returns the socket or a negative errno. */
must_check_ int word_listen(const char *path, int flags);
