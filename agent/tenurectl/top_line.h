/*
 * Lines of a page, or of a file, and the tables in them: styles, columns that fit, text that is
 * cut to them. No text can control the terminal, whoever wrote it.
 */
#pragma once

#include "base/buf.h"
#include "top_view.h"

#define TOP_CELL 512
#define TOP_CLOCK 16
/* The time of day. */
void top_clock(int64_t wall, char out[static TOP_CLOCK]);

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_DIM, TOP_HEADING, TOP_NOTICE, TOP_ALARM };

/* A line that is being written; `used` columns of it are full. */
struct top_line {
        struct buf *b;
        const struct top_look *look;
        size_t used;
};

/* Begins the next line of @s. Returns 0 or -ENOMEM. */
must_check_ int top_line_begin(struct top_screen *s, const struct top_look *k,
                               struct top_line *ret);

/* Adds @text in @width columns, cut with a mark if it does not fit. @fill: padded with
 * blanks. */
void top_line_put(struct top_line *l, enum top_style s, const char *text, size_t width,
                  bool right, bool fill);
/* Adds @text at its own width, as far as there is room. */
void top_line_say(struct top_line *l, enum top_style s, const char *text);
/* Adds the last text of a line; @fill: with blanks to the end. */
void top_line_rest(struct top_line *l, enum top_style s, const char *text, bool fill);

struct top_column {
        const char *title;
        size_t width;
        bool right;
        unsigned rank; /* columns are chosen in this order, as far as there is room */
        int sort;      /* enum top_sort, or -1 */
        bool on;
};

/* Chooses the columns that there is room for; the last one gets the rest. Without a terminal
 * all are chosen. */
void top_columns_choose(struct top_column *c, size_t n, const struct top_look *k);

/* Writes the text of a cell, and returns its style. */
typedef enum top_style (*top_cell_fn)(const void *thing, size_t column, char out[TOP_CELL],
                                      void *arg);
/* Without a terminal: makes the columns as wide as @thing needs, so that they align. */
void top_columns_widen(struct top_column *c, size_t n, const struct top_look *k, top_cell_fn fn,
                       const void *thing, void *arg);
void top_line_row(struct top_line *l, const struct top_column *c, size_t n, top_cell_fn fn,
                  const void *thing, void *arg);
/* Adds the heading of a table. @sort: the column with the mark of the sort order; -1: none.
 * Returns 0 or -ENOMEM. */
must_check_ int top_line_heading(struct top_screen *s, const struct top_look *k,
                                 const struct top_column *c, size_t n, int sort, bool reverse);
