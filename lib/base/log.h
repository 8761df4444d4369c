/*
 * What the programs say: one sentence a line, a level, and fields for whoever searches the
 * journal.
 *
 * lib/ logs at debug only; agent/ logs once, where the decision falls. The default sink writes
 * to standard error, with the "<N>" prefix of sd-daemon(3) when systemd reads it; bus/ installs
 * one that speaks the journal's own protocol. One process-wide sink and level; called from the
 * loop's thread only.
 *
 * Nothing here waits for who reads it: a host whose journal hangs has to let go of its place
 * all the same. What nobody takes now is dropped and counted, and the next line that goes
 * through is preceded by one that tells how many are missing.
 */
#pragma once

#include <syslog.h>

#include "base/base.h"

/* @fields: "KEY=value" strings, borrowed for the call, ended by NULL; NULL where there are
 * none. Must not block. Returns 0, or a negative errno when it could not be said. */
typedef int (*log_sink_fn)(int level, const char *const fields[], const char *text);

void log_set_sink(log_sink_fn sink);
void log_set_level(int level); /* LOG_ERR ... LOG_DEBUG; messages above it are dropped */
int log_get_level(void);
void log_full(int level, const char *const fields[], const char *fmt, ...) printf_(3, 4);

/* How many messages nobody has taken since the last one that went through. */
size_t log_dropped(void);

/* Writes to @fd, a log's, without waiting: all of it, or, should there be no room, nothing.
 * Returns 0 or a negative errno. */
must_check_ int log_write(int fd, const void *bytes, size_t n);

#define log_error(...) log_full(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) log_full(LOG_WARNING, NULL, __VA_ARGS__)
#define log_notice(...) log_full(LOG_NOTICE, NULL, __VA_ARGS__)
#define log_info(...) log_full(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) log_full(LOG_DEBUG, NULL, __VA_ARGS__)

/* Writes the @n bytes at @text, which somebody else chose, to @out so that they can stand in a
 * line: control characters and what is no UTF-8 as \\xHH, and "..." for what does not fit.
 * @size is at least 8. Returns @out. log_full() does this to each line as a whole; a part that
 * may be long is cut with it first. */
const char *log_printable(const void *text, size_t n, char *out, size_t size);

/* Names as systemd has them ("debug" ... "emerg"); -1 for an unknown one. */
int log_level_from_string(const char *s);
const char *log_level_to_string(int level);
