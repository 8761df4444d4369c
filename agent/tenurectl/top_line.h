/*
 * Lines of a page, or of a file, and the tables in them: styles, columns that fit, text that is
 * cut to them. What anybody may have written cannot control the terminal.
 */
#pragma once

#include "base/buf.h"
#include "top_view.h"

#define TOP_CELL 512
#define TOP_CLOCK 16
/* The time of day. */
void top_clock(int64_t wall, char out[static TOP_CLOCK]);

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_DIM, TOP_HEADING, TOP_NOTICE, TOP_ALARM };

/* One that is being written: `used` columns of it are. */
struct top_line {
        struct buf *b;
        const struct top_look *look;
        size_t used;
};

/* The next one of @s. Returns 0 or -ENOMEM. */
must_check_ int top_line_begin(struct top_screen *s, const struct top_look *k,
                               struct top_line *ret);

/* @text in @width columns, cut with a mark where it does not fit. @fill: with blanks. */
void top_line_put(struct top_line *l, enum top_style s, const char *text, size_t width,
                  bool right, bool fill);
/* As wide as it is, as far as there is room. */
void top_line_say(struct top_line *l, enum top_style s, const char *text);
/* The last one of a line; @fill: with blanks to its end. */
void top_line_rest(struct top_line *l, enum top_style s, const char *text, bool fill);

struct top_column {
        const char *title;
        size_t width;
        bool right;
        unsigned rank; /* they come in this order, as far as there is room */
        int sort;      /* enum top_sort, or -1 */
        bool on;
};

/* Which columns there is room for; the last one has the rest. Without a terminal all. */
void top_columns_choose(struct top_column *c, size_t n, const struct top_look *k);

/* What is in a cell, and how it looks. */
typedef enum top_style (*top_cell_fn)(const void *thing, size_t column, char out[TOP_CELL],
                                      void *arg);
/* Without a terminal: makes the columns as wide as @thing needs, so that they align. */
void top_columns_widen(struct top_column *c, size_t n, const struct top_look *k, top_cell_fn fn,
                       const void *thing, void *arg);
void top_line_row(struct top_line *l, const struct top_column *c, size_t n, top_cell_fn fn,
                  const void *thing, void *arg);
/* @sort: the column with that mark; -1: none. Returns 0 or -ENOMEM. */
must_check_ int top_line_heading(struct top_screen *s, const struct top_look *k,
                                 const struct top_column *c, size_t n, int sort, bool reverse);
