/* The settings of the agent: read from the file and the command line, and reloaded. */
#pragma once

#include "agent.h"

/* The file, then what the command line says over it. Returns 0, or a negative errno with *@err.
 */
must_check_ int settings_read(struct options *o, const struct arguments *args,
                              struct conf_error *err);

/* TLS to the core; nothing where no endpoint wants it. Returns 0, or a negative errno and has
 * logged why. */
must_check_ int settings_tls(const struct options *o, struct tls **ret);

/* Those about flapping and mass failures come in force. */
void settings_steady(struct agent *a);

/* All that may change while the agent runs: as a whole, or not at all. */
void settings_reload(struct agent *a);
