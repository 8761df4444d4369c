/*
 * Tags: attributes that a person or a program gives to a node or a service, such as
 * "role=primary,zone=a", sorted by name, each name once. Pure.
 */
#pragma once

#include "base/base.h"

#define TAGS_MAX 512 /* bytes of the whole text, with the terminating NUL */
/* As many as fit: "a=b," has four letters. A list with more members is not read to its end. */
#define TAGS_COUNT_MAX (TAGS_MAX / 4)

/* Whether it is UTF-8 that D-Bus and JSON take, without controls and commas. */
bool tags_value_is_valid(const char *s);

/* Sets, or with an empty @value removes, one tag. A name is letters, digits and . _ - ; a value
 * is valid as above. Returns 0, -EINVAL, or -ENOSPC when it does not fit. */
must_check_ int tags_set(char tags[static TAGS_MAX], const char *name, const char *value);

/* Sets each tag of a list such as "a=1,b=2". Returns 0, -EINVAL or -ENOSPC. */
must_check_ int tags_set_list(char tags[static TAGS_MAX], const char *list);

/* Copies the next tag and advances *@cursor; false at the end. */
bool tags_next(const char **cursor, char name[static TAGS_MAX], char value[static TAGS_MAX]);
