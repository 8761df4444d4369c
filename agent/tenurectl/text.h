/* Keys, values and names as a person, or a program that reads JSON, may have them. */
#pragma once

#include <json-c/json.h>

#include "base/base.h"
#include "base/buf.h"

static inline struct view text_of(const char *s)
{
        const void *p = s;

        return (struct view){p, strlen(s)};
}

/* Anybody may have written it: what is no text, or moves a terminal's cursor, is \xNN. */
void text_add(struct buf *b, struct view v);
void text_print(struct view v);
struct json_object *text_json(struct view v);

/* A line of JSON, in which such characters are \uNNNN. Takes @o. */
void text_print_json(struct json_object *o, int flags);
