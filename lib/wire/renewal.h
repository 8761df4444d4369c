/*
 * Encodes and decodes LeaseKeepAliveRequest and LeaseKeepAliveResponse, which are more frequent
 * than all other messages together, and the header with which all answers begin. Does so
 * without protobuf-c, whose tables take twenty times as long for these few numbers. The bytes
 * are the same; unusual encodings are left to pb_unpack(). Pure.
 */
#pragma once

#include "wire/pb.h"

/* Reads a request that contains only the lease's id; false: it contains something else. */
bool renewal_read(struct view m, int64_t *ret_lease);

/* Appends @p, packed, as pb_append() would; its header must be set. Allocation failure shows in
 * buf_error(). */
void renewal_answer_append(struct buf *b, const Pb__LeaseKeepAliveResponse *p);

/* Appends @h as field 1, which is the header in every answer. Allocation failure as above. */
void header_append(struct buf *b, const Pb__ResponseHeader *h);
