/* Prints the agent's properties and lists, which come over D-Bus, as JSON. */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "ctl.h"
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
        return c->json == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                      : JSON_C_TO_STRING_PLAIN;
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

static struct json_object *json_hex(int64_t v)
{
        char text[24];

        snprintf(text, sizeof(text), "%016" PRIx64, (uint64_t) v);
        return json_object_new_string(text);
}

/* Reads a list of strings, or of pairs of them. */
static int read_list(sd_bus_message *m, struct json_object **ret)
{
        struct json_object *o = json_object_new_array();
        const char *s;
        int r = sd_bus_message_enter_container(m, 'v', "as");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "s");
        while (r >= 0 && (r = sd_bus_message_read(m, "s", &s)) > 0)
                json_object_array_add(o, json_object_new_string(s));
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        *ret = o;
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int read_pairs(sd_bus_message *m, struct json_object **ret)
{
        struct json_object *o = json_object_new_object();
        const char *k, *s;
        int r = sd_bus_message_enter_container(m, 'v', "a{ss}");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "{ss}");
        while (r >= 0 && (r = sd_bus_message_read(m, "{ss}", &k, &s)) > 0)
                json_object_object_add(o, k, json_object_new_string(s));
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        *ret = o;
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int ctl_read_properties(sd_bus_message *m, struct json_object *o)
{
        int r = sd_bus_message_enter_container(m, 'a', "{sv}");

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                struct json_object *list = NULL;
                const char *key, *type, *s;
                uint16_t q;
                uint64_t t;
                int64_t x;
                int b;

                r = sd_bus_message_read(m, "s", &key);
                if (r >= 0)
                        r = sd_bus_message_peek_type(m, NULL, &type);
                if (r < 0)
                        break;
                if (strcmp(type, "as") == 0 || strcmp(type, "a{ss}") == 0) {
                        r = type[1] == 's' ? read_list(m, &list) : read_pairs(m, &list);
                        json_object_object_add(o, key, list);
                } else if (strcmp(type, "q") == 0 &&
                           (r = sd_bus_message_read(m, "v", "q", &q)) >= 0)
                        json_object_object_add(o, key, json_object_new_int(q));
                else if (strcmp(type, "s") == 0 &&
                         (r = sd_bus_message_read(m, "v", "s", &s)) >= 0)
                        json_object_object_add(o, key, json_object_new_string(s));
                else if (strcmp(type, "t") == 0 &&
                         (r = sd_bus_message_read(m, "v", "t", &t)) >= 0)
                        json_object_object_add(o, key, json_object_new_int64((int64_t) t));
                else if (strcmp(type, "x") == 0 &&
                         (r = sd_bus_message_read(m, "v", "x", &x)) >= 0)
                        json_object_object_add(o, key,
                                               strcmp(key, "LeaseId") == 0
                                                       ? json_hex(x)
                                                       : json_object_new_int64(x));
                else if (strcmp(type, "b") == 0 &&
                         (r = sd_bus_message_read(m, "v", "b", &b)) >= 0)
                        json_object_object_add(o, key, json_object_new_boolean(b));
                else if (r >= 0)
                        r = sd_bus_message_skip(m, "v");
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                struct json_object **ret)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct json_object *o = json_object_new_object();
        int r;

        r = sd_bus_call_method(c->bus, NAME, path, "org.freedesktop.DBus.Properties", "GetAll",
                               &error, &m, "s", interface);
        if (r >= 0)
                r = ctl_read_properties(m, o);
        if (r < 0) {
                json_object_put(o);
                return ctl_fail("cannot ask the agent", r, &error);
        }
        *ret = o;
        return 0;
}

const char *ctl_text(struct json_object *o, const char *key)
{
        struct json_object *v;

        return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

const char *ctl_shown(struct json_object *o, const char *key, char out[static CTL_SHOWN])
{
        const char *text = ctl_text(o, key);

        return utf8_shown(text, strlen(text), out, CTL_SHOWN);
}

const char *ctl_cell(struct json_object *o, const char *key, char out[static TEXT_CELL])
{
        return text_cell(ctl_text(o, key), out);
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
                struct json_object *o = json_object_new_object();

                r = sd_bus_message_read(m, "o", &at);
                if (r >= 0)
                        r = ctl_read_properties(m, o);
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

static void print_list(const struct ctl *c, const struct listing *l, struct json_object *all)
{
        size_t n = json_object_array_length(all);

        if (c->json != JSON_OFF)
                return ctl_print(c, json_object_get(all));
        if (c->legend)
                l->head();
        for (size_t i = 0; i < n; i++)
                l->row(json_object_array_get_idx(all, i));
        if (c->legend)
                printf("\n%zu %s(s).\n", n, l->thing);
}

int ctl_list(struct ctl *c, const struct listing *l, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct json_object *all = json_object_new_array();
        cleanup_(buf_fini) struct buf missing = {0};
        cleanup_(freep) char *path = strdup("/");
        char what[64];
        int r = path ? 1 : -ENOMEM;

        snprintf(what, sizeof(what), "cannot list the %ss", l->thing);
        while (r > 0)
                r = read_page(c, l, argc, argv, &path, all, &error);
        if (r == 0)
                print_list(c, l, all);
        for (int i = 0; r == 0 && i < argc; i++)
                if (!has(all, argv[i]))
                        buf_printf(&missing, "%s'%s'", buf_len(&missing) > 0 ? ", " : "",
                                   argv[i]);
        json_object_put(all);
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
