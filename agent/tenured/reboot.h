/*
 * Reboots a host on which something still runs that must not: through a helper that does
 * nothing else, and has no other privilege (tenure-reboot.service, tenured --rebooter). It
 * waits for a message on a socket in /run/tenure-reboot, and calls reboot(2), without stopping
 * or syncing anything.
 */
#pragma once

#include "base/base.h"

struct pid1;

#define REBOOT_SOCKET "/run/tenure-reboot/socket"

/* Asks the helper, or the service manager if there is no helper. Does not wait. @pid1 is
 * borrowed. */
void reboot_now(struct pid1 *pid1);

/* Whether a helper listens. */
bool reboot_is_ready(void);

/* tenured --rebooter: waits for the message. Returns a negative errno. */
must_check_ int reboot_helper(void);
