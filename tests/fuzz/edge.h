/* Replacements for what reaches outside: crypt(5), random numbers and name servers; the
 * workers' threads are those of tests/sim/worker.h. Linked before the library, whose own are
 * then left out, or before the C library's. */
#pragma once

#include "base/buf.h"

/* What the next name server answers. */
void fuzz_dns_answer(struct view answer);
