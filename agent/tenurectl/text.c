#include "text.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/utf8.h"

void text_add(struct buf *b, struct view v)
{
        const uint8_t *p = v.p;

        for (size_t i = 0, len; i < v.len; i += max_of(len, (size_t) 1)) {
                len = p[i] == '\\' ? 0 : utf8_printable(p + i, v.len - i);
                if (len == 0)
                        buf_printf(b, "\\x%02x", p[i]);
                else
                        buf_add(b, p + i, len);
        }
}

struct json_object *text_json(struct view v)
{
        cleanup_(buf_fini) struct buf b = {0};

        text_add(&b, v);
        return json_object_new_string_len(buf_len(&b) > 0 ? (const char *) b.data : "",
                                          (int) buf_len(&b));
}

void text_print(struct view v)
{
        cleanup_(buf_fini) struct buf b = {0};

        text_add(&b, v);
        if (buf_len(&b) > 0)
                fwrite(b.data, 1, buf_len(&b), stdout);
}

const char *text_shown(const char *text, char out[static TEXT_SHOWN])
{
        return utf8_shown(text, strlen(text), out, TEXT_SHOWN);
}

const char *text_cell(const char *text, char out[static TEXT_CELL])
{
        cleanup_(buf_fini) struct buf b = {0};

        for (const char *p = text; *p; p++)
                buf_printf(&b, *p == ' ' ? "\\x20" : "%c", *p);
        if (buf_len(&b) == 0)
                buf_add(&b, "-", 1);
        return utf8_shown(buf_head(&b), buf_len(&b), out, TEXT_CELL);
}

void json_put_text(struct json_object *o, const char *key, const char *text)
{
        json_object_object_add(o, key, json_object_new_string(text));
}

void json_put_number(struct json_object *o, const char *key, int64_t n)
{
        json_object_object_add(o, key, json_object_new_int64(n));
}

void json_put_id(struct json_object *o, const char *key, uint64_t id)
{
        char text[24] = "";

        if (id != 0)
                snprintf(text, sizeof(text), "%016" PRIx64, id);
        json_put_text(o, key, text);
}

void json_put_time(struct json_object *o, const struct timespec *t)
{
        json_put_number(o, "realtime_usec", (int64_t) t->tv_sec * 1000000 + t->tv_nsec / 1000);
}

const char *text_clock(const struct timespec *t, char out[static TEXT_CLOCK])
{
        struct tm tm;
        size_t n = strftime(out, TEXT_CLOCK, "%H:%M:%S", localtime_r(&t->tv_sec, &tm));

        snprintf(out + n, TEXT_CLOCK - n, ".%03u", (unsigned) (t->tv_nsec / 1000000 % 1000));
        return out;
}

#define TEXT_MAX 4096
#define SAFE_MAX (TEXT_MAX + 1024) /* few bytes are escaped */

static const char *line(char safe[static SAFE_MAX], const char *fmt, va_list ap) printf_(2, 0);
static const char *line(char safe[static SAFE_MAX], const char *fmt, va_list ap)
{
        char text[TEXT_MAX];
        int n = vsnprintf(text, sizeof(text), fmt, ap);

        return utf8_shown(text, n < 0 ? 0 : strlen(text), safe, SAFE_MAX);
}

void text_say(FILE *f, const char *fmt, ...)
{
        char safe[SAFE_MAX];
        va_list ap;

        va_start(ap, fmt);
        fprintf(f, "%s\n", line(safe, fmt, ap));
        va_end(ap);
}

static bool as_json;

void say_json(void)
{
        as_json = true;
}

int say(const char *fmt, ...)
{
        char safe[SAFE_MAX];
        va_list ap;
        size_t n;

        va_start(ap, fmt);
        n = strlen(line(safe, fmt, ap));
        va_end(ap);
        if (n > 0 && safe[n - 1] == '.') /* if the agent's or the core's sentence has one */
                safe[n - 1] = '\0';
        if (as_json) {
                struct json_object *o = json_object_new_object();

                json_put_text(o, "message", safe);
                fprintf(stderr, "%s\n",
                        json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE));
                json_object_put(o);
        } else {
                fprintf(stderr, "tenurectl: %s.\n", safe);
        }
        return -1;
}

/* Escapes one character of JSON that must not reach a terminal. Returns its length. */
static size_t add_escaped(struct buf *b, const uint8_t *p, size_t n)
{
        size_t len = utf8_char(p, n);
        unsigned u = len == 1   ? p[0]
                     : len == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
                     : len == 3 ? (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)
                                : 0xfffd; /* not a valid character */

        buf_printf(b, "\\u%04x", u);
        return max_of(len, (size_t) 1);
}

void text_add_json(struct buf *b, struct json_object *o, int flags)
{
        const char *text = json_object_to_json_string_ext(o, flags);
        const uint8_t *p = (const uint8_t *) text;
        size_t n = text ? strlen(text) : 0;

        for (size_t i = 0, len; i < n; i += len) {
                len = p[i] == '\n' ? 1 : utf8_printable(p + i, n - i);
                if (len > 0)
                        buf_add(b, p + i, len);
                else
                        len = add_escaped(b, p + i, n - i);
        }
        buf_add(b, "\n", 1);
}

void text_print_json(struct json_object *o, int flags)
{
        cleanup_(buf_fini) struct buf b = {0};

        text_add_json(&b, o, flags);
        if (buf_len(&b) > 0)
                fwrite(b.data, 1, buf_len(&b), stdout);
        json_object_put(o);
}
