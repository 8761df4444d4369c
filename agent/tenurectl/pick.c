#include "pick.h"

#include "base/conf.h"
#include "member/tags.h"
#include "text.h"

bool pick_word(const char *list, const char *word)
{
        char item[TAGS_MAX];

        if (!list)
                return true;
        while (list_next(&list, item, sizeof(item)))
                if (strcmp(item, word) == 0)
                        return true;
        return false;
}

bool pick_tags(const char *list, struct json_object *tags)
{
        struct json_object *value;
        char item[TAGS_MAX], *eq;

        while (list && list_next(&list, item, sizeof(item))) {
                eq = strchr(item, '=');
                if (eq)
                        *eq = '\0';
                if (!json_object_object_get_ex(tags, item, &value) ||
                    (eq && strcmp(json_object_get_string(value), eq + 1) != 0))
                        return false;
        }
        return true;
}
