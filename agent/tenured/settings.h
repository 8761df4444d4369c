/* The settings of the agent: read from the file and the command line, and reloaded. */
#pragma once

#include "agent.h"

/* Reads the file, then the command line, which overrides it. Returns 0, or a negative errno
 * with *@err. */
must_check_ int settings_read(struct options *o, const struct arguments *args,
                              struct conf_error *err);

/* TLS to the core; *@ret is NULL if no endpoint uses it. Returns 0, or a negative errno that
 * was logged. */
must_check_ int settings_tls(const struct options *o, struct tls **ret);

/* Applies the settings about flapping and mass failures. */
void settings_steady(struct agent *a);

/* Reloads all settings that may change while the agent runs: all of them or, after an error,
 * none. */
void settings_reload(struct agent *a);
