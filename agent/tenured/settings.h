/* The settings of the agent: read from the file and the command line, and read once more. */
#pragma once

#include "agent.h"

/* The file, then the command line over it; ends the process for --help and --version. Returns
 * 0, or a negative errno with *@err. */
must_check_ int settings_parse(struct options *o, int argc, char **argv, bool *ret_test,
                               struct conf_error *err);

/* TLS to the core; nothing where no endpoint wants it. Returns 0, or a negative errno and has
 * told why. */
must_check_ int settings_tls(const struct options *o, struct tls **ret);

/* Those about flapping and mass failures come in force. */
void settings_steady(struct agent *a);

/* All that may change while the agent runs: as a whole, or not at all. */
void settings_reload(struct agent *a);
