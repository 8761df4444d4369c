/* The tail of the raft log in memory: entries that may still have to be sent or applied. Pure;
 * entries are owned. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

/* No log comes near this index: an entry in each nanosecond would take 292 years. */
#define LOG_INDEX_MAX ((uint64_t) INT64_MAX)

struct log_entry {
        uint64_t term;
        uint32_t len;
        uint8_t type;
        uint64_t end;  /* size of all entries up to this one, less a constant */
        uint8_t *data; /* owned */
};

struct log {
        struct log_entry *entries; /* owned ring: entry i of n stands at (head + i) % cap */
        size_t head, n, cap;
        size_t gone;    /* entries before these that are dropped, and not freed yet */
        uint64_t first; /* index of the first entry; with n == 0, of the next one */
        size_t bytes;   /* size of the entries, in memory */
};

void log_init(struct log *l, uint64_t first);
void log_fini(struct log *l);

static inline uint64_t log_last(const struct log *l)
{
        return l->first + l->n - 1;
}

/* The entry, or NULL; borrowed until the log changes. */
const struct log_entry *log_get(const struct log *l, uint64_t index);

/* The index of the last entry of @type from @from to @upto; 0: there is none in memory. */
uint64_t log_find(const struct log *l, uint8_t type, uint64_t from, uint64_t upto);

/* The size of the entries from @from to @upto that are in memory: each counts with what it
 * takes beside its data, or millions of small ones would pass for little. */
size_t log_bytes(const struct log *l, uint64_t from, uint64_t upto);

/* Copies @data in. */
must_check_ int log_push(struct log *l, uint64_t term, uint8_t type, const void *data,
                         size_t len);

/* Takes over @data, which was allocated with malloc(), unless memory runs out. */
must_check_ int log_take(struct log *l, uint64_t term, uint8_t type, void *data, size_t len);

/* Drops entry @from and all after it. */
void log_cut(struct log *l, uint64_t from);

/* Drops all entries up to @upto. There may be millions: log_free_gone() frees up to @max of
 * them. */
void log_trim(struct log *l, uint64_t upto);
void log_free_gone(struct log *l, size_t max);
