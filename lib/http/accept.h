/* One thing: which of two kinds of an answer a client prefers, by its header Accept (RFC 9110,
 * 12.5.1). */
#pragma once

#include "base/buf.h"

/* How much a client wants @type, "text/plain", in one of @versions, joined by commas, or where
 * it names none: 0, not at all, to 1000. Ranges of types, such as "text/" and a star, do not
 * count: who sends them takes what comes. */
unsigned http_wants(const char *accept, const char *type, const char *versions);
