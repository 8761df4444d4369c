/* One thing: whether a request was meant for this server, by the name in its header Host. */
#pragma once

#include "base/buf.h"

/* Whether @host, as the header or an absolute target has it, with a port or without, is one of
 * @names, which are joined by commas. With "*" among them, or with none, every host is. */
bool host_is_listed(const char *names, struct view host);
