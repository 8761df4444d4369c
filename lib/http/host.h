/* Tells whether a request is meant for this server, by the name in its header Host. */
#pragma once

#include "base/buf.h"

/* Whether @host is one of @names, which are joined by commas. @host is as in the header or an
 * absolute target, with or without a port. Every host matches if @names is empty or contains
 * "*". */
bool host_is_listed(const char *names, struct view host);
