/* Prints the agent's properties and lists, which come over D-Bus, as JSON. */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "bus/signals.h"
#include "ctl.h"
#include "table.h"
#include "text.h"

/* How often an agent that is not connected to a core is asked again. */
#define CONNECTED_TRIES 50
#define CONNECTED_AGAIN_MS 100

int ctl_fail(const char *what, int r, const sd_bus_error *error)
{
        if (error && sd_bus_error_has_name(error, SD_BUS_ERROR_SERVICE_UNKNOWN))
                return say("no agent answers on this bus; is tenured running? (systemctl "
                           "status tenured)");
        return say("%s: %s", what, error && error->message ? error->message : strerror(-r));
}

int ctl_json_flags(const struct ctl *c)
{
        return JSON_C_TO_STRING_NOSLASHESCAPE |
               (c->json == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                       : JSON_C_TO_STRING_PLAIN);
}

void ctl_print(const struct ctl *c, struct json_object *o)
{
        if (c->taken)
                *c->taken = o;
        else
                text_print_json(o, ctl_json_flags(c));
}

void ctl_did(struct ctl *c, struct json_object *o, const char *fmt, ...)
{
        va_list ap;

        free(c->done);
        va_start(ap, fmt);
        if (vasprintf(&c->done, fmt, ap) < 0)
                c->done = NULL;
        va_end(ap);
        if (c->json != JSON_OFF)
                return ctl_print(c, o);
        json_object_put(o);
        for (const char *p = c->done; p && *p; p += strcspn(p, "\n"), p += *p == '\n')
                text_say(stdout, "%.*s", (int) strcspn(p, "\n"), p);
}

static int read_value(sd_bus_message *m, struct json_object **ret);

/* Reads the rest of an array into @o: a list, or an object if its elements are pairs. */
static int read_elements(sd_bus_message *m, struct json_object *o)
{
        bool pairs = json_object_is_type(o, json_type_object);
        struct json_object *v;
        const char *key;
        char id[24];
        int r = 0;

        while (r >= 0 && (r = sd_bus_message_at_end(m, false)) == 0) {
                if (pairs)
                        r = sd_bus_message_enter_container(m, 'e', NULL);
                if (r >= 0 && pairs)
                        r = sd_bus_message_read_basic(m, 's', &key);
                if (r >= 0)
                        r = read_value(m, &v);
                if (r >= 0 && pairs && strcmp(key, "LeaseId") == 0) {
                        snprintf(id, sizeof(id), "%016" PRIx64,
                                 (uint64_t) json_object_get_int64(v));
                        json_object_put(v);
                        v = json_object_new_string(id);
                }
                if (r >= 0 && pairs)
                        json_object_object_add(o, key, v);
                else if (r >= 0)
                        json_object_array_add(o, v);
                if (r >= 0 && pairs)
                        r = sd_bus_message_exit_container(m);
        }
        return r;
}

static int read_value(sd_bus_message *m, struct json_object **ret)
{
        union {
                int b;
                uint16_t q;
                uint32_t u;
                int64_t x;
                const char *s;
        } v;
        const char *inside;
        char type;
        int r = sd_bus_message_peek_type(m, &type, &inside);

        *ret = NULL;
        if (r >= 0 && (type == 'v' || type == 'a')) {
                r = sd_bus_message_enter_container(m, type, inside);
                if (r >= 0 && type == 'a') {
                        *ret = *inside == '{' ? json_object_new_object()
                                              : json_object_new_array();
                        r = read_elements(m, *ret);
                } else if (r >= 0) {
                        r = read_value(m, ret);
                }
                return r < 0 ? r : sd_bus_message_exit_container(m);
        }
        if (r >= 0)
                r = sd_bus_message_read_basic(m, type, &v);
        if (r < 0)
                return r;
        switch (type) {
        case 'b':
                *ret = json_object_new_boolean(v.b);
                break;
        case 'q':
                *ret = json_object_new_int(v.q);
                break;
        case 'u':
                *ret = json_object_new_int64(v.u);
                break;
        case 't': /* fits: all values of the agent are smaller */
        case 'x':
                *ret = json_object_new_int64(v.x);
                break;
        case 's':
                *ret = json_object_new_string(v.s);
                break;
        }
        return 0;
}

int ctl_read_properties(sd_bus_message *m, struct json_object **ret)
{
        int r = read_value(m, ret);

        if (r < 0) {
                json_object_put(*ret);
                *ret = NULL;
        }
        return r;
}

