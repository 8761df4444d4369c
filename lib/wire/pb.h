/*
 * The generated protobuf-c messages (rpc.proto), without their warnings, and three
 * conveniences.
 *
 * pb_unpack_X() and friends do not exist: call pb__x__unpack() and pb__x__free_unpacked() of
 * the generated header.
 */
#pragma once

#include "base/buf.h"
#include "wire/rpc.pb-c.h"

/* Appends @m, packed. Allocation failure shows in buf_error(). */
static inline void pb_append(struct buf *b, const ProtobufCMessage *m)
{
        size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *to = buf_reserve(b, n > 0 ? n : 1);

        if (to)
                buf_commit(b, protobuf_c_message_pack(m, to));
}

/* A bytes field that borrows @p. */
static inline ProtobufCBinaryData pb_bytes(const void *p, size_t n)
{
        return (ProtobufCBinaryData){.len = n, .data = (uint8_t *) (uintptr_t) p};
}

/* Frees an unpacked message of any type; accepts NULL and returns NULL. */
static inline void *pb_free(void *m)
{
        if (m)
                protobuf_c_message_free_unpacked(m, NULL);
        return NULL;
}

static inline void pb_freep(void *m)
{
        pb_free(*(void **) m);
}
