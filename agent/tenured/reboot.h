/*
 * The end of a host on which something that must not run still does: by a helper that does
 * nothing else, and may do nothing else (tenure-reboot.service, tenured --rebooter). It waits
 * for a word on a socket in /run/tenure-reboot, and calls reboot(2): nothing is stopped,
 * nothing is synced, nobody is asked.
 */
#pragma once

#include "base/base.h"

struct pid1;

#define REBOOT_SOCKET "/run/tenure-reboot/socket"

/* By the helper; where there is none by the service manager, borrowed. Does not wait. */
void reboot_now(struct pid1 *pid1);

/* Whether a helper listens. */
bool reboot_is_ready(void);

/* tenured --rebooter: waits until it is told. Returns a negative errno. */
must_check_ int reboot_helper(void);
