#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/le.h"

void buf_fini(struct buf *b)
{
        free(b->data);
        *b = (struct buf){0};
}

static bool grow(struct buf *b, size_t cap)
{
        uint8_t *data = realloc(b->data, cap);

        if (!data)
                return false;
        b->data = data;
        b->cap = cap;
        return true;
}

uint8_t *buf_make_room(struct buf *b, size_t n)
{
        size_t len = buf_len(b), cap;

        if (b->off > 0 && b->off >= b->cap / 2) {
                memmove(b->data, b->data + b->off, len);
                b->off = 0;
                b->end = len;
                if (b->cap - b->end >= n)
                        return b->data + b->end;
        }
        cap = max_of(b->cap * 2, b->end + n);
        cap = max_of(cap, (size_t) 64);
        if (!grow(b, cap)) {
                b->failed = true;
                return NULL;
        }
        return b->data + b->end;
}

void buf_expect(struct buf *b, size_t n)
{
        if (n > b->cap - b->end && n <= PTRDIFF_MAX - b->end)
                (void) !grow(b, b->end + n);
}

/* Two digits per division: the id of a lease (64 bits) takes ten divisions. */
char *decimal_put(char *end, uint64_t v)
{
        static const char pairs[] = "00010203040506070809"
                                    "10111213141516171819"
                                    "20212223242526272829"
                                    "30313233343536373839"
                                    "40414243444546474849"
                                    "50515253545556575859"
                                    "60616263646566676869"
                                    "70717273747576777879"
                                    "80818283848586878889"
                                    "90919293949596979899";

        for (; v >= 100; v /= 100)
                end = memcpy(end - 2, pairs + v % 100 * 2, 2);
        if (v >= 10)
                return memcpy(end - 2, pairs + v * 2, 2);
        *--end = (char) ('0' + v);
        return end;
}

static char *hex_put(char *end, uint64_t v)
{
        do
                *--end = "0123456789abcdef"[v & 15];
        while (v >>= 4);
        return end;
}

void buf_add_number(struct buf *b, uint64_t v, unsigned base)
{
        char text[DIGITS_OF_U64], *end = text + sizeof(text), *at;

        assert(base == 10 || base == 16);
        at = base == 10 ? decimal_put(end, v) : hex_put(end, v);
        buf_add(b, at, (size_t) (end - at));
}

void buf_add_u32(struct buf *b, uint32_t v)
{
        uint8_t le[4];

        le32_put(le, v);
        buf_add(b, le, sizeof(le));
}

void buf_add_u64(struct buf *b, uint64_t v)
{
        uint8_t le[8];

        le64_put(le, v);
        buf_add(b, le, sizeof(le));
}

void buf_add_bytes(struct buf *b, const void *p, size_t n)
{
        buf_add_varint(b, n);
        buf_add(b, p, n);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
        size_t room = 64; /* most texts are shorter, and so are formatted once */
        va_list ap;

        for (;;) {
                uint8_t *to = buf_reserve(b, room);
                int n;

                if (!to)
                        return;
                va_start(ap, fmt);
                n = vsnprintf((char *) to, room, fmt, ap);
                va_end(ap);
                assert(n >= 0);
                if ((size_t) n < room) {
                        b->end += (size_t) n;
                        return;
                }
                room = (size_t) n + 1;
        }
}

void buf_trim(struct buf *b)
{
        size_t len = buf_len(b);
        uint8_t *data;

        if (b->off == 0 || b->off < b->cap / 2)
                return;
        if (len == 0)
                return buf_fini(b);
        memmove(b->data, b->data + b->off, len);
        b->off = 0;
        b->end = len;
        data = realloc(b->data, len);
        if (data) {
                b->data = data;
                b->cap = len;
        }
}

uint8_t *buf_take(struct buf *b, size_t *ret_len)
{
        uint8_t *data = b->data;

        if (b->off > 0)
                memmove(data, data + b->off, buf_len(b));
        *ret_len = buf_len(b);
        *b = (struct buf){0};
        return data;
}

int view_take(struct view *v, size_t n, struct view *ret)
{
        if (v->len < n)
                return -EBADMSG;
        *ret = (struct view){.p = v->p, .len = n};
        v->p += n;
        v->len -= n;
        return 0;
}

int view_u8(struct view *v, uint8_t *ret)
{
        struct view b;
        int r = view_take(v, 1, &b);

        if (r < 0)
                return r;
        *ret = b.p[0];
        return 0;
}

int view_u32(struct view *v, uint32_t *ret)
{
        struct view b;
        int r = view_take(v, 4, &b);

        if (r < 0)
                return r;
        *ret = le32_get(b.p);
        return 0;
}

int view_u64(struct view *v, uint64_t *ret)
{
        struct view b;
        int r = view_take(v, 8, &b);

        if (r < 0)
                return r;
        *ret = le64_get(b.p);
        return 0;
}

int view_long_varint(struct view *v, uint64_t *ret)
{
        size_t n = min_of(v->len, (size_t) VARINT_MAX), i = 0;
        uint64_t x = 0;
        uint8_t c = 0x80;

        for (unsigned shift = 0; i < n && c >= 0x80; shift += 7) {
                c = v->p[i++];
                x |= (uint64_t) (c & 0x7f) << shift;
        }
        /* The tenth byte holds only the topmost bit; more would overflow. */
        if (c >= 0x80 || (i == VARINT_MAX && c > 1))
                return -EBADMSG;
        v->p += i;
        v->len -= i;
        *ret = x;
        return 0;
}

int view_bytes(struct view *v, struct view *ret)
{
        struct view at = *v;
        uint64_t n;
        int r;

        r = view_varint(&at, &n);
        if (r < 0)
                return r;
        if (n > at.len)
                return -EBADMSG;
        r = view_take(&at, (size_t) n, ret);
        if (r < 0)
                return r;
        *v = at;
        return 0;
}

uint8_t reader_u8(struct reader *rd)
{
        uint8_t v = 0;

        if (rd->r == 0)
                rd->r = view_u8(&rd->in, &v);
        return v;
}

uint32_t reader_u32(struct reader *rd)
{
        uint32_t v = 0;

        if (rd->r == 0)
                rd->r = view_u32(&rd->in, &v);
        return v;
}

uint64_t reader_u64(struct reader *rd)
{
        uint64_t v = 0;

        if (rd->r == 0)
                rd->r = view_u64(&rd->in, &v);
        return v;
}

struct view reader_take(struct reader *rd, size_t n)
{
        struct view v = {0};

        if (rd->r == 0)
                rd->r = view_take(&rd->in, n, &v);
        return v;
}

struct view reader_bytes(struct reader *rd)
{
        struct view v = {0};

        if (rd->r == 0)
                rd->r = view_bytes(&rd->in, &v);
        return v;
}
