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

/* A file that is being written piece by piece. */
struct backup {
        SHA2_CTX sha;
        uint32_t crc;
        uint64_t size; /* so far */
};

#define BACKUP_HEAD 16 /* bytes before the state */

/* The size of a file with a state of @state_len bytes. */
uint64_t backup_size(uint64_t state_len);

/* The size of a file, from its first bytes. Returns 0, or -EBADMSG if it is not such a file. */
must_check_ int backup_size_by_head(const uint8_t head[static BACKUP_HEAD], uint64_t *ret);

/* Append the parts before and after the state. All pieces of the state in between go through
 * backup_state(). */
void backup_begin(struct backup *b, uint64_t state_len, struct buf *out);
void backup_state(struct backup *b, struct view piece);
void backup_end(struct backup *b, struct buf *out);

/* What a file contains. */
struct backup_content {
        struct view state;                    /* borrowed */
        uint8_t digest[SHA256_DIGEST_LENGTH]; /* of the file */
        uint64_t index;                       /* the entry up to which it goes */
        int64_t revision;
        size_t n_keys, n_leases;
        char wrong[128]; /* if the file is whole, but not its state: why; a clause */
};

/* Checks a file. Returns 0, -EBADMSG or -ENOMEM. */
must_check_ int backup_check(struct view file, struct backup_content *ret);

/* Raises the revision of the state by @by, and compacts it up to there: whoever has seen later
 * revisions than the file has is refused, instead of waiting for new ones to reach those. The
 * new state is in @out, from where it is borrowed. Returns 0, -EOVERFLOW or -ENOMEM. */
must_check_ int backup_bump(struct backup_content *c, uint64_t by, struct buf *out);
