/*
 * What a replica must not forget: the log, term and vote, and the latest snapshot.
 *
 *     Files, in one directory (the format is in store/FORMAT.md):
 *         meta                        who we are, term and vote: two slots written in turn
 *         log-<sequence>              segments, zero-filled in advance, with checksums
 *         snapshot-<index>            one state each, with a checksum
 *
 * A torn end of the last segment, left by a crash, is cut off; damage anywhere else is refused,
 * naming the file, since going on would lose acknowledged entries (I5). Any write error is
 * fatal for the process: `failed` is called, once, and nothing is reported persisted after it.
 */
#pragma once

#include "base/base.h"
#include "base/blob.h"
#include "base/buf.h"
#include "base/histogram.h"
#include "store/disk.h"

struct store;

/* A log entry; the data is borrowed. */
struct store_entry {
        uint64_t index;
        uint64_t term;
        uint8_t type;
        struct view data;
};

struct store_snapshot {
        uint64_t index; /* 0: none */
        uint64_t term;
        uint64_t conf_index;
        struct view conf; /* consensus' own encoding */
        struct view data;
};

struct store_identity {
        uint64_t cluster_id;
        uint64_t member_id;
        uint64_t directory; /* 0: a directory of 0.1.0, which no later version has opened */
        uint64_t ancestor; /* the cluster that it belonged to before store_descend(); 0: none */
};

/* The newest format of `meta` and the log. */
#define STORE_FORMAT 2

struct store_config {
        uint64_t directory; /* random: the id that the directory gets if it has none yet; 0: it
                             * gets none */
        unsigned format;    /* the newest that it may have; 0: STORE_FORMAT. For tests, in which
                             * this is an earlier version */
};

/* What was on disk. Owned by the store until store_recovered_free(). */
struct store_recovered {
        bool fresh;         /* nothing: a new directory */
        bool half_restored; /* ...but for the snapshot of a restore that was cut short */
        bool half_forced;   /* store_descend() came, and store_descended() did not */
        struct store_identity identity;
        uint64_t term, vote;
        uint64_t lacks; /* as given to store_condemn(); 0: nothing */
        struct store_snapshot snapshot;
        struct store_entry
                *entries; /* ascending, without gaps, after the snapshot or overlapping it */
        size_t n_entries;
};

struct store_ops {
        /* Entries up to @index are durable, as they were appended last: the write of an entry
         * that was overwritten meanwhile does not count for its successor. @index only rises,
         * except when store_append() cuts entries off, and after a snapshot that resets the
         * log. */
        void (*persisted)(void *userdata, uint64_t index);
        /* The snapshot up to @index is durable. */
        void (*snapshot_done)(void *userdata, uint64_t index);
        /* The snapshot could not be written, which loses nothing. For a snapshot that resets
         * the log, `failed` is called instead. */
        void (*snapshot_failed)(void *userdata, uint64_t index, int r);
        /* @file could not be written. */
        void (*failed)(void *userdata, const char *file, int r);
};

struct store_error {
        char text[640];
};

/* The end of an error about a directory that is not as this member wrote it: what to do. */
#define STORE_WAY_OUT                                                                    \
        "Nothing was changed. If other members have a majority, have this one replaced " \
        "(tenurectl core replace), move its directory away, and start it with an empty " \
        "one; if it is the only one, fill an empty directory from its latest snapshot "  \
        "(tenure-core --restore). See DAMAGED FILES in tenure-core(8)."

/* Reads everything. @d is borrowed. Returns 0; -EBADMSG with the file and what to do in *@err;
 * or a negative errno, also with *@err. */
must_check_ int store_open(struct store **ret, struct disk *d, const struct store_config *cfg,
                           const struct store_ops *ops, void *userdata,
                           struct store_error *err);
/* New files of the log get this size, rather than 8 MiB; for tests. */
void store_set_segment_size(struct store *s, size_t size);
const struct store_recovered *store_recovered(const struct store *s);
void store_recovered_free(struct store *s);

/* Which member the directory belongs to. Returns 0, -ENOENT for a new one, or as store_open().
 */
must_check_ int store_peek(struct disk *d, struct store_identity *ret, struct store_error *err);

/* Forgets jobs under way. Accepts NULL; returns NULL. The disk must run no job of ours any
 * more. */
struct store *store_free(struct store *s);
DEFINE_CLEANUP(struct store *, store_free)

/* For a new directory: writes the first entry, unless that is NULL, then our identity, with the
 * `directory` that store_open() was given. Blocks. A crash in between leaves a new directory.
 */
