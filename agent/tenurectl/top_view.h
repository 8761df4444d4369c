/*
 * The layout of `tenurectl top`: turns a model into lines, as wide and as many as the terminal
 * has room for, or, for a file, as many as there are.
 *
 * Pure, but for the width of characters, which is the locale's (wcwidth(3)). Only members that
 * are visible are laid out.
 */
#pragma once

#include "base/buf.h"
#include "top_model.h"

struct top_look {
        size_t width, height; /* of the terminal; height 0: no terminal, all lines */
        bool utf8, color;
        bool legend;                       /* without a terminal: print headings */
        bool no_core, no_locks, no_events; /* not to be shown */
        bool help;
        bool asks;        /* the filter is being typed */
        size_t scroll;    /* members above the first one shown, if the cursor is there */
        size_t cursor;    /* the index of the member that Enter shows */
        char detail[256]; /* the member whose details are shown; "": none */
        size_t n_events;  /* without a terminal: how many of the last events to print */
};

/* Lines without their ends, with the sequences for bold and the like. */
struct top_screen {
        struct buf *lines; /* owned */
        size_t n, cap;
        size_t first, n_rows;  /* the part of `shown` that is visible */
        size_t cursor;         /* the cursor, at most that of the last member */
        bool sorts[TOP_SORTS]; /* which columns are shown, of those that can be sorted by */
};
void top_screen_fini(struct top_screen *s);

/* Returns 0 or -ENOMEM. @wall: the time of day, in seconds. */
must_check_ int top_draw(const struct top_model *m, const struct top_look *k,
                         struct boot_time now, int64_t wall, struct top_screen *s);

/* How many columns @text takes when shown. */
size_t top_width(const char *text, bool utf8);

/* A duration as it is shown: 8.3s, 12m, 3h20m, 5d. */
#define TOP_DURATION 24
void top_duration(nsec_t d, bool tenths, char out[static TOP_DURATION]);
