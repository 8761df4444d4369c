/* What is shared is given back; see given.c. */
#pragma once

struct world;

void given_begin(void);
/* At each step of the clock. */
void given_look(struct world *w);
/* When the world has ended. */
void given_check(struct world *w);
