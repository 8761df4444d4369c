/* Lists of JSON objects, as tables for people. */
#pragma once

#include "ctl.h"

enum column_kind {
        COLUMN_TEXT,    /* a text, a number, a list of texts, or tags */
        COLUMN_SECONDS, /* from microseconds */
        COLUMN_MS,      /* seconds from milliseconds, aligned to the right */
        COLUMN_SOME,    /* a number, or "-" for 0 */
        COLUMN_UP,      /* "up" or "down" */
        COLUMN_REST,    /* a text with spaces; the last one */
};

/* A column. Its cell is "-" if the object lacks the field, or if the field is empty. */
struct column {
        const char *head, *field;
        enum column_kind kind;
};

/* Prints @list as JSON if the user wants that, and otherwise one line for each of its objects,
 * in columns of the necessary width, below a heading unless --no-legend was given. */
void table_print(const struct ctl *c, struct json_object *list, const struct column *columns,
                 size_t n);
