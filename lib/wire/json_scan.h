/*
 * JSON text (RFC 8259) as a sequence of events, from pieces of any size. For the files of wire/
 * only.
 *
 * It accepts and refuses what Go's encoding/json does, with the same error messages, which
 * clients of etcd's gateway know; the tests compare the two. Each byte is read once; memory is
 * needed for the longest wanted string that lies across two pieces.
 */
#pragma once

#include "wire/json.h"

enum json_event_type {
        JSON_OBJECT,
        JSON_ARRAY,
        JSON_END, /* of the innermost of these two */
        JSON_KEY,
        JSON_STRING,
        JSON_NUMBER,
        JSON_TRUE,
        JSON_FALSE,
        JSON_NULL,
};

struct json_event {
        enum json_event_type type;
        struct view text; /* of a key, string or number; borrowed until the next begins */
};

struct json_scan {
        unsigned state;
        bool is_key;         /* the string that is read */
        bool single;         /* one value is all that may come */
        bool keep;           /* the owner wants to know what keys, strings and numbers are */
        bool escaped;        /* the string of the last event had a backslash in it */
        uint32_t unit, high; /* of \u: the digits so far, and the first half of a pair */
        unsigned n_digits;
        const char *literal; /* "true", of which `n_literal` have come */
        size_t n_literal;
        struct buf token;
        size_t depth;
        char why[JSON_WHY_SIZE];
        uint8_t objects[JSON_DEPTH_MAX / 8 + 1]; /* a bit for each level; else it is an array */
};

/* Begins a text, the first one or another, with the memory of `token`, which is valid or all 0.
 */
void json_scan_begin(struct json_scan *s);
void json_scan_fini(struct json_scan *s);

enum {
        JSON_SCAN_EVENT = 1,
};

/* Takes bytes off @text up to the end of an event. Returns 0: all were taken, and the event has
 * not ended yet; JSON_SCAN_EVENT; -EBADMSG with `why`; or -ENOMEM. When `depth` is 0 after an
 * event, a value has ended, and another may follow. */
must_check_ int json_scan_next(struct json_scan *s, struct view *text, struct json_event *ret);

/* Whether the text is between two values; with `single`, whether the value has ended. */
bool json_scan_is_between(const struct json_scan *s);

/* The text ends here. Go reads on as if a space followed, and `why` may be that space. Returns
 * 0: between two values; JSON_SCAN_EVENT: a number ended with it; -EBADMSG with `why`; or
 * -ENOMEM. */
must_check_ int json_scan_end(struct json_scan *s, struct json_event *ret);
