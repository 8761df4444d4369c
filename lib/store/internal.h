/*
 * What the files of store/ share. Not for others.
 *
 *     record.c    format 1 of the log: one entry as bytes
 *     sealed.c    format 2: one write as bytes
 *     recover.c   from a directory to a store
 *     store.c     writing
 *     reserve.c   files made in advance, as a reserve for when the disk is full
 */
#pragma once

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "store/store.h"

/* Of the directory, in `meta`; and of a file of the log. */
#define FORMAT_RECORDS 1
#define FORMAT_SEALED 2
#define FORMAT_SNAPSHOT 1
/* What a disk writes wholly or not at all; on larger ones, several of these. */
#define SECTOR 512
#define SEGMENT_SIZE ((size_t) 8 << 20)
/* The largest size of a log file, and the highest sequence number; files of some MiB reach
 * neither. The size is written as 8 hex digits in the name of a spare. */
#define SEGMENT_MOST ((size_t) UINT32_MAX)
#define SEQ_MOST ((uint64_t) INT64_MAX)
#define META_SLOT 4096
#define META_MOST ((size_t) 2 * META_SLOT)
#define META_SIZE 48
#define MARK_AT 512 /* in a slot, in a sector of its own */
#define MARK_SIZE 24
#define LACKS_AT 1024 /* in the first slot */
#define LACKS_SIZE 16
#define DIRECTORY_AT 1536 /* in each slot */
#define DIRECTORY_SIZE 16
#define DESCENT_AT 2048 /* in each slot */
#define DESCENT_SIZE 24
#define SNAPSHOT_HEADER 48
#define TYPE_TRUNCATE 0

struct segment {
        STAILQ_ENTRY(segment) next;
        char name[32];
        uint64_t seq;
        uint64_t last; /* highest index in it, ever */
        size_t size;
        unsigned format;
        bool there; /* it has its name; both the name and its mark are durable */
};

/* What `meta` says of a segment. */
struct mark {
        uint64_t seq;
        uint64_t size; /* its minimum size */
        unsigned format;
};

/* A file of zeroes that becomes a segment. */
struct spare {
        STAILQ_ENTRY(spare) next;
        char name[32];
        size_t size; /* 0: not what its name says */
};

enum job_kind {
        JOB_LOG,
        JOB_SPARE, /* new, or made from a spare of another size */
        /* Aside: the log does not wait for these. */
        JOB_PIECE,    /* of a snapshot, which a JOB_SNAPSHOT completes */
        JOB_SNAPSHOT, /* ours */
        JOB_INSTALL,  /* that of another replica */
        JOB_RECYCLE,  /* a segment becomes a spare */
        JOB_REMOVE,   /* many at once, after a snapshot */
        JOB_ROOM,     /* for the next snapshot */
};

struct job {
        struct disk_job disk_job;
        struct store *store;
        STAILQ_ENTRY(job) next; /* in `stalled` */
        enum job_kind kind;
        char from[32];   /* what is renamed first; "": nothing */
        uint64_t seq;    /* JOB_LOG: of the segment that begins with it; 0: none does */
        unsigned format; /* JOB_LOG: of that segment */
        char wip[32];    /* JOB_SPARE, JOB_RECYCLE: its name while it is made */
        char name[32];
        uint64_t offset; /* of a snapshot: where its data begins; 0: pieces came before */
        struct buf bytes;
        struct blob *data; /* of a snapshot: a piece, all that follows `bytes`, or NULL */
        size_t size;       /* of a snapshot: of all its data; 0 for a piece */
        uint64_t index;    /* of a snapshot */
        int r;
};

struct store {
        struct disk *disk;
        const struct store_ops *ops;
        void *userdata;
        struct store_recovered rec;
        struct buf snapshot_bytes; /* what rec.snapshot points into */
        struct buf *entry_bytes;   /* what rec.entries point into: one for each segment */
        size_t n_entry_bytes;

        struct store_identity id;
        uint64_t term, vote;
        unsigned format;        /* of what is written from now on */
        unsigned newest_format; /* that is read */
        char half_restored[32]; /* a snapshot that exists without a meta; "": none */
        uint64_t meta_version;
        /* At start-up. */
        struct mark marks[2]; /* of the two newest segments; `seq` 0: not known */
        struct {
                const struct segment *seg; /* NULL: none is */
                size_t at;
                const uint8_t *zeroes; /* to be written there, up to its end */
        } torn;
        uint64_t descendant;    /* between store_descend() and store_descended(): its id */
        uint64_t new_directory; /* the id for a directory that has none; 0: it gets none */
        bool has_directory;     /* both slots of `meta` have it */
        STAILQ_HEAD(, segment) segments; /* the last one is written to */
        uint64_t next_seq;
        uint64_t trimmed; /* entries up to here are not needed */
        size_t segment_size;
        size_t offset;    /* in the last segment, queued bytes included */
        uint32_t batch;   /* FORMAT_RECORDS: the number of the last write */
        uint64_t last;    /* the last index queued... */
        uint64_t had;     /* ...and the highest one ever queued, in this life */
        uint64_t durable; /* all present entries up to here are on the disk */
        struct buf queued;
        unsigned queued_format; /* once something is queued */
        struct buf reused;      /* empty: memory of the previous write, for the next one */
        uint64_t queued_index;  /* once `queued` is written, all up to here is durable... */
        uint64_t writing_index; /* ...and after the write under way, all up to here */
        bool writing;
        bool installing; /* a snapshot that resets the log is being written: the log waits */
        bool failed;
        struct store_counts counts;
        uint64_t snapshot_index;
        uint64_t snapshot_size;
        /* A snapshot that is written in pieces. */
        struct {
                struct buf head;    /* what is written before the data, after it */
                size_t size;        /* of the data so far */
                unsigned n_waiting; /* pieces that are not written yet, abandoned ones too */
                nsec_t took;        /* to write them */
        } pieces;
        /* What was written over ROOM. Only the disk's thread uses this. */
        struct {
                size_t was;   /* the size that ROOM had before; SIZE_MAX: not known */
                uint64_t at;  /* where the next bytes go */
                uint32_t crc; /* of the data */
                int r;        /* of the first call that failed */
        } over;

