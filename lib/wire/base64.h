/* Bytes as base64 (RFC 4648): written in the standard alphabet with padding; read in that or
 * the one for URLs, mixed too, with padding or without, and with line breaks anywhere. Pure. */
#pragma once

#include "base/buf.h"

#define BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes the BASE64_LEN(@n) characters for @n bytes at @p to @to. */
void base64_write(uint8_t *to, const uint8_t *p, size_t n);

/* Decodes @text to @to, where there is room for 3 bytes for each 4 characters begun. Returns 0,
 * or -EBADMSG with the position of the first invalid character. */
must_check_ int base64_read(struct view text, uint8_t *to, size_t *ret_len, size_t *ret_bad);