must_check_ int store_init(struct store *s, struct store_identity id, uint64_t term,
                           const struct store_entry *first);

/* Removes the files of a restore that was cut short; blocks. Returns 0 or a negative errno. */
must_check_ int store_begin_again(struct store *s);

/* Blocks until term and vote are durable (Raft section 5.1: before answering). */
must_check_ int store_vote(struct store *s, uint64_t term, uint64_t vote);

/* The id of the directory; 0: it has none. */
uint64_t store_directory(const struct store *s);

/* The present format, and a later one: blocks until `meta` says so, and versions that do not
 * know it refuse the directory. What is queued from now on is written in that format. Formats
 * only rise: an earlier one changes nothing. Returns 0 or a negative errno. */
unsigned store_format(const struct store *s);
must_check_ int store_raise_format(struct store *s, unsigned format);

/* Records that the log lacks entries up to @index, and blocks until the record is durable; 0
 * deletes it. Returns 0; STORE_E_HAD if the log has had them since the start, so that those
 * that are gone were rightly cut off or superseded; or a negative errno.
 */
enum { STORE_E_HAD = 1 };
must_check_ int store_condemn(struct store *s, uint64_t index);

/* Makes the directory one of another cluster, which descends from its present one, and gives it
 * the id that store_open() was given. What that cluster begins with is made durable between the
 * two calls. If they are cut short, the next store_open() reports that, still with the former
 * identity, and both have to be called again. They block. Return 0 or a negative errno. */
must_check_ int store_descend(struct store *s, uint64_t cluster_id);
must_check_ int store_descended(struct store *s);

/* Queues entries, which are copied. If the first index is not after the last one of the log,
 * the entries from that index on are cut off. Returns 0 or -ENOMEM. */
must_check_ int store_append(struct store *s, const struct store_entry *e, size_t n);

/* Starts to write the queued entries, unless a write is under way; the end of that write starts
 * the next one. */
void store_flush(struct store *s);

/* Queues a snapshot; @conf and @data are copied. With @reset the log restarts after it (an
 * install). Returns 0 or -ENOMEM. */
must_check_ int store_save_snapshot(struct store *s, const struct store_snapshot *snap,
                                    bool reset);

/* Like store_save_snapshot(), with the snapshot's data in @data, which is held until it is
 * written. */
must_check_ int store_save_blob(struct store *s, const struct store_snapshot *snap,
                                struct blob *data, bool reset);

/* Like store_save_snapshot() without @reset, for data that is written while it is being made:
 * @snap has everything else, and is copied; each @piece is held until it is written. Only the
 * end is reported, by `snapshot_done` or `snapshot_failed`. If a piece cannot be written, those
 * after it are only counted, since room for the next attempt is made for the whole size. To
 * abandon a snapshot, begin another one, or none. No other snapshot may be on its way between
 * the beginning and the report. Return 0 or -ENOMEM. */
must_check_ int store_snapshot_begin(struct store *s, const struct store_snapshot *snap);
must_check_ int store_snapshot_add(struct store *s, struct blob *piece);
must_check_ int store_snapshot_end(struct store *s);
/* How many pieces are held. */
unsigned store_snapshot_waiting(const struct store *s);

/* Entries up to @index are not needed any more: removes segments that hold nothing else. */
void store_trim(struct store *s, uint64_t index);

/* From now on the store keeps room in reserve, and waits while the disk is full. Without this
 * call, as in a program that writes one thing and ends, a full disk is reported by `failed`,
 * and no job runs that nobody waits for. */
void store_keep_aside(struct store *s);

/* Whether the disk is full: a file could not be made in advance, a snapshot could not be
 * written, or the log waits for room. The log continues in existing files, so only growth has
 * to stop. False again once all of this has been done. */
bool store_short_of_room(const struct store *s);

/* The reserved room is used up, too: nothing becomes durable until there is room. */
bool store_waits_for_room(const struct store *s);
/* Retries what there was no room for; to be called from time to time while the disk is full. */
void store_retry(struct store *s);

/* For metrics: what was written since the start, and how long it took, as far as the disk
 * measures it (histogram_disk). */
struct store_counts {
        uint64_t log_bytes;
        struct histogram syncs;     /* of the log: writes, until they are durable... */
        struct histogram commits;   /* ...from their submission until the loop knows that they
                                     * are */
        struct histogram snapshots; /* of ours, in a file */
        struct histogram installs;  /* of other replicas */
};
/* Borrowed; valid as long as the store. */
const struct store_counts *store_counts(const struct store *s);

/* Bytes of log and snapshots on disk. */
uint64_t store_size(const struct store *s);
