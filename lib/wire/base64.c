#include "wire/base64.h"

static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#define BAD 0x80 /* not a value of six bits */

/* The value of each character, in either alphabet. */
static const uint8_t values[256] = {
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, 62,  BAD, 62,  BAD, 63,
        52,  53,  54,  55,  56,  57,  58,  59,  60,  61,  BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, 0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,
        15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  BAD, BAD, BAD, BAD, 63,
        BAD, 26,  27,  28,  29,  30,  31,  32,  33,  34,  35,  36,  37,  38,  39,  40,
        41,  42,  43,  44,  45,  46,  47,  48,  49,  50,  51,  BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,
};

void base64_write(uint8_t *to, const uint8_t *p, size_t n)
{
        for (; n >= 3; n -= 3, p += 3, to += 4) {
                uint32_t v = (uint32_t) p[0] << 16 | (uint32_t) p[1] << 8 | p[2];

                to[0] = (uint8_t) letters[v >> 18];
                to[1] = (uint8_t) letters[v >> 12 & 63];
                to[2] = (uint8_t) letters[v >> 6 & 63];
                to[3] = (uint8_t) letters[v & 63];
        }
        if (n == 0)
                return;
        to[0] = (uint8_t) letters[p[0] >> 2];
        to[1] = (uint8_t) letters[(p[0] << 4 | (n > 1 ? p[1] >> 4 : 0)) & 63];
        to[2] = n > 1 ? (uint8_t) letters[p[1] << 2 & 63] : '=';
        to[3] = '=';
}

static size_t past_breaks(struct view text, size_t i)
{
        while (i < text.len && (text.p[i] == '\r' || text.p[i] == '\n'))
                i++;
        return i;
}

/* Checks what follows @n characters of a group of four, where the padding begins. *@ret_bad is
 * where it stops being valid. */
static int padding(struct view text, size_t i, unsigned n, size_t *ret_bad)
{
        *ret_bad = i;
        if (n < 2)
                return -EBADMSG;
        i = past_breaks(text, i + 1);
        if (n == 2) {
                *ret_bad = i;
                if (i == text.len || text.p[i] != '=')
                        return -EBADMSG;
                i = past_breaks(text, i + 1);
        }
        *ret_bad = i;
        return i < text.len ? -EBADMSG : 0;
}

int base64_read(struct view text, uint8_t *to, size_t *ret_len, size_t *ret_bad)
{
        uint8_t *begin = to;
        uint32_t v = 0;
        unsigned n = 0; /* characters of the current group of four */
        size_t i = 0, first = 0;

        for (;;) {
                if (n == 0) {
                        for (; text.len - i >= 4; i += 4, to += 3) {
                                const uint8_t *p = text.p + i;
                                uint8_t a = values[p[0]], b = values[p[1]], c = values[p[2]],
                                        d = values[p[3]];

                                if ((a | b | c | d) & BAD)
                                        break;
                                v = (uint32_t) a << 18 | (uint32_t) b << 12 |
                                    (uint32_t) c << 6 | d;
                                to[0] = (uint8_t) (v >> 16);
                                to[1] = (uint8_t) (v >> 8);
                                to[2] = (uint8_t) v;
                        }
                        v = 0;
                }
                i = past_breaks(text, i);
                if (i == text.len)
                        break;
                if (text.p[i] == '=') {
                        int r = padding(text, i, n, ret_bad);

                        if (r < 0)
                                return r;
                        break;
                }
                if (values[text.p[i]] & BAD) {
                        *ret_bad = i;
                        return -EBADMSG;
                }
                if (n == 0)
                        first = i;
                v = v << 6 | values[text.p[i++]];
                if (++n < 4)
                        continue;
                *to++ = (uint8_t) (v >> 16);
                *to++ = (uint8_t) (v >> 8);
                *to++ = (uint8_t) v;
                n = 0;
        }
        *ret_bad = first;
        if (n == 1)
                return -EBADMSG; /* six bits are no whole byte */
        if (n >= 2)
                *to++ = (uint8_t) (n == 2 ? v >> 4 : v >> 10);
        if (n == 3)
                *to++ = (uint8_t) (v >> 2);
        *ret_len = (size_t) (to - begin);
        return 0;
}
