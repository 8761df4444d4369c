#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static int sink_stderr(int level, const char *const fields[], const char *text);

static log_sink_fn current_sink = sink_stderr;
/* In libtenure -1: a library reports errors to its caller and writes nothing to the program's
 * stderr. */
#ifndef LOG_LEVEL_FIRST
#define LOG_LEVEL_FIRST LOG_INFO
#endif
static int current_level = LOG_LEVEL_FIRST;
static size_t dropped;

static const char *const level_names[] = {"emerg",   "alert",  "crit", "err",
                                          "warning", "notice", "info", "debug"};

/* The descriptor may be shared with other processes, so it cannot be made non-blocking. When
 * poll(2) calls it writable, it takes a line; a pipe takes up to PIPE_BUF bytes. */
int log_write(int fd, const void *bytes, size_t n)
{
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t r = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (r < 0 && errno == ENOTSOCK) {
                if (poll(&p, 1, 0) < 1 || !(p.revents & POLLOUT))
                        return -EAGAIN;
                r = write(fd, bytes, n);
        }
        return r < 0 ? -errno : 0;
}

static int sink_stderr(int level, const char *const fields[], const char *text)
{
        struct timespec ts;
        char line[1200], when[32];
        struct tm tm;
        int n;

        (void) fields;
        if (getenv("JOURNAL_STREAM") || getenv("INVOCATION_ID")) {
                n = snprintf(line, sizeof(line), "<%d>%s\n", level, text);
        } else {
                clock_gettime(CLOCK_REALTIME, &ts);
                localtime_r(&ts.tv_sec, &tm);
                strftime(when, sizeof(when), "%H:%M:%S", &tm);
                n = snprintf(line, sizeof(line), "%s.%03ld %-7s %s\n", when,
                             ts.tv_nsec / 1000000, level_names[level], text);
        }
        return log_write(STDERR_FILENO, line, (size_t) n);
}

void log_set_sink(log_sink_fn sink)
{
        current_sink = sink ? sink : sink_stderr;
}

void log_set_level(int level)
{
        current_level = level;
}

int log_get_level(void)
{
        return current_level;
}

size_t log_dropped(void)
{
        return dropped;
}

static void say(int level, const char *const fields[], const char *text)
{
        char missing[96];

        if (dropped > 0) {
                snprintf(
                        missing, sizeof(missing),
                        "%zu log messages are missing here: they could not be written in time.",
                        dropped);
                if (current_sink(LOG_WARNING, NULL, missing) == 0)
                        dropped = 0;
        }
        /* Until the report of the gap is written, no later line is, so that the report stands
         * where the gap is. */
        if (dropped > 0 || current_sink(level, fields, text) < 0)
                dropped++;
}

void log_full(int level, const char *const fields[], const char *fmt, ...)
{
        char text[1024], line[1024];
        va_list ap;

        if (level > current_level)
                return;
        va_start(ap, fmt);
        utf8_vprint(text, sizeof(text), fmt, ap);
        va_end(ap);
        say(level, fields, utf8_shown(text, strlen(text), line, sizeof(line)));
}
