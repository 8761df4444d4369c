#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void sink_stderr(int level, const char *const fields[], const char *text);

static log_sink_fn current_sink = sink_stderr;
static int current_level = LOG_INFO;

static const char *const level_names[] = {"emerg",   "alert",  "crit", "err",
                                          "warning", "notice", "info", "debug"};

static void sink_stderr(int level, const char *const fields[], const char *text)
{
        struct timespec ts;
        struct tm tm;
        char when[32];

        (void) fields;
        if (getenv("JOURNAL_STREAM") || getenv("INVOCATION_ID")) {
                fprintf(stderr, "<%d>%s\n", level, text);
                return;
        }
        clock_gettime(CLOCK_REALTIME, &ts);
        localtime_r(&ts.tv_sec, &tm);
        strftime(when, sizeof(when), "%H:%M:%S", &tm);
        fprintf(stderr, "%s.%03ld %-7s %s\n", when, ts.tv_nsec / 1000000, level_names[level],
                text);
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

void log_full(int level, const char *const fields[], const char *fmt, ...)
{
        char text[1024];
        va_list ap;

        if (level > current_level)
                return;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        current_sink(level, fields, text);
}

int log_level_from_string(const char *s)
{
        for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
                if (strcmp(s, level_names[i]) == 0)
                        return (int) i;
        return -1;
}

const char *log_level_to_string(int level)
{
        return level >= 0 && (size_t) level < ARRAY_SIZE(level_names) ? level_names[level]
                                                                      : NULL;
}
