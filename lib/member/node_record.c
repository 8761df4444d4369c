#include "member/node_record.h"

#include <ctype.h>

#include "base/utf8.h"
#include "member/json.h"

#define TEXT(key, field) JSON_TEXT(struct node_record, key, field)

static const struct json_text texts[] = {
        TEXT("name", name),
        TEXT("id", id),
        TEXT("incarnation", incarnation),
        TEXT("boot_id", boot_id),
        TEXT("since", since),
        TEXT("version", version),
        TEXT("os_release", os_release),
        TEXT("leaving", leaving),
        TEXT("leaving_note", leaving_note),
        TEXT("degraded", degraded),
};

bool node_name_is_valid(const char *name)
{
        size_t n = strlen(name);

        if (n == 0 || n > NODE_NAME_MAX || name[0] == '.')
                return false;
        for (; *name; name++)
                if (!isalnum((unsigned char) *name) && !strchr("._-:", *name))
                        return false;
        return true;
}

bool leaving_note_is_valid(const char *note)
{
        size_t n = strlen(note), i = 0, len = 1;

        for (; i < n && len > 0; i += len)
                len = utf8_dbus((const uint8_t *) note + i, n - i) > 0
                              ? utf8_printable((const uint8_t *) note + i, n - i)
                              : 0;
        return n <= LEAVING_NOTE_MAX && len > 0;
}

bool node_record_same(const struct node_record *a, const struct node_record *b)
{
        return json_same_texts(texts, ARRAY_SIZE(texts), a, b) && a->ttl_ms == b->ttl_ms &&
               strcmp(a->addresses, b->addresses) == 0 && strcmp(a->tags, b->tags) == 0;
}

void node_record_write(const struct node_record *n, struct buf *out)
{
        struct json_object *o = json_object_new_object();

        if (o) {
                json_put_texts(o, texts, ARRAY_SIZE(texts), n);
                json_object_object_add(o, "ttl_ms", json_object_new_int64(n->ttl_ms));
                json_put_list(o, "addresses", n->addresses);
                json_put_tags(o, "tags", n->tags);
        }
        json_finish(o, out);
}

int node_record_read(struct node_record *n, const void *p, size_t len)
{
        struct json_object *o, *field;
        int r;

        *n = (struct node_record){0};
        r = json_begin(p, len, &o);
        if (r < 0)
                return r;
        json_get_texts(o, texts, ARRAY_SIZE(texts), n);
        if (json_object_object_get_ex(o, "ttl_ms", &field) &&
            json_object_is_type(field, json_type_int))
                n->ttl_ms = json_object_get_int64(field);
        json_get_list(o, "addresses", n->addresses, sizeof(n->addresses));
        json_get_tags(o, "tags", n->tags);
        json_object_put(o);
        return 0;
}
