/*
 * libraft's messages as bytes on a peer link, and our own frames beside them.
 *
 *     frame = type:u8 payload
 *
 * Decoding trusts nothing: every length is checked, and memory that raft would own on success
 * is freed on failure. libraft's own struct versions stay behind this interface. Pure.
 */
#pragma once

#include <raft.h>

#include "base/base.h"
#include "base/buf.h"

enum frame_type {
        FRAME_RAFT = 1,  /* one raft message */
        FRAME_READ_PING, /* term:u64 seq:u64: leader to all: am I still the leader? (ReadIndex,
                            Raft thesis 6.4) */
        FRAME_READ_PONG, /* term:u64 seq:u64 */
        FRAME_READ_ASK,  /* id:u64: follower to leader: from which index may I read? */
        FRAME_READ_TELL, /* id:u64 index:u64 lease_time:u64 */
        FRAME_PROPOSE, /* term:u64 life:u64 n:u64 priority:u8 commands: follower to leader, the
                          n-th of that life */
        FRAME_BEACON,  /* term:u64 clock:u64 lease_time:u64: leader to all, each heartbeat
                        (lease_clock.h) */
        FRAME_BEACON_ACK,   /* term:u64 clock:u64: answer to a beacon */
        FRAME_TIME_ASK,     /* term:u64: new leader to all: which lease time do you know? With
                             * term 0 it is an introduction (introduction.h) */
        FRAME_CHANGE,       /* request:u64 what:u8 id:u64 address: to the leader: change the
                             * members */
        FRAME_CHANGED,      /* request:u64 outcome:u64: answer to a change */
        FRAME_REMOVED,      /* index:u64: to a peer that is not a member, as of that entry */
        FRAME_TIME_TELL,    /* term:u64 of_term:u64 lease_time:u64 */
        FRAME_SNAPSHOT,     /* term:u64 index:u64 total:u64 offset:u64 bytes: a part of an
                             * InstallSnapshot, which is too large for one frame. Its bytes are
                             * followed by their CRC-32C, crc:u32 */
        FRAME_SNAPSHOT_ACK, /* term:u64 index:u64 have:u64: answer to a part: how many bytes
                             * have arrived without a gap; 0 after all of them: refused */
        FRAME_PROPOSED, /* term:u64 life:u64 high:u64 seen:u64 full:u64: leader to follower: of
                         * that life's proposals, frame `high` has arrived, and each `high - i`
                         * whose bit i is set in `seen`; full: there was no room for the last
                         * one */
        FRAME_LACKS,    /* term:u64 index:u64: leader to a follower whose log ends before an
                         * entry that it has acknowledged */
        FRAME_DOUBLED,  /* process:u64: to a process that introduced itself with that number:
                         * another one runs with its data directory, and was there first */
};

/* No link takes a larger frame. The largest one has one entry: a request (MaxRequestBytes=, up
 * to 64 MiB), and the renewals and expiries that go with it (8 MiB). */
#define FRAME_MAX ((size_t) 80 << 20)

#define SNAPSHOT_CRC 4 /* bytes */

/* An entry of commands begins with the lease time at which the leader appended it. */
#define STAMP sizeof(uint64_t)

/* Whether a leader may have appended such an entry. [libraft] raft believes what it is given of
 * a log. */
bool message_entry_is_sound(uint64_t term, uint8_t type, struct view data);

/* Returns the data of log entry @index, borrowed; false if the log does not have it. */
typedef bool (*message_entry_fn)(void *userdata, uint64_t index, uint64_t *ret_term,
                                 uint8_t *ret_type, struct view *ret_data);

/* Appends @m as a FRAME_RAFT. Entries are read with @entry_of. Of an InstallSnapshot, the state
 * is not appended; the caller must append its @snapshot_len bytes. Returns 0, -ENOENT if an
 * entry is missing, or -ENOMEM. */
must_check_ int message_encode(const struct raft_message *m, message_entry_fn entry_of,
                               void *userdata, size_t snapshot_len, struct buf *out);

/* Parses the frame after its type, which @peer sent. On success the caller owns the array of
 * entries (free it with raft_free()) and what it points to, and passes them to raft_step().
 * Returns 0, -ENOMEM or -EBADMSG: no member sends that, because
 *
 *     the term is beyond @term_max
 *     an index is beyond LOG_INDEX_MAX, or a term of the log is beyond that of the message
 *     the candidate is not @peer
 *     entries do not follow each other, or are not sound */
must_check_ int message_decode(struct view in, uint64_t peer, uint64_t term_max,
                               struct raft_message *ret);

/* Like message_decode(), for an InstallSnapshot of @term up to entry @index, which arrives in
 * parts. @ret does not contain the state, which raft need not see: *@ret_state borrows it, at
 * the end of @in. */
must_check_ int message_decode_snapshot(struct view in, uint64_t term, uint64_t index,
                                        struct raft_message *ret, struct view *ret_state);

/* Frees what these functions allocated, for a message that is not passed to raft. */
void message_discard(struct raft_message *m);
/* ... or only its entries: it becomes a heartbeat. */
void message_drop_entries(struct raft_append_entries *p);

/* Whether this is a configuration in raft's encoding, with at least one voter. [libraft] raft
 * decodes without checking where the bytes end, and does not recover from a configuration with
 * the same server twice, so check first. */
bool message_conf_is_sound(struct view conf);

/* Decodes such a configuration. Returns 0, -EBADMSG if it is none, or -ENOMEM. */
must_check_ int message_decode_conf(struct view in, struct raft_configuration *ret);
