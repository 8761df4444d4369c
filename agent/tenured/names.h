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
        char target_file[RUNTIME_PATH_MAX]; /* there while the target may be up; "": not kept */
        bool target_kept;
        bool waiting; /* settings wait for the place to be given back */
};

/* Puts what an earlier life holds in the place of what the settings say, and tells so.
 * @boot_id: places of earlier boots are none. */
void names_init(struct names *n, struct options *o, const struct keep *k, const char *boot_id);

/* Whether the target may be up. */
void names_run(struct names *n, const struct options *o, bool up);

/* For the guard: the target that may be up. False: none is known. */
bool names_target(const char *file, char out[static 256]);

/* What a change of such a setting takes; NULL: it is none of them. */
const char *names_when(const char *key);
