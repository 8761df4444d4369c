/* Decides who may change something over D-Bus: root, the agent's own user, and whoever polkit
 * allows (polkit(8)). Nothing here waits: a bus or a polkit that does not answer must not delay
 * a heartbeat. */
#pragma once

#include "callers.h"

/* Does what was asked for: answers @m and returns 0 or more, or sets @error and returns a
 * negative errno. */
typedef int (*authorized_fn)(sd_bus_message *m, void *userdata, sd_bus_error *error);

/* Calls @go if the sender of @m may do @action; answers the call with an error otherwise. A
 * method's handler returns the result. @details: names and values for polkit's rules,
 * action.lookup() in polkit(8), ended by NULL; copied. */
#define AUTHORIZE_DETAILS_MAX 6
#define AUTHORIZE_DETAIL_MAX 256 /* one that is longer is cut */
must_check_ int authorize(struct callers *c, sd_bus_message *m, const char *action,
                          const char *const details[], authorized_fn go, void *userdata);
