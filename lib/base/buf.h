/*
 * A growable run of bytes: appended at the end, consumed at the front.
 *
 * Embedded, not thread-safe. A failed allocation is remembered: later appends do nothing, and
 * buf_error() reports it, so that code that writes many small pieces checks once. The functions
 * that append small pieces are inline: an answer in JSON calls them fifty times.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct buf {
        uint8_t *data; /* owned */
        size_t off;    /* first byte not consumed yet */
        size_t end;    /* one past the last byte */
        size_t cap;
        bool failed;
};

/* A borrowed run of bytes with a cursor, for parsing. */
struct view {
        const uint8_t *p;
        size_t len;
};

/* Without the NUL at its end. */
static inline struct view view_str(const char *text)
{
        return (struct view){(const uint8_t *) text, strlen(text)};
}

void buf_fini(struct buf *b);

static inline void buf_clear(struct buf *b)
{
        b->off = b->end = 0;
        b->failed = false;
}

/* Empties a buffer that is used again: keeps its memory unless that is more than @keep. */
static inline void buf_reuse(struct buf *b, size_t keep)
{
        if (b->cap > keep)
                buf_fini(b);
        buf_clear(b);
}

static inline size_t buf_len(const struct buf *b)
{
        return b->end - b->off;
}

static inline uint8_t *buf_head(const struct buf *b)
{
        return b->data + b->off;
}

/* buf_reserve() for a buffer with too little room. */
uint8_t *buf_make_room(struct buf *b, size_t n);

/* Makes room for @n more bytes. Returns where they go, valid until the next call, or NULL if
 * out of memory. */
static inline uint8_t *buf_reserve(struct buf *b, size_t n)
{
        return b->cap - b->end >= n ? b->data + b->end : buf_make_room(b, n);
}

/* Makes room for @n more bytes, if there is enough memory: a large buffer that grows step by
 * step may be copied at each step. */
void buf_expect(struct buf *b, size_t n);

/* Adds to the content @n bytes that the caller has written where buf_reserve() pointed. */
static inline void buf_commit(struct buf *b, size_t n)
{
        assert(b->cap - b->end >= n);
        b->end += n;
}

static inline void buf_add(struct buf *b, const void *p, size_t n)
{
        uint8_t *to = n > 0 ? buf_reserve(b, n) : NULL;

        if (!to)
                return;
        memcpy(to, p, n);
        b->end += n;
}

/* Appends all @n bytes or nothing. Returns 0, or -ENOMEM, which the buffer does not
 * remember. */
must_check_ static inline int buf_try_add(struct buf *b, const void *p, size_t n)
{
        bool failed = b->failed;

        if (n > 0 && !buf_reserve(b, n)) {
                b->failed = failed;
                return -ENOMEM;
        }
        buf_add(b, p, n);
        return 0;
}

/* Without the NUL at its end. */
static inline void buf_add_text(struct buf *b, const char *text)
{
        buf_add(b, text, strlen(text));
}

void buf_add_number(struct buf *b, uint64_t v, unsigned base); /* of 10 or 16, as text */
/* Writes decimal text that ends before @end, where there is room for DIGITS_OF_U64 characters.
 * Returns where the text begins. */
#define DIGITS_OF_U64 20
char *decimal_put(char *end, uint64_t v);

static inline void buf_add_u8(struct buf *b, uint8_t v)
{
        buf_add(b, &v, 1);
}

void buf_add_u32(struct buf *b, uint32_t v); /* little endian */
void buf_add_u64(struct buf *b, uint64_t v); /* little endian */

/* Writes LEB128, as protobuf does, to @to, which has room for VARINT_MAX bytes. Returns where
 * the bytes end. */
#define VARINT_MAX 10
static inline uint8_t *varint_put(uint8_t *to, uint64_t v)
{
        for (; v >= 0x80; v >>= 7)
                *to++ = (uint8_t) (v | 0x80);
        *to++ = (uint8_t) v;
        return to;
}

static inline void buf_add_varint(struct buf *b, uint64_t v)
{
        uint8_t *to = buf_reserve(b, VARINT_MAX);

        if (to)
                b->end = (size_t) (varint_put(to, v) - b->data);
}

/* A varint length, then the bytes. */
void buf_add_bytes(struct buf *b, const void *p, size_t n);
void buf_printf(struct buf *b, const char *fmt, ...) printf_(2, 3);

/* Drops @n bytes at the front. */
static inline void buf_consume(struct buf *b, size_t n)
{
        assert(n <= buf_len(b));
        b->off += n;
        if (b->off == b->end)
                b->off = b->end = 0;
}

/* Frees the memory of dropped bytes if that is at least half of the buffer. */
void buf_trim(struct buf *b);

/* Returns 0, or -ENOMEM if an append since the last buf_clear() failed. */
must_check_ static inline int buf_error(const struct buf *b)
{
        return b->failed ? -ENOMEM : 0;
}

/* Hands the bytes over to the caller, which frees them; the buffer is empty afterwards. */
uint8_t *buf_take(struct buf *b, size_t *ret_len);

/* Readers: each takes a value from the front of @v. Returns 0, or -EBADMSG if @v ends too
 * early. A view of bytes points into @v's memory. */
must_check_ int view_u8(struct view *v, uint8_t *ret);
must_check_ int view_u32(struct view *v, uint32_t *ret);
must_check_ int view_u64(struct view *v, uint64_t *ret);
must_check_ int view_take(struct view *v, size_t n, struct view *ret);
must_check_ int view_bytes(struct view *v, struct view *ret);

/* view_varint() for more than one byte. */
must_check_ int view_long_varint(struct view *v, uint64_t *ret);

/* Most tags and lengths are one byte. */
must_check_ static inline int view_varint(struct view *v, uint64_t *ret)
{
        if (v->len == 0 || v->p[0] >= 0x80)
                return view_long_varint(v, ret);
        *ret = v->p[0];
        v->p++;
        v->len--;
        return 0;
}

/* Reads field by field, to be checked once at the end: after the first failure, which @r keeps,
 * every field is 0 or empty. */
struct reader {
        struct view in;
        int r; /* 0, or -EBADMSG; a caller may set another error */
};

uint8_t reader_u8(struct reader *rd);
uint32_t reader_u32(struct reader *rd);
uint64_t reader_u64(struct reader *rd);
struct view reader_take(struct reader *rd, size_t n);
struct view reader_bytes(struct reader *rd);

/* Fails the reader if @sound is false. */
static inline void reader_check(struct reader *rd, bool sound)
{
        if (rd->r == 0 && !sound)
                rd->r = -EBADMSG;
}
