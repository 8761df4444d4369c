#include "member/service_record.h"

#include "member/json.h"

#define TEXT(key, field) JSON_TEXT(struct service_record, key, field)

static const struct json_text texts[] = {
        TEXT("service", name),    TEXT("node", node),   TEXT("instance", instance),
        TEXT("address", address), TEXT("unit", unit),   TEXT("invocation", invocation),
        TEXT("state", state),     TEXT("since", since),
};

bool service_name_is_valid(const char *name)
{
        return strlen(name) <= SERVICE_NAME_MAX && node_name_is_valid(name);
}

bool service_address_is_valid(const char *address)
{
        return strlen(address) < sizeof(((struct service_record *) NULL)->address) &&
               tags_value_is_valid(address) && !strchr(address, ' ');
}

void service_record_write(const struct service_record *s, struct buf *out)
{
        struct json_object *o = json_object_new_object();

        if (o) {
                json_put_texts(o, texts, ARRAY_SIZE(texts), s);
                if (s->port > 0)
                        json_object_object_add(o, "port", json_object_new_int(s->port));
                json_put_tags(o, "tags", s->tags);
        }
        json_finish(o, out);
}

int service_record_read(struct service_record *s, const void *p, size_t len)
{
        struct json_object *o, *field;
        int64_t port;
        int r;

        *s = (struct service_record){0};
        r = json_begin(p, len, &o);
        if (r < 0)
                return r;
        json_get_texts(o, texts, ARRAY_SIZE(texts), s);
        if (json_object_object_get_ex(o, "port", &field) &&
            json_object_is_type(field, json_type_int)) {
                port = json_object_get_int64(field);
                s->port = (uint16_t) (port > 0 && port <= UINT16_MAX ? port : 0);
        }
        json_get_tags(o, "tags", s->tags);
        json_object_put(o);
        return 0;
}

void service_record_key(const struct service_record *s, struct buf *out)
{
        buf_printf(out, "%s/%s%s%s", s->name, s->node, *s->instance ? "/" : "", s->instance);
}

int service_record_read_key(struct service_record *s, struct view key)
{
        struct {
                char *at;
                size_t size;
        } part[] = {{s->name, sizeof(s->name)},
                    {s->node, sizeof(s->node)},
                    {s->instance, sizeof(s->instance)}};
        size_t i = 0;

        s->instance[0] = '\0';
        for (; i < ARRAY_SIZE(part); i++) {
                const uint8_t *slash = memchr(key.p, '/', key.len);
                size_t n = slash ? (size_t) (slash - key.p) : key.len;

                if (n == 0 || n >= part[i].size)
                        return -EBADMSG;
                memcpy(part[i].at, key.p, n);
                part[i].at[n] = '\0';
                if (strlen(part[i].at) != n || !node_name_is_valid(part[i].at))
                        return -EBADMSG;
                key = (struct view){key.p + n, key.len - n};
                if (!slash)
                        return i > 0 ? 0 : -EBADMSG;
                key = (struct view){key.p + 1, key.len - 1};
        }
        return -EBADMSG; /* more than three parts */
}
