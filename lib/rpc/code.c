#include "rpc/code.h"

#include <ctype.h>

const char *rpc_code_text(enum rpc_code code)
{
        static const char *const texts[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                            "9", "10", "11", "12", "13", "14", "15", "16"};

        return texts[code];
}

void rpc_percent_encode(const char *s, struct buf *out)
{
        for (; *s; s++) {
                unsigned char c = (unsigned char) *s;

                if (c >= ' ' && c <= '~' && c != '%')
                        buf_add_u8(out, c);
                else
                        buf_printf(out, "%%%02X", c);
        }
}

static int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        c = (char) tolower((unsigned char) c);
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void rpc_percent_decode(const char *s, size_t n, struct buf *out)
{
        for (size_t i = 0; i < n; i++) {
                int hi = s[i] == '%' && n - i > 2 ? hex_digit(s[i + 1]) : -1;
                int lo = hi >= 0 ? hex_digit(s[i + 2]) : -1;

                if (lo >= 0) {
                        buf_add_u8(out, (uint8_t) (hi * 16 + lo));
                        i += 2;
                } else {
                        buf_add_u8(out, (uint8_t) s[i]);
                }
        }
}

nsec_t rpc_timeout_parse(const void *text, size_t n)
{
        static const struct {
                char unit;
                nsec_t ns;
        } units[] = {{'H', 3600 * NSEC_PER_SEC}, {'M', 60 * NSEC_PER_SEC}, {'S', NSEC_PER_SEC},
                     {'m', NSEC_PER_MSEC},       {'u', NSEC_PER_USEC},     {'n', 1}};
        const uint8_t *p = text;
        nsec_t v = 0;

        if (n < 2 || n > 9) /* at most 8 digits */
                return 0;
        for (size_t i = 0; i + 1 < n; i++) {
                if (p[i] < '0' || p[i] > '9')
                        return 0;
                v = v * 10 + (p[i] - '0');
        }
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
                if (units[i].unit == p[n - 1])
                        return __builtin_mul_overflow(v, units[i].ns, &v)
                                       ? INT64_MAX
                                       : max_of(v, (nsec_t) 1);
        return 0;
}
