/* Who has a lock: what the holder writes into its key, and what the keys in the line say. */
#pragma once

#include <json-c/json.h>

#include "core.h"

#define LOCK_KEY_MAX 1024 /* NAME/LEASE */

struct lock_holder {
        char key[LOCK_KEY_MAX];
        int64_t created; /* its create_revision */
        char text[400];  /* for a person: "h2 since 2026-11-30T03:10:00Z" */
        bool waits;      /* @own stands in the line, too, or is the holder's */
};

/* The value of a key, for people: that the lock is taken now, here, for @command. The caller
 * owns it. */
struct json_object *lock_holder_value(const char *node, const char *command);

enum { LOCK_HOLDER_E_NOBODY = 1 };

/* Asks the core who has the lock @name. @own: a key, to see whether it is there. Returns 0;
 * LOCK_HOLDER_E_NOBODY; or -1, after printing why if not @quiet. */
must_check_ int lock_holder_read(const struct core_options *core, const char *name,
                                 const char *own, bool quiet, struct lock_holder *ret);
