/* Prints keys, values and names safely, for people and for programs that read JSON. */
#pragma once

#include <json-c/json.h>
#include <stdio.h>
#include <time.h>

#include "base/base.h"
#include "base/buf.h"

/* Anybody may have written the bytes: those that are not text, or control a terminal, become
 * \xNN. */
void text_add(struct buf *b, struct view v);
void text_print(struct view v);
struct json_object *text_json(struct view v);

/* Adds a field of that type to @o. */
void json_put_text(struct json_object *o, const char *key, const char *text);
void json_put_number(struct json_object *o, const char *key, int64_t n);
/* Adds 16 hexadecimal digits as text, or "" for 0. */
void json_put_id(struct json_object *o, const char *key, uint64_t id);
/* Adds "realtime_usec", the microseconds since the Epoch. */
void json_put_time(struct json_object *o, const struct timespec *t);

/* Makes @text, which anybody may have written, safe for a terminal. Returns @out. */
#define TEXT_SHOWN 512
const char *text_shown(const char *text, char out[static TEXT_SHOWN]);

/* Writes the local time as HH:MM:SS.mmm. Returns @out. */
#define TEXT_CLOCK 16
const char *text_clock(const struct timespec *t, char out[static TEXT_CLOCK]);

/* Writes @text as one cell of a table: without spaces, and "-" if it is empty. Returns @out. */
#define TEXT_CELL 512
const char *text_cell(const char *text, char out[static TEXT_CELL]);

/* Prints a line to @f, as fprintf() would, and the end of the line. Bytes that cannot stand in
 * a line become \xNN. */
void text_say(FILE *f, const char *fmt, ...) printf_(2, 3);

/* Prints on standard error what is wrong: one sentence, to which the full stop is added.
 * Returns -1. */
int say(const char *fmt, ...) printf_(1, 2);
/* From now on, say() prints {"message": SENTENCE}. */
void say_json(void);

/* Appends @o as a line of JSON, in which characters that control a terminal become \uNNNN. */
void text_add_json(struct buf *b, struct json_object *o, int flags);
/* Prints such a line of JSON. Takes over @o. */
void text_print_json(struct json_object *o, int flags);
