#include "client/node_record.h"

#include <ctype.h>
#include <json-c/json.h>
#include <stdio.h>

#define VALUE_MAX 65536

static const struct {
        const char *key;
        size_t offset, size;
} strings[] = {
        {"name", offsetof(struct node_record, name), sizeof(((struct node_record *) 0)->name)},
        {"id", offsetof(struct node_record, id), sizeof(((struct node_record *) 0)->id)},
        {"incarnation", offsetof(struct node_record, incarnation),
         sizeof(((struct node_record *) 0)->incarnation)},
        {"boot_id", offsetof(struct node_record, boot_id),
         sizeof(((struct node_record *) 0)->boot_id)},
        {"since", offsetof(struct node_record, since),
         sizeof(((struct node_record *) 0)->since)},
        {"version", offsetof(struct node_record, version),
         sizeof(((struct node_record *) 0)->version)},
        {"leaving", offsetof(struct node_record, leaving),
         sizeof(((struct node_record *) 0)->leaving)},
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

void node_record_write(const struct node_record *n, struct buf *out)
{
        struct json_object *o = json_object_new_object();
        const char *text;

        if (!o) {
                out->failed = true;
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
                const char *s = (const char *) n + strings[i].offset;

                if (*s)
                        json_object_object_add(o, strings[i].key, json_object_new_string(s));
        }
        json_object_object_add(o, "ttl_ms", json_object_new_int64(n->ttl_ms));
        text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        if (text)
                buf_add(out, text, strlen(text));
        else
                out->failed = true;
        json_object_put(o);
}

int node_record_read(struct node_record *n, const void *p, size_t len)
{
        struct json_tokener *t = json_tokener_new_ex(8);
        struct json_object *o = NULL, *field;

        *n = (struct node_record){0};
        if (!t)
                return -ENOMEM;
        if (len > 0 && len <= VALUE_MAX)
                o = json_tokener_parse_ex(t, p, (int) len);
        json_tokener_free(t);
        if (!o)
                return -EBADMSG;
        if (!json_object_is_type(o, json_type_object)) {
                json_object_put(o);
                return -EBADMSG;
        }
        for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
                if (json_object_object_get_ex(o, strings[i].key, &field) &&
                    json_object_is_type(field, json_type_string))
                        snprintf((char *) n + strings[i].offset, strings[i].size, "%s",
                                 json_object_get_string(field));
        if (json_object_object_get_ex(o, "ttl_ms", &field) &&
            json_object_is_type(field, json_type_int))
                n->ttl_ms = json_object_get_int64(field);
        json_object_put(o);
        return 0;
}
