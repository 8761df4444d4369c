/* The address of a connection's other side, for code that has no stream (loop/stream.h). */
#pragma once

#include "base/base.h"

#define PEER_MAX 48

struct sockaddr_storage;

/* Writes the address without its port; an IPv4 address always in IPv4 notation; "" for a local
 * socket. */
void peer_address(const struct sockaddr_storage *a, char out[static PEER_MAX]);
