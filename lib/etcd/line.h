/*
 * A queue of calls that wait for the same thing. Addresses take turns, then the connections of
 * each address, then the first few calls of each connection. However many calls one of them
 * makes, the others wait for only one at a time, and each call is served eventually. Not for
 * other folders.
 *
 * A waiting call embeds a place in the queue; everything costs O(1). See struct api_turn.
 */
#pragma once

#include "etcd/api.h"

struct line {
        enum line_of of;
        TAILQ_HEAD(, line_part) addresses; /* in the order of their turns */
};

struct line_place {
        TAILQ_ENTRY(line_place) next;
        struct api_turn *turn; /* the connection's turn; NULL: not in the line */
};

void line_init(struct line *l, enum line_of of);

/* Adds @p after the other calls of its connection. It may be in the line already. */
void line_join(struct line *l, struct line_place *p, struct api_turn *turn);
/* Removes @p, which may have left already. */
void line_leave(struct line *l, struct line_place *p);

/* How many calls of @turn's address wait. */
size_t line_n_of_address(const struct line *l, const struct api_turn *turn);

/* The place whose turn it is, or NULL. */
struct line_place *line_first(const struct line *l);

/* The first place has had its turn: moves it after @calls more calls of its connection, the
 * connection after the others of its address, and the address after the others. */
void line_rotate(struct line *l, unsigned calls);
/* The first place cannot have its turn now, and neither can others of its address: moves the
 * address after the others. */
void line_skip(struct line *l);
