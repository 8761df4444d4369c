/*
 * tenurectl metrics --http in a socket unit with Accept=no: one process accepts, and forks one
 * for each request. With Accept=yes, PID 1 would accept: then 200 connections in two seconds
 * disable the socket for good, and limits that are high enough to prevent that delay everything
 * else that PID 1 does.
 */
#pragma once

#include "base/base.h"

/* Returns 1 if standard input and output are a connection: either they were one from the start,
 * since no listening socket was passed to us, or this is the child for one request. Returns -1,
 * after reporting why, if nothing can be accepted. */
must_check_ int metrics_accept(void);
