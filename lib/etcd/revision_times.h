/*
 * Which revision this replica had applied in which second: a reader of the history learns from
 * it when a key was changed or deleted, which no revision says.
 *
 * In memory only: a replica that has just started knows nothing of earlier, and one that lags
 * is late. Pure. Noting costs O(1).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define REVISION_TIMES 3600 /* seconds with changes: an hour or more */

struct revision_time {
        int64_t revision; /* the last one of that second */
        struct boot_time at;
};

struct revision_times {
        struct revision_time ring[REVISION_TIMES];
        size_t n; /* how many there have been */
};

/* All changes up to @revision are applied at @now. The first one says nothing of when, and a
 * smaller one than the last begins anew: the state is another one. */
void revision_times_note(struct revision_times *t, int64_t revision, struct boot_time now);
size_t revision_times_kept(const struct revision_times *t);
/* The @i-th that is kept, the oldest first. */
const struct revision_time *revision_times_at(const struct revision_times *t, size_t i);
