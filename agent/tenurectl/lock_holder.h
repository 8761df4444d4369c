/* Who has a lock: the value that a holder writes into its key, and how the keys in the line are
 * read. */
#pragma once

#include <json-c/json.h>

#include "core.h"

#define LOCK_KEY_MAX 1024 /* NAME/LEASE */

struct lock_holder {
        char key[LOCK_KEY_MAX];
        int64_t created; /* its create_revision */
        char text[400];  /* for operators: "h2 since 2026-11-30T03:10:00Z" */
        bool waits;      /* the key @own is in the line, or is the holder's */
};

/* Makes the value of a key, which people read: when, on which host and for which @command the
 * lock was taken. The caller owns it. */
struct json_object *lock_holder_value(const char *node, const char *command);

enum { LOCK_HOLDER_E_NOBODY = 1 };

/* Asks the core who has the lock @name, and whether the key @own exists. Returns 0;
 * LOCK_HOLDER_E_NOBODY; or -1, after printing why if not @quiet. */
must_check_ int lock_holder_read(const struct core_options *core, const char *name,
                                 const char *own, bool quiet, struct lock_holder *ret);
