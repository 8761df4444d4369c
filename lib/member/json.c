#include "member/json.h"

#include <stdio.h>

#include "base/conf.h"
#include "base/utf8.h"

/* Anybody may have written the text, and the bus would reject every list with a text that is
 * not valid UTF-8. So invalid characters become question marks, and text that does not fit is
 * cut off. */
static const char *text_of(struct json_object *o, char *out, size_t size)
{
        const uint8_t *s = (const uint8_t *) json_object_get_string(o);
        size_t n = strlen((const char *) s), k = 0, len;

        while (k < n && k + max_of(utf8_dbus(s + k, n - k), (size_t) 1) < size) {
                len = max_of(utf8_dbus(s + k, n - k), (size_t) 1);
                memcpy(out + k, s + k, len);
                k += len;
        }
        utf8_dbus_mend(out, k);
        out[k] = '\0';
        return out;
}

void json_put_texts(struct json_object *o, const struct json_text *t, size_t n,
                    const void *record)
{
        for (size_t i = 0; i < n; i++) {
                const char *s = (const char *) record + t[i].offset;

                if (*s)
                        json_object_object_add(o, t[i].key, json_object_new_string(s));
        }
}

void json_get_texts(struct json_object *o, const struct json_text *t, size_t n, void *record)
{
        struct json_object *field;

        for (size_t i = 0; i < n; i++)
                if (json_object_object_get_ex(o, t[i].key, &field) &&
                    json_object_is_type(field, json_type_string))
                        text_of(field, (char *) record + t[i].offset, t[i].size);
}

bool json_same_texts(const struct json_text *t, size_t n, const void *a, const void *b)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp((const char *) a + t[i].offset, (const char *) b + t[i].offset) != 0)
                        return false;
        return true;
}

void json_put_tags(struct json_object *o, const char *key, const char *tags)
{
        char name[TAGS_MAX], value[TAGS_MAX];
        struct json_object *all;

        if (!*tags)
                return;
        all = json_object_new_object();
        while (tags_next(&tags, name, value))
                json_object_object_add(all, name, json_object_new_string(value));
        json_object_object_add(o, key, all);
}

void json_get_tags(struct json_object *o, const char *key, char tags[static TAGS_MAX])
{
        struct json_object *all;
        char text[TAGS_MAX];
        size_t n = 0;

        if (!json_object_object_get_ex(o, key, &all) ||
            !json_object_is_type(all, json_type_object))
                return;
        /* Setting a tag takes time in proportion to the tags that are kept, so the loop is
         * bounded. A value that is no text, or does not fit, is left out. */
        json_object_object_foreach (all, name, value)
                if (n++ < TAGS_COUNT_MAX && json_object_is_type(value, json_type_string) &&
                    json_object_get_string_len(value) < TAGS_MAX)
                        (void) !tags_set(tags, name, text_of(value, text, sizeof(text)));
}

void json_put_list(struct json_object *o, const char *key, const char *list)
{
        struct json_object *all;
        char item[TAGS_MAX];

        if (!*list)
                return;
        all = json_object_new_array();
        while (list_next(&list, item, sizeof(item)))
                json_object_array_add(all, json_object_new_string(item));
        json_object_object_add(o, key, all);
}

void json_get_list(struct json_object *o, const char *key, char *list, size_t size)
{
        struct json_object *all;
        size_t len = 0;

        list[0] = '\0';
        if (!json_object_object_get_ex(o, key, &all) ||
            !json_object_is_type(all, json_type_array))
                return;
        for (size_t i = 0; i < json_object_array_length(all); i++) {
                struct json_object *item = json_object_array_get_idx(all, i);
                const char *s = json_object_get_string(item);

                if (!json_object_is_type(item, json_type_string) || !*s || strchr(s, ','))
                        continue;
                if (len + strlen(s) + 2 > size)
                        return;
                if (len > 0)
                        list[len++] = ',';
                len += strlen(text_of(item, list + len, size - len));
        }
}

void json_finish(struct json_object *o, struct buf *out)
{
        const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN) : NULL;

        if (text)
                buf_add(out, text, strlen(text));
        else
                out->failed = true;
        json_object_put(o);
}

int json_begin(const void *p, size_t len, struct json_object **ret)
{
        struct json_tokener *t = json_tokener_new_ex(8);
        struct json_object *o = NULL;

        if (!t)
                return -ENOMEM;
        if (len > 0 && len <= RECORD_MAX)
                o = json_tokener_parse_ex(t, p, (int) len);
        json_tokener_free(t);
        if (o && json_object_is_type(o, json_type_object)) {
                *ret = o;
                return 0;
        }
        json_object_put(o);
        return -EBADMSG;
}
