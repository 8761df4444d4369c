/* The other side of a connection, as text. */
#pragma once

#include "base/base.h"

#define PEER_MAX 48

struct sockaddr_storage;

/* Writes the address without its port; an IPv4 address always in IPv4 notation; "" for a local
 * socket. */
void peer_address(const struct sockaddr_storage *a, char out[static PEER_MAX]);

#define PEER_SHOWN_MAX 80

/* With the port: "[::1]:2379", "192.0.2.1:2379"; for a local socket "unix:/run/core.sock". */
void peer_shown(const struct sockaddr_storage *a, char out[static PEER_SHOWN_MAX]);

/* A client of the local socket @fd, which has no address: "unix:4711", its process id. */
void peer_process(int fd, char out[static PEER_SHOWN_MAX]);
