/* A log sink that writes to the journal, with the fields of a message, in the journal's own
 * protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). sd_journal_sendv(3) waits for a
 * journal that does not read; this does not. */
#pragma once

#include "base/base.h"

/* Sends log messages to the journal, with this identifier (journalctl -t), where standard error
 * is connected to it. @identifier must stay valid forever. */
void journal_use(const char *identifier);

/* The sink, to @path; for journal_use() and tests. Returns 0 or a negative errno. */
must_check_ int journal_send(const char *path, const char *identifier, int level,
                             const char *const fields[], const char *text);