        /* Files made in advance (reserve.c). */
        bool keeps_aside; /* otherwise, only files that the log waits for are made */
        bool wanted;      /* the log waits for a spare */
        STAILQ_HEAD(, spare) spares;
        size_t n_making; /* spares on their way */
        uint32_t spare_seq;
        size_t large;     /* the log waits for a segment of this size; 0: it does not */
        size_t room;      /* for the next snapshot: its size now... */
        size_t room_goal; /* ...and the intended one */
        size_t second;    /* SECOND_ROOM */
        bool rooming;
        bool lacks_spare, lacks_room; /* the disk was full when these were to be made */
        bool blocked;                 /* ...and is not tried again before store_retry() */
        STAILQ_HEAD(, job) stalled;   /* jobs that wait for that, too */
};

/* ---- store.c ---- */

void store_fail(struct store *s, const char *file, int r);
/* Records in `meta` that a segment exists. Called after its name is durable, and before
 * anything is written into it. A start that does not find the segment fails. */
must_check_ int store_mark(struct disk *d, const struct mark *m);
/* Records the directory's id. */
must_check_ int store_write_directory(struct store *s);
/* Queues one entry for the log. */
void store_queue(struct store *s, const struct store_entry *e);
/* A job, to be filled in; job_start() hands it to the disk, and job_drop() ends it. */
struct job *job_new(struct store *s, enum job_kind kind, const char *name);
void job_start(struct job *j);
void job_drop(struct disk_job *dj);

/* ---- reserve.c ---- */

/* The next snapshot is written into this. */
#define ROOM "snapshot.room"
/* Becomes ROOM once the first snapshot has used that, since there is no older one to reuse. */
#define SECOND_ROOM "snapshot.room2"
#define WIP "wip-"
#define SPARE "spare-"
#define SPARES 3 /* kept ready while there is room */

static inline bool no_room(int r)
{
        return r == -ENOSPC || r == -EDQUOT;
}

/* A spare for a write of @n bytes, taken out of the list; NULL: none yet. Ends with free(). */
struct spare *reserve_take(struct store *s, size_t n);
must_check_ int reserve_add(struct store *s, const char *name, size_t size);
/* Starts to make the files that are missing. */
void reserve_tend(struct store *s);
/* @seg, owned, is not needed any more. */
void reserve_recycle(struct store *s, struct segment *seg);
/* A snapshot of @size is on the disk, and has used the room; the file @old ("": none) becomes
 * the room for the next one. */
void reserve_used(struct store *s, const char *old, size_t size);
/* There was no room for a snapshot of @size. */
void reserve_missed(struct store *s, size_t size);
must_check_ int reserve_run(struct job *j);
void reserve_done(struct job *j);
/* The disk is full; @j waits. */
void reserve_stall(struct store *s, struct job *j);
void reserve_fini(struct store *s);

void store_segment_name(uint64_t seq, char out[static 32]);

/* ---- record.c ---- */

/* Appends @e as a record of write @batch; it is the first record of that write if @b is
 * empty. */
void record_add(struct buf *b, uint32_t batch, const struct store_entry *e);
size_t record_size(size_t len);

struct record {
        struct store_entry entry;
        uint32_t batch;
        bool first; /* of its batch */
};

/* Reads the record at @at. Returns its size, or 0 when there is no valid one. */
size_t record_read(const uint8_t *file, size_t size, size_t at, struct record *rec);

/* Whether the invalid record at @at is one that a crash cut short. */
bool record_is_torn(const uint8_t *file, size_t size, size_t at, uint32_t last_batch);

bool all_zero(const uint8_t *p, size_t n);

/* ---- sealed.c ---- */

/* Appends @e to the write that is made in @b. */
void sealed_add(struct buf *b, const struct store_entry *e);
/* No less than the size that it will have. */
size_t sealed_size(const struct buf *b);
/* Nothing more is added. The write goes to @at in segment @seq; at 0 the head of the file is
 * written with it. Memory may run out: buf_error(). */
void sealed_end(struct buf *b, uint64_t seq, size_t at);

/* Where the writes of segment @seq begin; 0: this is not its file. */
size_t sealed_begin(const uint8_t *file, size_t size, uint64_t seq);
/* Reads the write at @at of segment @seq; its records are moved together where they are.
 * Returns its size, or 0 when there is no valid one. */
size_t sealed_read(uint8_t *file, size_t size, uint64_t seq, size_t at,
                   struct view *ret_records);
/* Takes the first of the @records; false when there is no valid one. */
bool sealed_next(struct view *records, struct store_entry *ret);
/* Whether the invalid write at @at, where not all is zero, is one that a crash cut short. 0:
 * the file does not begin as it should. */
bool sealed_is_torn(const uint8_t *file, size_t size, uint64_t seq, size_t at);
