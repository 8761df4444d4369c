/*
 * The log: one sentence a line, with a level, and with fields for journalctl(1).
 *
 * lib/LAYERS says which folders may log; agent/ logs an event once, where it is decided. The
 * default sink writes to standard error, with the "<N>" prefix of sd-daemon(3) when systemd
 * reads it; bus/ installs one that speaks the journal's own protocol. One process-wide sink and
 * level; called from the loop's thread only.
 *
 * Nothing here waits for the reader: a host whose journal hangs must still give up its place in
 * time. Messages that cannot be written now are dropped and counted, and the next one that is
 * written is preceded by a line with their number.
 */
#pragma once

#include <syslog.h>

#include "base/base.h"

/* @fields: "KEY=value" strings, borrowed for the call, ended by NULL; NULL where there are
 * none. Must not block. Returns 0, or a negative errno when the message could not be
 * written. */
typedef int (*log_sink_fn)(int level, const char *const fields[], const char *text);

void log_set_sink(log_sink_fn sink);
void log_set_level(int level); /* LOG_ERR ... LOG_DEBUG; messages above it are dropped */
int log_get_level(void);
void log_full(int level, const char *const fields[], const char *fmt, ...) printf_(3, 4);

/* How many messages were dropped since the last one that was written. */
size_t log_dropped(void);

/* Writes to @fd, which belongs to a log, without waiting: everything or, if there is no room,
 * nothing. Returns 0 or a negative errno. */
must_check_ int log_write(int fd, const void *bytes, size_t n);

#define log_error(...) log_full(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) log_full(LOG_WARNING, NULL, __VA_ARGS__)
#define log_notice(...) log_full(LOG_NOTICE, NULL, __VA_ARGS__)
#define log_info(...) log_full(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) log_full(LOG_DEBUG, NULL, __VA_ARGS__)
