/*
 * tenurectl metrics --http in a socket unit with Accept=no: one process that accepts, and one
 * for each request. Not PID 1 accepts, as with Accept=yes: there 200 connections in two seconds
 * disable the socket for good, and what makes it bear more delays all else that PID 1 does.
 */
#pragma once

#include "base/base.h"

/* Returns 1: standard input and output are a connection, be it that they were one before, since
 * no listening socket was passed to us, or that we are a child of who goes on accepting.
 * Returns -1, having said why, if nothing can be accepted. */
must_check_ int metrics_accept(void);
