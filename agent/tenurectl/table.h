/* Lists of JSON objects, as tables for people. */
#pragma once

#include "ctl.h"

enum column_kind {
        COLUMN_TEXT,    /* a text, a number, a list of texts, or tags */
        COLUMN_SECONDS, /* from microseconds */
        COLUMN_MS,      /* the same from milliseconds, to the right */
        COLUMN_SOME,    /* a number, or "-" for 0 */
        COLUMN_UP,      /* "up" or "down" */
        COLUMN_REST,    /* a text with spaces; the last one */
};

/* Of a field that an object lacks, or that is empty, the cell is "-". */
struct column {
        const char *head, *field;
        enum column_kind kind;
};

/* Prints @list as JSON if the user wants that, and otherwise a line for each of its objects,
 * with columns as wide as they have to be; above them the heads, unless --no-legend was given.
 */
void table_print(const struct ctl *c, struct json_object *list, const struct column *columns,
                 size_t n);
