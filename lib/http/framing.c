#include "http/framing.h"

#include "base/le.h"

#define DIGITS_MAX 16                  /* of a chunk's size, which fits into 64 bits */
#define AROUND_MAX ((size_t) 64 << 10) /* extensions of one chunk, or all trailers */
#define VERSION UINT64_C(0x485454502f) /* "HTTP/" */

static bool is_line_end(uint8_t ch)
{
        return ch == '\r' || ch == '\n';
}

static bool is_text(uint8_t ch)
{
        return (ch >= ' ' && ch != 0x7f) || ch == '\t';
}

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Returns 0 if none of the eight bytes is below @least, or DEL; else the lowest bit that is set
 * is in the first of those. For a byte b below 0x80, b - n sets the high bit if b is below n;
 * "& ~w" drops bytes that had the high bit before. What a byte borrows changes only later ones.
 */
static uint64_t not_text_8(uint64_t w, uint8_t least)
{
        uint64_t below = (w - EACH(least)) & ~w, deleted = w ^ EACH(0x7f);

        return (below | ((deleted - EACH(1)) & ~deleted)) & EACH(0x80);
}

/* How many bytes at the beginning are neither below @least nor DEL. */
static size_t run_len(const uint8_t *p, size_t n, uint8_t least)
{
        size_t i = 0;

        for (; n - i >= 8; i += 8) {
                uint64_t not_text = not_text_8(le64_get(p + i), least);

                if (not_text)
                        return i + (size_t) __builtin_ctzll(not_text) / 8;
        }
        while (i < n && p[i] >= least && p[i] != 0x7f)
                i++;
        return i;
}

/* How many bytes may follow in the same line, of those that may stand in it; 0: the first may
 * not. In the request line, one space is between its parts. */
static size_t part_len(const struct head *h, const uint8_t *p, size_t n)
{
        if (h->at == HEAD_REQUEST_LINE)
                return *p == ' ' ? (uint8_t) h->seen != ' ' : run_len(p, n, ' ' + 1);
        return *p == '\t' ? 1 : run_len(p, n, ' ');
}

/* A version is at the end of the request line; the parser checks the rest of it. */
static bool end_line(struct head *h)
{
        bool good = h->at != HEAD_REQUEST_LINE || (h->seen >> 24 & 0xffffffffff) == VERSION;

        if (h->at == HEAD_REQUEST_LINE)
                h->at = HEAD_FIELDS;
        return good;
}

/* Past the request line, only the last byte matters. */
static void remember(struct head *h, const uint8_t *past, size_t n)
{
        size_t i = h->at == HEAD_REQUEST_LINE ? min_of(n, sizeof(h->seen)) : 1;

        for (; i > 0; i--)
                h->seen = h->seen << 8 | *(past - i);
}

bool head_is_plain(struct head *h, const char *text, size_t n)
{
        const uint8_t *p = (const uint8_t *) text, *past = p + n;

        while (p < past) {
                uint8_t ch = *p, before = (uint8_t) h->seen;
                size_t len = 1;

                if ((before == '\r' && ch != '\n') || (before == '\n' && is_blank(ch)))
                        return false;
                if (is_line_end(ch)) {
                        if (!end_line(h))
                                return false;
                } else {
                        if (h->at == HEAD_NONE)
                                h->at = HEAD_REQUEST_LINE;
                        len = part_len(h, p, (size_t) (past - p));
                        if (len == 0)
                                return false;
                }
                p += len;
                remember(h, p, len);
        }
        return true;
}

void body_begin(struct body *b, bool in_chunks, uint64_t length)
{
        *b = (struct body){.left = length};
        if (in_chunks)
                *b = (struct body){.at = CHUNK_SIZE};
        else if (length > 0)
                b->at = BODY_CONTENT;
}

static int digit_of(uint8_t ch)
{
        int letter = ch | 0x20;

        if (ch >= '0' && ch <= '9')
                return ch - '0';
        return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* "1f", then the end of the line or ";name=value". Spaces around the number are refused: some
 * implementations accept them and others do not. */
static int in_size(struct body *b, uint8_t ch)
{
        int digit = digit_of(ch);

        if (digit >= 0) {
                b->left = b->left << 4 | (uint64_t) digit;
                return ++b->digits > DIGITS_MAX ? -EBADMSG : 0;
        }
        b->at = ch == ';' ? CHUNK_EXTENSION : CHUNK_SIZE_LF;
        return b->digits > 0 && (ch == ';' || ch == '\r') ? 0 : -EBADMSG;
}

/* A byte of a line. After the CR that ends it, state @lf expects the LF. */
static int in_line(struct body *b, uint8_t ch, enum body_at lf)
{
        if (ch != '\r')
                return is_text(ch) ? 0 : -EBADMSG;
        b->at = lf;
        return 0;
}

static int expect(struct body *b, uint8_t ch, char expected, enum body_at then)
{
        b->at = then;
        return ch == (uint8_t) expected ? 0 : -EBADMSG;
}

/* Takes a byte that is not content. */
static int around(struct body *b, uint8_t ch)
{
        switch (b->at) {
        case CHUNK_SIZE:
                return in_size(b, ch);
        case CHUNK_EXTENSION:
                return in_line(b, ch, CHUNK_SIZE_LF);
        case CHUNK_SIZE_LF:
                return expect(b, ch, '\n', b->left > 0 ? CHUNK_CONTENT : TRAILER_START);
        case CHUNK_CR:
                return expect(b, ch, '\r', CHUNK_LF);
        case CHUNK_LF:
                return expect(b, ch, '\n', CHUNK_SIZE);
        case TRAILER_START:
                if (is_blank(ch)) /* some implementations would see a continued line */
                        return -EBADMSG;
                b->at = TRAILER;
                return in_line(b, ch, LAST_LF);
        case TRAILER:
                return in_line(b, ch, TRAILER_LF);
        case TRAILER_LF:
                return expect(b, ch, '\n', TRAILER_START);
        case LAST_LF:
                return expect(b, ch, '\n', BODY_OVER);
        case BODY_OVER:
        case BODY_CONTENT:
        case CHUNK_CONTENT:
                break;
        }
        assert(false); /* body_read() handles these */
        return 0;
}

static size_t take_content(struct body *b, struct view p, struct view *ret)
{
        *ret = (struct view){p.p, (size_t) min_of((uint64_t) p.len, b->left)};
        b->left -= ret->len;
        if (b->left == 0)
                b->at = b->at == CHUNK_CONTENT ? CHUNK_CR : BODY_OVER;
        b->digits = 0;
        b->around = 0;
        return ret->len;
}

int body_read(struct body *b, struct view p, size_t *ret_n, struct view *ret_content)
{
        size_t n = 0;
        int r;

        *ret_content = (struct view){0};
        for (; n < p.len && !body_is_over(b); n++) {
                if (b->at == BODY_CONTENT || b->at == CHUNK_CONTENT) {
                        n += take_content(b, (struct view){p.p + n, p.len - n}, ret_content);
                        break;
                }
                r = ++b->around > AROUND_MAX ? -EBADMSG : around(b, p.p[n]);
                if (r < 0)
                        return r;
        }
        *ret_n = n;
        return 0;
}
