/* UTF-8 (RFC 3629), and which characters may stand unescaped in a line of text or in JSON. */
#pragma once

#include <stdarg.h>

#include "base/base.h"

/* Returns the length of the character at @p, where there are @n >= 1 bytes; 0 if it is not
 * valid. */
static inline size_t utf8_char(const uint8_t *p, size_t n)
{
        size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

        if (len <= 1)
                return len;
        if (len > n || p[0] > 0xf4)
                return 0;
        for (size_t i = 1; i < len; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
        if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
            (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
                return 0; /* too long a form; surrogates; beyond Unicode */
        return len;
}

/* Like utf8_char(), but returns 0 also for a character that controls a terminal, ends the line,
 * or reverses the order in which the rest of the line is shown. */
static inline size_t utf8_printable(const uint8_t *p, size_t n)
{
        size_t len = utf8_char(p, n);

        if (len == 1)
                return p[0] >= ' ' && p[0] != 0x7f;
        if (len == 2 && p[0] == 0xc2 && p[1] < 0xa0)
                return 0; /* C1 controls */
        if (len == 3 && p[0] == 0xe2 &&
            ((p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) || /* U+2028 to U+202E */
             (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)))  /* U+2066 to U+2069 */
                return 0;
        return len;
}

/* Like utf8_char(), but returns 0 also for what sd-bus and dbus-daemon accept in no string:
 * NUL, and Unicode's noncharacters. The bus disconnects a program that sends it such a text. */
static inline size_t utf8_dbus(const uint8_t *p, size_t n)
{
        size_t len = utf8_char(p, n);

        if (len == 1)
                return p[0] != '\0';
        if (len == 3 && p[0] == 0xef &&
            ((p[1] == 0xb7 && p[2] >= 0x90 && p[2] <= 0xaf) || /* U+FDD0 to U+FDEF */
             (p[1] == 0xbf && p[2] >= 0xbe)))                  /* U+FFFE and U+FFFF */
                return 0;
        if (len == 4 && (p[1] & 0xf) == 0xf && p[2] == 0xbf && p[3] >= 0xbe)
                return 0; /* the last two of the other planes */
        return len;
}

/* Replaces each of the @n bytes at @text that belongs to no character that utf8_dbus() accepts
 * by '?'. */
void utf8_dbus_mend(void *text, size_t n);

/* As snprintf(3), but cuts off between characters. */
void utf8_print(char *out, size_t size, const char *fmt, ...) printf_(3, 4);
void utf8_vprint(char *out, size_t size, const char *fmt, va_list ap) printf_(3, 0);

/* Writes the @n bytes at @text, which come from outside, to @out so that they can stand in a
 * line: control characters and invalid UTF-8 become \\xHH, and "..." replaces the part that
 * does not fit. @size is at least 8. Returns @out. The log does this to each line as a whole;
 * use this to shorten a part that may be long. */
const char *utf8_shown(const void *text, size_t n, char *out, size_t size);
