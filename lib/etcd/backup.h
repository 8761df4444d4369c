/*
 * The state as a file: what Maintenance/Snapshot streams and `tenure-core --restore` reads.
 *
 *     "TENSNAP1" length:u64 state CRC-32C of the state:u32 zeroes
 *
 * padded to whole blocks of 512 bytes, and then the SHA-256 of all that, as etcd's files end;
 * etcdctl checks it. Pure.
 */
#pragma once

#include <sha2.h>

#include "base/buf.h"

/* A file that is written piece by piece. */
struct backup {
        SHA2_CTX sha;
        uint32_t crc;
        uint64_t size; /* so far */
};

#define BACKUP_HEAD 16 /* bytes before the state */

/* How large the file of such a state is. */
uint64_t backup_size(uint64_t state_len);

/* The size of a file by its first bytes. Returns 0, or -EBADMSG if it is not such a file. */
must_check_ int backup_size_by_head(const uint8_t head[static BACKUP_HEAD], uint64_t *ret);

/* Appends what comes before the state, or after it; all pieces of the state between the two go
 * through backup_state(). */
void backup_begin(struct backup *b, uint64_t state_len, struct buf *out);
void backup_state(struct backup *b, struct view piece);
void backup_end(struct backup *b, struct buf *out);

/* Checks a file's bytes; lends the state in it, and returns the entry up to which it goes.
 * Returns 0, -EBADMSG or -ENOMEM. */
must_check_ int backup_check(struct view file, struct view *ret_state, uint64_t *ret_index,
                             int64_t *ret_revision, size_t *ret_n_keys, size_t *ret_n_leases);