int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                struct json_object **ret)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = sd_bus_call_method(c->bus, NAME, path, DBUS_PROPERTIES, "GetAll", &error, &m, "s",
                               interface);
        if (r >= 0)
                r = ctl_read_properties(m, ret);
        return r < 0 ? ctl_fail("cannot ask the agent", r, &error) : 0;
}

const char *ctl_text(struct json_object *o, const char *key)
{
        struct json_object *v;

        /* JSON's null is NULL, too. */
        return json_object_object_get_ex(o, key, &v) && v ? json_object_get_string(v) : "";
}

const char *ctl_shown(struct json_object *o, const char *key, char out[static TEXT_SHOWN])
{
        return text_shown(ctl_text(o, key), out);
}

int64_t ctl_number(struct json_object *o, const char *key)
{
        struct json_object *v;

        return json_object_object_get_ex(o, key, &v) ? json_object_get_int64(v) : 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
        for (int i = 0; i < argc; i++)
                if (strcmp(argv[i], name) == 0)
                        return true;
        return argc == 0;
}

/* Reads the page of the list that follows @path, and sets *@path to the page's last entry.
 * Returns the number of entries, or a negative errno. */
static int read_page(struct ctl *c, const struct listing *l, int argc, char **argv, char **path,
                     struct json_object *all, sd_bus_error *error)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        const char *at;
        int n = 0, r;

        r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, l->method, error, &m, "ou", *path,
                               (uint32_t) 0);
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "(oa{sv})");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'r', "oa{sv}")) > 0) {
                struct json_object *o = NULL;

                r = sd_bus_message_read(m, "o", &at);
                if (r >= 0)
                        r = ctl_read_properties(m, &o);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r >= 0 && is_wanted(ctl_text(o, "Name"), argc, argv))
                        json_object_array_add(all, o);
                else
                        json_object_put(o);
                n++;
                if (r < 0)
                        break;
                free(*path);
                *path = strdup(at);
                if (!*path)
                        return -ENOMEM;
        }
        return r < 0 ? r : n;
}

static bool has(struct json_object *all, const char *name)
{
        for (size_t i = 0; i < json_object_array_length(all); i++)
                if (strcmp(ctl_text(json_object_array_get_idx(all, i), "Name"), name) == 0)
                        return true;
        return false;
}

int ctl_list(struct ctl *c, const struct listing *l, void *arg, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct json_object *all = json_object_new_array(), *kept = json_object_new_array();
        cleanup_(buf_fini) struct buf missing = {0};
        cleanup_(freep) char *path = strdup("/");
        char what[64];
        int r = path ? 1 : -ENOMEM;

        snprintf(what, sizeof(what), "cannot list the %ss", l->thing);
        while (r > 0)
                r = read_page(c, l, argc, argv, &path, all, &error);
        for (size_t i = 0; r == 0 && i < json_object_array_length(all); i++) {
                struct json_object *o = json_object_array_get_idx(all, i);

                if (!l->keep || l->keep(c, o, arg))
                        json_object_array_add(kept, json_object_get(o));
        }
        if (r == 0)
                table_print(c, kept, l->columns, l->n_columns);
        if (r == 0 && c->json == JSON_OFF && c->legend)
                printf("\n%zu %s(s).\n", json_object_array_length(kept), l->thing);
        for (int i = 0; r == 0 && i < argc; i++)
                if (!has(all, argv[i]))
                        buf_printf(&missing, "%s'%s'", buf_len(&missing) > 0 ? ", " : "",
                                   argv[i]);
        json_object_put(all);
        json_object_put(kept);
        if (r < 0)
                return ctl_fail(what, r, &error);
        if (buf_len(&missing) == 0)
                return 0;
        return say("no such %s: %.*s", l->thing, (int) buf_len(&missing),
                   (const char *) buf_head(&missing));
}

bool ctl_is_held(struct json_object *manager)
{
        const char *state = ctl_text(manager, "State");

        return strcmp(state, "held") == 0 || strcmp(state, "jeopardy") == 0;
}

int ctl_get_connected(struct ctl *c, struct json_object **ret)
{
        int r;

        for (int tries = 0;; tries++) {
                r = ctl_get_all(c, ROOT, MANAGER, ret);
                if (r < 0 || *ctl_text(*ret, "CoreEndpoint") || !ctl_is_held(*ret) ||
                    tries == CONNECTED_TRIES)
                        return r;
                json_object_put(*ret);
                poll(NULL, 0, CONNECTED_AGAIN_MS);
        }
}
