/*
 * What the files of store/ share. Not for others.
 *
 *     record.c    one entry as bytes
 *     recover.c   from a directory to a store
 *     store.c     writing
 */
#pragma once

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "store/store.h"

#define FORMAT 1
#define SEGMENT_SIZE ((size_t) 8 << 20)
#define META_SLOT 4096
#define META_SIZE 48
#define SNAPSHOT_HEADER 48
#define TYPE_TRUNCATE 0

struct segment {
        STAILQ_ENTRY(segment) next;
        char name[32];
        uint64_t seq;
        uint64_t last; /* highest index in it, ever */
        size_t size;
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
        uint64_t meta_version;
        STAILQ_HEAD(, segment) segments; /* the last one is written to */
        uint64_t next_seq;
        size_t segment_size;
        size_t offset; /* in the last segment, queued bytes included */
        uint32_t batch;
        uint64_t last;    /* the last index queued */
        uint64_t durable; /* up to here each entry is on the disk, as it is now */
        bool spare;       /* a segment behind the current one is made already */
        size_t spare_at;  /* the offset from which on to make one */
        struct buf queued;
        uint64_t queued_index;  /* when that is written, all up to here is durable... */
        uint64_t writing_index; /* ...and with the write under way, up to here */
        bool writing;
        bool failed;
        uint64_t snapshot_index;
        uint64_t snapshot_size;
};

void store_segment_name(uint64_t seq, char out[static 32]);

/* ---- record.c ---- */

/* Appends @e as a record of write @batch; it is the first of it when @b is empty. */
void record_add(struct buf *b, uint32_t batch, const struct store_entry *e);
size_t record_size(size_t len);

struct record {
        struct store_entry entry;
        uint32_t batch;
        bool first; /* of its batch */
};

/* Reads the record at @at. Returns its size, or 0 when none checks there. */
size_t record_read(const uint8_t *file, size_t size, size_t at, struct record *rec);

/* Is the record that does not check at @at one that a crash cut short? */
bool record_is_torn(const uint8_t *file, size_t size, size_t at, uint32_t last_batch);

bool all_zero(const uint8_t *p, size_t n);
