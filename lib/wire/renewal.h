/*
 * Renewals as bytes: LeaseKeepAliveRequest and LeaseKeepAliveResponse, of which there are more
 * than of all other messages together, without protobuf-c, whose tables cost twenty times as
 * much as these few numbers; and the header, which all answers begin with. The bytes are the
 * same; what looks unusual is left to pb_unpack(). Pure.
 */
#pragma once

#include "wire/pb.h"

/* A request that is its lease's number and nothing else. */
bool renewal_read(struct view m, int64_t *ret_lease);

/* Appends @p, packed, as pb_append() would; its header is there. Allocation failure shows in
 * buf_error(). */
void renewal_answer_append(struct buf *b, const Pb__LeaseKeepAliveResponse *p);

/* Appends @h as field 1, which it is of each answer. Allocation failure as above. */
void header_append(struct buf *b, const Pb__ResponseHeader *h);
