/* What a request for the agent's metrics asks for (RFC 9112). */
#pragma once

#include "base/base.h"

/* Reads the first line of @request. Returns the status line of the answer, after the version:
 * "200 OK" for the metrics. *@ret_body is whether the answer has a body: not to HEAD. */
const char *metrics_judge(const char *request, bool *ret_body);
