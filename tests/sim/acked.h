/* What leaders take for acknowledged; see acked.c. */
#pragma once

#include <stdint.h>

struct world;

void acked_begin(void);
/* A replica starts as this member. */
void acked_starts(struct world *w, uint64_t id);
/* At each step of the clock. */
void acked_look(struct world *w);
