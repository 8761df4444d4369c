/* The order to stay out until `tenurectl join`: it survives a crash, a restart and a stop of
 * the agent in $RUNTIME_DIRECTORY, which ends with the boot, and a boot in $STATE_DIRECTORY. */
#pragma once

#include "runtime.h"

enum maintenance { MAINTENANCE_NONE, MAINTENANCE_BOOT, MAINTENANCE_PERSISTENT };

/* The order that an earlier run got. */
enum maintenance maintenance_load(void);

/* Sets the order. The file that outlives a boot is on a disk, which may hang;
 * maintenance_persist() writes it once no place is held. */
void maintenance_set(enum maintenance m);
/* Returns 0, or a negative errno if the next boot may find another order; that is logged as
 * well. */
must_check_ int maintenance_persist(enum maintenance m);

/* "", "boot" or "persistent". */
const char *maintenance_name(enum maintenance m);
