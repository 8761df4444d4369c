/*
 * The generated protobuf-c messages (rpc.proto), without their warnings, and the only way to
 * unpack one.
 *
 * protobuf-c recurses as deep as a message nests, and expands two bytes to a hundred, so the
 * sender would choose how much stack and memory we need. pb_unpack() walks over the bytes
 * first, with a stack of its own, and refuses a message that would need too much; no other code
 * calls protobuf-c's unpack (.ci/layers enforces it). Pure; the cost is a pass over the bytes.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "wire/rpc.pb-c.h"

/* How deep messages may nest: 128 transactions, each in an operation of the next, which etcd's
 * own limit of operations allows, and their puts. */
#define PB_DEPTH_MAX 300

/* The lease id in a put that names its lease; no lease has this id. So a core that ignores the
 * name, as etcd does, refuses the put instead of attaching the key to no lease. */
#define PB_LEASE_BY_NAME INT64_C(-1)

/* Unpacks @bytes, which are copied, into a message of @type. @ret is a pointer to a pointer to
 * its struct, which the caller frees with pb_free(). Returns 0; -EBADMSG: the bytes are not
 * such a message; -E2BIG: it nests deeper than PB_DEPTH_MAX, would take far more memory than
 * bytes, or has more than 256 fields that are not known; or -ENOMEM. */
must_check_ int pb_unpack(const ProtobufCMessageDescriptor *type, struct view bytes, void *ret);

/* Like pb_unpack(), for at most @max messages, on all levels together; -E2BIG if there are
 * more.
 * @ret_cost: roughly the memory that it takes. */
must_check_ int pb_unpack_few(const ProtobufCMessageDescriptor *type, struct view bytes,
                              size_t max, size_t *ret_cost, void *ret);

/* Like pb_unpack(), for a command of the log; the memory is from @a and ends with it. How much
 * memory a message takes, and which fields are known, differs between versions and machines, so
 * only its depth counts here: every replica refuses the same commands, by the bytes alone (I4).
 * The replica that took the command from a client has unpacked it by pb_unpack(). */
must_check_ int pb_unpack_logged(struct arena *a, const ProtobufCMessageDescriptor *type,
                                 struct view bytes, void *ret);

/* Only the check before unpacking: 0, -EBADMSG or -E2BIG. Bytes that pass it may still fail to
 * unpack. */
must_check_ int pb_check(const ProtobufCMessageDescriptor *type, struct view bytes);

/* Appends @m, packed. Allocation failure shows in buf_error(). */
static inline void pb_append(struct buf *b, const ProtobufCMessage *m)
{
        size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *to = buf_reserve(b, n > 0 ? n : 1);

        if (to)
                buf_commit(b, protobuf_c_message_pack(m, to));
}

/* Appends @m as a field of another message: its tag, its length, and it. */
static inline void pb_append_field(struct buf *b, unsigned tag, const ProtobufCMessage *m)
{
        size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *begin = buf_reserve(b, 2 * VARINT_MAX + n), *to;

        if (!begin)
                return;
        to = varint_put(varint_put(begin, tag), n);
        buf_commit(b, (size_t) (to - begin) + protobuf_c_message_pack(m, to));
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
