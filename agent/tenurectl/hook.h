/*
 * Runs a command for each event of `tenurectl watch`, one after the other. The event is in its
 * environment and, as JSON, on its standard input.
 *
 * A command that fails stops nothing; one that cannot be executed ends the watch. Events that
 * come faster than it runs wait, up to a bound; those beyond it are skipped, which is an event
 * of its own in their place. A signal ends the watch after the command that runs; a second one
 * is passed on to that.
 */
#pragma once

#include <json-c/json.h>

#include "base/base.h"

struct hook;

/* From now on signals are taken here. @argv is borrowed. Returns 0, or -1 after printing why.
 */
must_check_ int hook_new(struct hook **ret, char **argv);
/* Waits for the command that runs. */
struct hook *hook_free(struct hook *h);

/* Takes @o. */
void hook_add(struct hook *h, struct json_object *o);

/* Becomes readable when hook_run() has to be called. */
must_check_ int hook_fd(const struct hook *h);
/* Hears signals, and runs the next command. Returns true, and the exit status, at the end. */
must_check_ bool hook_run(struct hook *h, int *ret_status);
