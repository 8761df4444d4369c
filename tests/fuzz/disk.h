/* A disk for fuzzers: files in memory that are only as large as what was written to them,
 * without the zeroes that a new segment is promised, so that a store costs almost nothing to
 * make. */
#pragma once

#include "store/disk.h"

struct disk *fuzz_disk_new(void);

/* Does the next job; false when there is none. */
bool fuzz_disk_step(struct disk *d);

/* From now on what writes fails with @r; 0: it works. */
void fuzz_disk_fail(struct disk *d, int r);

/* A file, made where there is none; its bytes may be changed. */
struct buf *fuzz_disk_file(struct disk *d, const char *name);
