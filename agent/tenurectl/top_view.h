/*
 * How `tenurectl top` looks: a model becomes lines, as wide and as many as there is room for,
 * or, where they go into a file, as many as there are.
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
        bool legend;                       /* headings; without a terminal */
        bool no_core, no_locks, no_events; /* not to be shown */
        bool help;
        bool asks;     /* for the filter, as it is typed */
        size_t scroll; /* members that are above the first one shown, if that has the cursor */
        size_t cursor; /* the index of the member that Enter shows */
        char detail[256]; /* the member of which all is shown; "": none */
        size_t n_events;  /* without a terminal: so many of the last ones */
};

/* Lines without their ends, but with what makes them bold and the like. */
struct top_screen {
        struct buf *lines; /* owned */
        size_t n, cap;
        size_t first, n_rows;  /* of `shown`: those that are visible */
        size_t cursor;         /* as it was asked for, or the last one */
        bool sorts[TOP_SORTS]; /* of what may be sorted by: is its column there? */
};
void top_screen_fini(struct top_screen *s);

/* Returns 0 or -ENOMEM. @wall: the time of day, in seconds. */
must_check_ int top_draw(const struct top_model *m, const struct top_look *k,
                         struct boot_time now, int64_t wall, struct top_screen *s);

/* The columns that @text takes, as it would be shown. */
size_t top_width(const char *text, bool utf8);

/* A duration as it is shown: 8.3s, 12m, 3h20m, 5d. */
#define TOP_DURATION 24
void top_duration(nsec_t d, bool tenths, char out[static TOP_DURATION]);
