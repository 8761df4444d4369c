/* Converts fields of the records in the core to and from JSON. For the files of member/ only.
 */
#pragma once

#include <json-c/json.h>

#include "base/base.h"
#include "base/buf.h"
#include "member/tags.h"

/* A larger value, of a node or a service, is not read: an agent's own have at most some 8 KiB.
 * Every agent parses every record, so this bounds what one record costs them. */
#define RECORD_MAX 65536

/* A text field of a record: its key in JSON, and its place in the struct. */
struct json_text {
        const char *key;
        size_t offset, size;
};

#define JSON_TEXT(type, key, field)                                     \
        {                                                               \
                key, offsetof(type, field), sizeof(((type *) 0)->field) \
        }

/* Adds the fields that are not empty. */
void json_put_texts(struct json_object *o, const struct json_text *t, size_t n,
                    const void *record);
bool json_same_texts(const struct json_text *t, size_t n, const void *a, const void *b);
void json_get_texts(struct json_object *o, const struct json_text *t, size_t n, void *record);

/* An object of strings. Reads its first TAGS_COUNT_MAX members; those that are not valid tags,
 * or do not fit, are left out. */
void json_put_tags(struct json_object *o, const char *key, const char *tags);
void json_get_tags(struct json_object *o, const char *key, char tags[static TAGS_MAX]);

/* Items joined by commas: an array of strings. */
void json_put_list(struct json_object *o, const char *key, const char *list);
void json_get_list(struct json_object *o, const char *key, char *list, size_t size);

/* Writes @o to @out, and releases @o; if @o is NULL, the buffer fails. */
void json_finish(struct json_object *o, struct buf *out);

/* At most RECORD_MAX bytes. Returns 0 and an object to json_object_put(), -EBADMSG or -ENOMEM.
 */
must_check_ int json_begin(const void *p, size_t len, struct json_object **ret);
