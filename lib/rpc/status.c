#include "rpc/status.h"

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
