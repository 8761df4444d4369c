#include "entry_file.h"

#include <stdio.h>
#include <sys/stat.h>

struct settings {
        char *name, *instance, *unit, *address, *tags;
        uint64_t port;
};

#define FIELD(f) offsetof(struct settings, f)

/* clang-format off */
static const struct conf_option table[] = {
        {"Service", "Name", NULL, CONF_STRING, FIELD(name), NULL, "the service's name [the file's]", 0, 0, true, NULL},
        {"Service", "Instance", NULL, CONF_STRING, FIELD(instance), "", "distinguishes several services of one name on one host", 0, 0, true, NULL},
        {"Service", "Unit", NULL, CONF_STRING, FIELD(unit), "", "the unit whose ActiveState= decides whether the service is there; empty: it is there as long as the host is", 0, 0, true, NULL},
        {"Service", "Address", NULL, CONF_STRING, FIELD(address), "", "the address it listens on; empty: the host's address", 0, 0, true, NULL},
        {"Service", "Port", NULL, CONF_UINT, FIELD(port), "0", "the port it listens on; 0: none", 0, 65535, true, NULL},
        {"Service", "Tags", NULL, CONF_LIST, FIELD(tags), "", "attributes, name=value", 0, 0, true, NULL},
};
/* clang-format on */

static int refuse(struct conf_error *err, const char *path, const char *why)
{
        snprintf(err->text, sizeof(err->text), "%s: %s", path, why);
        return -EINVAL;
}

static int check(struct settings *s, const char *path, const char *file_name,
                 struct service_record *r, struct conf_error *err)
{
        const char *name = s->name ? s->name : file_name;
        const char *dot = strrchr(s->unit, '.');

        *r = (struct service_record){.port = (uint16_t) s->port};
        if (!service_name_is_valid(name))
                return refuse(err, path,
                              "Name= must be letters, digits and . _ - : (at most 63)");
        if (*s->instance && !service_name_is_valid(s->instance))
                return refuse(err, path,
                              "Instance= must be letters, digits and . _ - : (at most 63)");
        if (*s->unit && (!dot || !dot[1] || strlen(s->unit) >= sizeof(r->unit) ||
                         !tags_value_is_valid(s->unit)))
                return refuse(err, path,
                              "Unit= must be a unit's full name such as web.service");
        if (!service_address_is_valid(s->address))
                return refuse(err, path, "Address= must be a host or an address");
        if (tags_set_list(r->tags, s->tags) < 0)
                return refuse(err, path,
                              "Tags= must be name=value in UTF-8, at most 511 bytes in all");
        strcpy(r->name, name);
        strcpy(r->instance, s->instance);
        strcpy(r->unit, s->unit);
        strcpy(r->address, s->address);
        return 0;
}

int entry_file_read(const char *path, const char *name, struct service_record *ret,
                    struct conf_error *err)
{
        struct settings s = {0};
        struct stat st;
        int r;

        if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size == 0))
                return 0;
        r = conf_defaults(table, ARRAY_SIZE(table), &s);
        if (r == 0)
                r = conf_read_file(table, ARRAY_SIZE(table), &s, path, err);
        if (r == 0)
                r = check(&s, path, name, ret, err);
        conf_clear(table, ARRAY_SIZE(table), &s);
        return r < 0 ? r : 1;
}
