#include "utf8.h"

#include <stdio.h>

const char *utf8_shown(const void *text, size_t n, char *out, size_t size)
{
        const uint8_t *p = text, *end = p + n;
        size_t k = 0, cut = 0; /* cut: the last place with room for "..." */

        assert(size >= 8);
        while (p < end) {
                size_t len = utf8_printable(p, (size_t) (end - p)), need = len > 0 ? len : 4;

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

void utf8_vprint(char *out, size_t size, const char *fmt, va_list ap)
{
        int n = vsnprintf(out, size, fmt, ap);

        if (n < 0 || (size_t) n < size)
                return;
        /* Looks for the first byte of the last character, which may be incomplete. */
        for (size_t k = 1; k < size && k < 4; k++) {
                uint8_t *p = (uint8_t *) out + size - 1 - k;

                if ((*p & 0xc0) == 0x80)
                        continue;
                if (utf8_char(p, k) == 0)
                        *p = '\0';
                return;
        }
}

void utf8_print(char *out, size_t size, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        utf8_vprint(out, size, fmt, ap);
        va_end(ap);
}

void utf8_dbus_mend(void *text, size_t n)
{
        uint8_t *p = text;

        for (size_t i = 0, len; i < n; i += max_of(len, (size_t) 1)) {
                len = utf8_dbus(p + i, n - i);
                if (len == 0)
                        p[i] = '?';
        }
}
