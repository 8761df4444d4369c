/* Filters of lists; each is a list of words with commas between them. NULL: all are picked. */
#pragma once

#include <json-c/json.h>

#include "base/base.h"

/* Whether @word is one of the list. */
must_check_ bool pick_word(const char *list, const char *word);
/* Whether the object @tags has each tag of the list: NAME, or NAME=VALUE. */
must_check_ bool pick_tags(const char *list, struct json_object *tags);
