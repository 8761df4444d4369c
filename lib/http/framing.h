/*
 * Where a request and its parts end.
 *
 * A proxy between clients and us may have many clients on one connection. Then the end of one
 * client's request is where another's begins, and both the proxy and we have to see it at the
 * same place; so heads and chunks are accepted only in the one form that every reader
 * understands alike. Trailers are dropped.
 */
#pragma once

#include "base/buf.h"

static inline bool is_blank(uint8_t ch)
{
        return ch == ' ' || ch == '\t';
}

struct head {
        enum {
                HEAD_NONE, /* empty lines may stand before it */
                HEAD_REQUEST_LINE,
                HEAD_FIELDS,
        } at;
        uint64_t seen; /* the last byte in the low one; of the request line, the last 8 bytes */
};

/* Whether the next bytes of the head have a form that every reader understands alike (RFC 9112,
 * 2.2, 3 and 5.2; RFC 9110, 5.5). The parser, as Debian builds it, is no such check: it accepts
 * any byte for the LF after a CR, any four for "TTP/", a request line with more spaces or
 * without a version, fields that continue on the next line, and control characters in them; a
 * NUL would end a field that is read as text. A proxy that passed these on may have seen other
 * lines, or more of a field. */
bool head_is_plain(struct head *h, const char *text, size_t n);

enum body_at {
        BODY_OVER,
        BODY_CONTENT, /* its length is known */
        CHUNK_SIZE,
        CHUNK_EXTENSION,
        CHUNK_SIZE_LF,
        CHUNK_CONTENT,
        CHUNK_CR,
        CHUNK_LF,
        TRAILER_START,
        TRAILER,
        TRAILER_LF,
        LAST_LF,
};

/* Where a body ends: after so many bytes, or with its last chunk (RFC 9112, 6.3). */
struct body {
        enum body_at at;
        uint64_t left;   /* bytes of content: of the body, or of the chunk */
        unsigned digits; /* of the chunk's size, so far */
        size_t around;   /* bytes since the last content */
};

void body_begin(struct body *b, bool in_chunks, uint64_t length);

static inline bool body_is_over(const struct body *b)
{
        return b->at == BODY_OVER;
}

/* Reads from @p up to the end of the body, or to the end of the next piece of content, which
 * goes to *ret_content; else that is empty. *ret_n: how many bytes were read. Returns 0, or
 * -EBADMSG: where the body ends is ambiguous. */
must_check_ int body_read(struct body *b, struct view p, size_t *ret_n,
                          struct view *ret_content);
