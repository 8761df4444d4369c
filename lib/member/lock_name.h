/*
 * What the name of a lock may be, and which keys belong to it: NAME/LEASE-IN-HEX, as etcdctl,
 * the Lock service and libtenure make them. Pure.
 */
#pragma once

#include "base/base.h"

#define LOCK_NAME_MOST 900 /* bytes; its keys are still short enough for a request */

/* What is wrong with @name, as the end of a sentence that begins with "the name of a lock";
 * NULL: nothing. */
const char *lock_name_problem(const char *name);

/* Whether the key is that of a holder or a waiter of the lock @name: one that begins with
 * NAME/, without another slash. The keys of the lock NAME/X are in the same range, and are not.
 */
bool lock_name_has(const char *name, const void *key, size_t len);
