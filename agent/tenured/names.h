/*
 * The settings that a held place depends on: Cluster=, NodeName=, NodeId=, and HeldTarget=, the
 * unit that is active while it is held. New values take effect only once the place is given
 * back and that unit is down: otherwise the place would be lost, and what is bound to the old
 * unit would run on with nobody to stop it.
 */
#pragma once

#include "keep.h"
#include "options.h"
#include "runtime.h"

#define NAMES_TARGET "/run/tenure/target" /* where the unit's RuntimeDirectory= puts it */

struct names {
        char target_file[RUNTIME_PATH_MAX]; /* exists while the target may be up; "": not
                                             * kept */
        bool target_kept;
        struct fencing_config fencing_kept; /* in that file, too */
        bool waiting; /* new settings wait until the place is given back */
};

/* Replaces the settings by those of the place that an earlier run holds, and logs it. @boot_id:
 * places of earlier boots do not count. */
void names_init(struct names *n, struct options *o, const struct keep *k, const char *boot_id);

/* @up: whether the target may be up. Returns whether what the guard has to know of it has
 * changed. */
bool names_run(struct names *n, const struct options *o, bool up);

/* For the guard: the target that may be up, and how the agent fences it, which its command line
 * may say. False if none is known. Leaves @cfg alone if that is not known. */
bool names_target(const char *file, char out[static 256], struct fencing_config *cfg);

/* When a change of the setting @key takes effect; NULL if it does not depend on the place. */
const char *names_when(const char *key);
