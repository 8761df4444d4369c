/* A user who watches what it may read; see listeners.c. */
#pragma once

#include "world.h"

/* The keys that the role of users.c permits, up to this one; and one that the administrator
 * puts: its value is when that was asked for, in true time. */
#define USERS_KEYS "users/"
#define USERS_END "users0"
#define USERS_SAID USERS_KEYS "said"

void listeners_begin(struct world *w);
void listeners_run(void);
nsec_t listeners_next(void);
void listeners_end(void);

/* ---- in users.c ---- */

/* Since when nobody but the administrator may read these keys; 0: somebody may. */
nsec_t users_forbidden_since(void);
/* The last one that a user got; "": none. */
const char *users_token(void);
