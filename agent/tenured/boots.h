/* The list of this host's boots, in $STATE_DIRECTORY (systemd.exec(5)): after a power failure
 * the agent may take over the place that the previous boot held, but not that of a clone. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define BOOTS_MAX 1024 /* bytes of a list, with its end */

/* The id of this boot, and when it began. A container has no clock of its own; there it began
 * when the agent did. */
void boots_own(char id[static 64], struct boot_time *ret_began);

/* The boots before this one, newest last, with commas between them. Also records @own for the
 * next boot. */
void boots_load(const char *own, char boots[static BOOTS_MAX]);
