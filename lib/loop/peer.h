/* Who has connected to us, for those that have no stream (loop/stream.h). */
#pragma once

#include "base/base.h"

#define PEER_MAX 48

struct sockaddr_storage;

/* Its address, without a port, an IPv4 address always as such; "" of a socket of this host. */
void peer_address(const struct sockaddr_storage *a, char out[static PEER_MAX]);
