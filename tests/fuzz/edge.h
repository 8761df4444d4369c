/*
 * In place of what reaches outside: the worker's thread, crypt(5), random numbers and name
 * servers. Linked before the library, whose own are then left out, or before the C library's.
 */
#pragma once

#include "base/buf.h"

/* Does the jobs that were submitted to any worker, in their order. */
void fuzz_workers_run(void);

/* What the next name server answers. */
void fuzz_dns_answer(struct view answer);
