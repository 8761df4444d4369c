/* Filters of lists; each is a list of words with commas between them. NULL: all are picked. */
#pragma once

#include <json-c/json.h>

#include "base/base.h"
#include "base/buf.h"

/* Takes the next item from *@list, which becomes NULL after the last one. Returns false if it
 * is NULL. */
must_check_ bool pick_next(const char **list, struct view *ret);
/* Whether @word is one of the list. */
must_check_ bool pick_word(const char *list, const char *word);
/* Like pick_word(), but the word has no NUL at its end; @list is not NULL. */
must_check_ bool pick_item(const char *list, struct view word);
/* Whether the object @tags has each tag of the list: NAME, or NAME=VALUE. */
must_check_ bool pick_tags(const char *list, struct json_object *tags);
