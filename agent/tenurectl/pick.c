#include "pick.h"

#include "text.h"

bool pick_next(const char **list, struct view *ret)
{
        const char *end = *list ? strchrnul(*list, ',') : NULL;

        if (!end)
                return false;
        *ret = (struct view){(const uint8_t *) *list, (size_t) (end - *list)};
        *list = *end && end[1] ? end + 1 : NULL; /* as in settings, a comma may end it */
        return true;
}

static bool is(struct view item, const char *word, size_t len)
{
        return item.len == len && memcmp(item.p, word, len) == 0;
}

bool pick_item(const char *list, struct view word)
{
        struct view item;

        while (pick_next(&list, &item))
                if (is(word, (const char *) item.p, item.len))
                        return true;
        return false;
}

bool pick_word(const char *list, const char *word)
{
        return !list || pick_item(list, view_str(word));
}

/* @tag: NAME, or NAME=VALUE. */
static bool has_tag(struct json_object *tags, struct view tag)
{
        const uint8_t *eq = memchr(tag.p, '=', tag.len);
        struct view name = {tag.p, eq ? (size_t) (eq - tag.p) : tag.len};
        struct view value = {tag.p + name.len + 1, eq ? tag.len - name.len - 1 : 0};

        json_object_object_foreach (tags, key, text)
                if (is(name, key, strlen(key)))
                        return !eq || is(value, json_object_get_string(text),
                                         (size_t) json_object_get_string_len(text));
        return false;
}

bool pick_tags(const char *list, struct json_object *tags)
{
        struct view tag;

        while (pick_next(&list, &tag))
                if (!has_tag(tags, tag))
                        return false;
        return true;
}
