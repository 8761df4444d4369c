/*
 * The record that a member of a work group publishes, as JSON in the core: its weight, and the
 * tasks that it can have, as their number if they are named 1, 2 and so on, or as names.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"

/* How many tasks a member can have, and how many bytes their names may take in the core. */
#define WORK_TASKS_MAX 10000
#define WORK_RECORD_MAX 65536

struct work_record {
        unsigned weight;
        size_t n;     /* tasks */
        char **names; /* sorted, each once; NULL: they are numbered from 1 on */
};

void work_record_fini(struct work_record *r);

/* Makes a record of @n tasks: with these @names, in any order, or numbered if NULL. Returns 0;
 * -EINVAL: *@ret_bad is not a valid name, or occurs twice; -EMSGSIZE: too many, or too long; or
 * -ENOMEM. */
must_check_ int work_record_make(struct work_record *ret, unsigned weight,
                                 const char *const *names, size_t n, const char **ret_bad);

bool work_record_has(const struct work_record *r, const char *task);

/* The name of task @i, counted from 0; written to @room if the tasks are numbered. */
#define WORK_NUMBER_MAX 24
const char *work_record_name(const struct work_record *r, size_t i,
                             char room[static WORK_NUMBER_MAX]);

void work_record_write(const struct work_record *r, struct buf *out);
/* Returns 0, -EBADMSG or -ENOMEM. */
must_check_ int work_record_read(struct work_record *ret, const void *p, size_t len);
