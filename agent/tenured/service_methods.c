/* Manager's methods about services and tags. */
#include <stdio.h>

#include "base/utf8.h"
#include "objects.h"
#include "root_object.h"

#define REGISTER NAME ".register-service"
#define SET_TAGS NAME ".set-tags"

/* Details for polkit's rules. */
#define service_details(a, name) \
        ((const char *const[]){"node", (a)->opt.node_name, "service", (name), NULL})

#define SERVICE_PROPERTIES 3

#define BAD_TAGS                                                                           \
        "Tags' names are letters, digits and . _ -, their values without commas, at most " \
        "511 bytes in all, with those in the settings."

#define BAD_NAMES                                                                      \
        "A service's and an instance's name are letters, digits and . _ - : (at most " \
        "63); a node's may have 255."

static int bad(sd_bus_error *error, const char *what)
{
        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "%s", what);
}

static bool are_names(const char *name, const char *instance)
{
        return service_name_is_valid(name) && (!*instance || service_name_is_valid(instance));
}

int method_get_service(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        cleanup_(freep) char *path = NULL;
        const char *name, *node, *instance;
        struct agent *a = userdata;
        struct service *s;
        int r;

        r = sd_bus_message_read(m, "sss", &name, &node, &instance);
        if (r < 0)
                return r;
        if (!are_names(name, instance) || !node_name_is_valid(node))
                return bad(error, BAD_NAMES); /* they may be long, so do not repeat them */
        s = services_find(member_services(a->member), name, node, instance);
        if (!s)
                return sd_bus_error_setf(error, NAME ".NoSuchService",
                                         "No service '%s'%s%s is on a node '%s'.", name,
                                         *instance ? " " : "", instance, node);
        if (!service_path(s, &path))
                return -ENOMEM;
        return sd_bus_reply_method_return(m, "o", path);
}

/* ---- files ---- */

