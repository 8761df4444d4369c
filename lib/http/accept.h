/* Tells which of two representations a client prefers, by its header Accept (RFC 9110, 12.5.1).
 */
#pragma once

#include "base/buf.h"

/* How much a client wants @type, such as "text/plain": from 0, not at all, to 1000. A range of
 * @accept that names a version counts only if the version is one of @versions, which are joined
 * by commas. Wildcards such as "text/" and a star do not count: a client that sends them
 * accepts anything. */
unsigned http_wants(const char *accept, const char *type, const char *versions);
