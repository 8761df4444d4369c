#include "text.h"

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

void text_say(FILE *f, const char *fmt, ...)
{
        char line[4096], safe[4096 + 1024]; /* of what is escaped there is little */
        va_list ap;
        int n;

        va_start(ap, fmt);
        n = vsnprintf(line, sizeof(line), fmt, ap);
        va_end(ap);
        if (n >= 0)
                fprintf(f, "%s\n", utf8_shown(line, strlen(line), safe, sizeof(safe)));
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