static int append_field(sd_bus_message *m, const char *name, const char *text)
{
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "s");
        if (r >= 0)
                r = bus_append_text(m, text);
        for (int i = 0; r >= 0 && i < 2; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

static int append_entry(const struct entry_told *t, void *reply)
{
        const struct {
                const char *name, *text;
        } fields[] = {{"File", t->path},
                      {"State", t->state},
                      {"Reason", t->why},
                      {"Name", t->record->name},
                      {"Instance", t->record->instance},
                      {"Unit", t->record->unit}};
        int r = sd_bus_message_open_container(reply, 'a', "{sv}");

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(fields); i++)
                r = append_field(reply, fields[i].name, fields[i].text);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int method_get_service_entries(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        struct agent *a = userdata;
        int r = sd_bus_message_new_method_return(m, &reply);

        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "a{sv}");
        if (r >= 0)
                r = entries_each(&a->entries, append_entry, reply);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

/* ---- registration by programs ---- */

/* Ends at the first tag that is wrong or has no room: whatever the message has, and whoever may
 * send it, the loop that renews the place must go on. */
static int read_tags(sd_bus_message *m, char tags[static TAGS_MAX])
{
        const char *name, *value;
        int r = sd_bus_message_enter_container(m, 'a', "{ss}"), q = 0;

        for (int n = 0; r >= 0 && (r = sd_bus_message_read(m, "{ss}", &name, &value)) > 0;) {
                q = n++ < TAGS_COUNT_MAX ? tags_set(tags, name, value) : -ENOSPC;
                if (q < 0)
                        return q;
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int read_service(sd_bus_message *m, struct service_record *s, sd_bus_error *error)
{
        const char *name, *instance, *key, *text;
        char shown[64];
        int r = sd_bus_message_read(m, "ss", &name, &instance), n = 0;

        *s = (struct service_record){0};
        if (r < 0)
                return r;
        if (!are_names(name, instance))
                return bad(error, BAD_NAMES);
        strcpy(s->name, name);
        strcpy(s->instance, instance);
        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &key);
                if (r < 0)
                        break;
                if (++n > SERVICE_PROPERTIES)
                        return bad(error, "A service has Port, Address and Tags, each once.");
                if (strcmp(key, "Port") == 0) {
                        r = sd_bus_message_read(m, "v", "q", &s->port);
                } else if (strcmp(key, "Address") == 0) {
                        r = sd_bus_message_read(m, "v", "s", &text);
                        if (r >= 0 && !service_address_is_valid(text))
                                return bad(error, "Address is a host or an address.");
                        if (r >= 0)
                                strcpy(s->address, text);
                } else if (strcmp(key, "Tags") == 0) {
                        r = sd_bus_message_enter_container(m, 'v', "a{ss}");
                        if (r >= 0)
                                r = read_tags(m, s->tags);
                        if (r == -EINVAL || r == -ENOSPC)
                                return bad(error, BAD_TAGS);
                        if (r >= 0)
                                r = sd_bus_message_exit_container(m);
                } else {
                        return sd_bus_error_setf(
                                error, SD_BUS_ERROR_INVALID_ARGS,
                                "A service has no '%s'; it has Port, Address "
                                "and Tags.",
                                utf8_shown(key, strlen(key), shown, sizeof(shown)));
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r;
}

static int do_register(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        const char *file = NULL;
        struct service_record s;
        int r;

        r = sd_bus_message_rewind(m, 1);
        if (r >= 0)
                r = read_service(m, &s, error);
        if (r < 0)
                return r;
        if (!registry_owner(&a->registry, s.name, s.instance))
                file = entries_owner(&a->entries, s.name, s.instance);
        r = file ? -EEXIST : registry_add(&a->registry, m, &s);
        if (r == -EEXIST)
                return sd_bus_error_setf(
                        error, NAME ".ServiceExists",
                        "The service '%s'%s%s on this host is published by %s.", s.name,
                        *s.instance ? " " : "", s.instance, file ? file : "another program");
        if (r == -ENOSPC)
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "This host has %d services, which is the maximum.",
                                         MEMBER_PUBLISHED_MAX);
        return r < 0 ? r : sd_bus_reply_method_return(m, NULL);
}

int method_register_service(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        struct service_record s;
        /* Reject invalid services before polkit asks anybody, and long ones before the call is
         * kept until it has. */
        int r = read_service(m, &s, error);

        return r < 0 ? r
                     : authorize(&a->callers, m, REGISTER, service_details(a, s.name),
                                 do_register, a);
}

static int do_unregister(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        const char *name, *instance;
        int r = sd_bus_message_rewind(m, 1);

        if (r >= 0)
                r = sd_bus_message_read(m, "ss", &name, &instance);
        if (r < 0)
                return r;
        if (!are_names(name, instance))
                return bad(error, BAD_NAMES);
        if (!registry_owner(&a->registry, name, instance))
                return sd_bus_error_setf(error, NAME ".NoSuchService",
                                         "No program has registered a service '%s'%s%s here.",
                                         name, *instance ? " " : "", instance);
        registry_remove(&a->registry, name, instance);
        return sd_bus_reply_method_return(m, NULL);
}

int method_unregister_service(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *name, *instance, *owner, *sender = sd_bus_message_get_sender(m);
        struct agent *a = userdata;
        int r = sd_bus_message_read(m, "ss", &name, &instance);

        if (r < 0)
                return r;
        owner = registry_owner(&a->registry, name, instance);
        if (!owner || (sender && strcmp(owner, sender) == 0))
                return do_unregister(m, a, error);
        return authorize(&a->callers, m, REGISTER, service_details(a, name), do_unregister, a);
}

/* ---- tags ---- */

static bool has_tag(const char *tags, const char *name)
{
        char n[TAGS_MAX], value[TAGS_MAX];

        while (tags_next(&tags, n, value))
                if (strcmp(n, name) == 0)
                        return true;
        return false;
}

/* The first of the tags to be removed that is not: it is in the settings, and was not set here.
 * Borrowed from @m. */
static const char *kept_by_settings(struct agent *a, sd_bus_message *m)
{
        const char *name, *value;

        if (sd_bus_message_rewind(m, 1) < 0 ||
            sd_bus_message_enter_container(m, 'a', "{ss}") < 0)
                return NULL;
        while (sd_bus_message_read(m, "{ss}", &name, &value) > 0)
                if (!*value && !has_tag(a->registry.tags, name) && has_tag(a->opt.tags, name))
                        return name;
        return NULL;
}

/* Reads what is to be set over D-Bus from then on, if all of it can be published. */
static int read_changes(struct agent *a, sd_bus_message *m, char tags[static TAGS_MAX],
                        sd_bus_error *error)
{
        char all[TAGS_MAX], shown[64];
        const char *kept;
        int r;

        memcpy(tags, a->registry.tags, TAGS_MAX);
        r = read_tags(m, tags);
        if (r >= 0)
                r = publish_tags(a, tags, all);
        if (r == -EINVAL || r == -ENOSPC)
                return bad(error, BAD_TAGS);
        kept = r < 0 ? NULL : kept_by_settings(a, m);
        if (kept)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "The tag '%s' is in the settings, which alone can "
                                         "remove it; set another value here.",
                                         utf8_shown(kept, strlen(kept), shown, sizeof(shown)));
        return r;
}

static int do_set_tags(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        char tags[TAGS_MAX];
        int r = sd_bus_message_rewind(m, 1);

        if (r >= 0)
                r = read_changes(a, m, tags, error);
        if (r < 0)
                return r;
        memcpy(a->registry.tags, tags, sizeof(tags));
        registry_save(&a->registry);
        agent_publish(a);
        return sd_bus_reply_method_return(m, NULL);
}

int method_set_tags(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        char tags[TAGS_MAX];
        int r = read_changes(a, m, tags,
                             error); /* as a service is read, before polkit is asked */

        return r < 0 ? r
                     : authorize(&a->callers, m, SET_TAGS,
                                 ((const char *const[]){"node", a->opt.node_name, NULL}),
                                 do_set_tags, a);
}
