#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int sink_stderr(int level, const char *const fields[], const char *text);

static log_sink_fn current_sink = sink_stderr;
static int current_level = LOG_INFO;
static size_t dropped;

static const char *const level_names[] = {"emerg",   "alert",  "crit", "err",
                                          "warning", "notice", "info", "debug"};

/* Others may have the same descriptor, so that it cannot be made non-blocking; what poll(2)
 * calls writable takes a line, of a pipe up to PIPE_BUF bytes. */
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

/* The length of the UTF-8 character (RFC 3629) that begins at @p; 0: it is none, or one that
 * controls a terminal. */
static size_t printable_char(const uint8_t *p, size_t n)
{
        size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

        if (len == 1)
                return p[0] >= ' ' && p[0] != 0x7f;
        if (len == 0 || len > n || p[0] > 0xf4)
                return 0;
        for (size_t i = 1; i < len; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
        if ((p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xe0 && p[1] < 0xa0) ||
            (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
            (p[0] == 0xf4 && p[1] >= 0x90))
                return 0; /* C1 controls; too long a form; surrogates; beyond Unicode */
        return len;
}

const char *log_printable(const void *text, size_t n, char *out, size_t size)
{
        const uint8_t *p = text, *end = p + n;
        size_t k = 0, cut = 0; /* cut: the last place with room for "..." */

        assert(size >= 8);
        while (p < end) {
                size_t len = printable_char(p, (size_t) (end - p)), need = len > 0 ? len : 4;

                if (k + need >= size) {
                        strcpy(out + cut, "...");
                        return out;
                }
                if (len > 0)
                        memcpy(out + k, p, len);
                else
                        snprintf(out + k, 5, "\\x%02x", *p);
                k += need;
                p += max_of(len, (size_t) 1);
                if (k + sizeof("...") <= size)
                        cut = k;
        }
        out[k] = '\0';
        return out;
}

size_t log_dropped(void)
{
        return dropped;
}

static void say(int level, const char *const fields[], const char *text)
{
        char missing[96];

        if (dropped > 0) {
                snprintf(missing, sizeof(missing),
                         "%zu log messages are missing here: nobody took them.", dropped);
                if (current_sink(LOG_WARNING, NULL, missing) == 0)
                        dropped = 0;
        }
        /* One that is missing for itself comes in no other place than the gap. */
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
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        say(level, fields, log_printable(text, strlen(text), line, sizeof(line)));
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
