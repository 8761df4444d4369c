/* The content of the answers that are written piece by piece (lists.h). */
#include <inttypes.h>

#include "lists.h"

#define PAGE_BYTES (4 << 20)
#define INTROSPECTABLE "org.freedesktop.DBus.Introspectable"

/* Estimated size of an object, besides its texts, and of an item of a short list. A message
 * takes about four times the letters of short texts. */
#define OBJECT_BYTES 700
#define ITEM_BYTES 64

static int open_array(struct list *l, const char *of)
{
        int r = sd_bus_message_new_method_return(l->call, &l->reply);

        return r < 0 ? r : sd_bus_message_open_container(l->reply, 'a', of);
}

static int close_array(struct list *l)
{
        return sd_bus_message_close_container(l->reply);
}

/* ---- short lists ---- */

static int begin_nodes(struct list *l, sd_bus_error *error unused_)
{
        return open_array(l, "(ssxo)");
}

static int next_node(struct list *l)
{
        cleanup_(freep) char *path = NULL;
        struct object o;
        int r;

        if (!objects_next(l->agent, &l->at, &o) || !o.node)
                return 0;
        if (!objects_path(&o, &path))
                return -ENOMEM;
        l->bytes += ITEM_BYTES + strlen(o.node->record.name) + strlen(o.node->record.id) +
                    strlen(path);
        r = sd_bus_message_open_container(l->reply, 'r', "ssxo");
        if (r >= 0)
                r = bus_append_text(l->reply, o.node->record.name);
        if (r >= 0)
                r = bus_append_text(l->reply, o.node->record.id);
        if (r >= 0)
                r = sd_bus_message_append(l->reply, "xo", o.node->mod_revision, path);
        if (r >= 0)
                r = sd_bus_message_close_container(l->reply);
        return r < 0 ? r : 1;
}

static int begin_services(struct list *l, sd_bus_error *error unused_)
{
        l->at.services = true;
        return open_array(l, "(sssxo)");
}

static int next_service(struct list *l)
{
        cleanup_(freep) char *path = NULL;
        struct object o;
        int r;

        if (!objects_next(l->agent, &l->at, &o))
                return 0;
        if (!objects_path(&o, &path))
                return -ENOMEM;
        l->bytes += ITEM_BYTES + 3 * strlen(path); /* the path has all three texts, and more */
        r = sd_bus_message_append(l->reply, "(sssxo)", o.service->name, o.service->node,
                                  o.service->instance, o.service->mod_revision, path);
        return r < 0 ? r : 1;
}

int method_list_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        static const struct list_kind kind = {OF_NODES, begin_nodes, next_node, close_array};

        return lists_ask(userdata, m, &kind);
}

int method_list_services(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        static const struct list_kind kind = {OF_SERVICES, begin_services, next_service,
                                              close_array};

        return lists_ask(userdata, m, &kind);
}

/* ---- lists with all properties ---- */

static size_t size_of(const struct object *o, const char *path)
{
        size_t texts =
                o->node ? strlen(o->node->record.addresses) + strlen(o->node->record.tags)
                        : o->service->value_len;

        return OBJECT_BYTES + strlen(path) + 4 * texts;
}

/* Appends @o by @fn in a container of its own, of type @type. */
static int append(struct list *l, char type, const char *contents,
                  int (*fn)(sd_bus_message *m, const char *path, const struct object *o),
                  const struct object *o)
{
        cleanup_(freep) char *path = NULL;
        int r;

        if (!objects_path(o, &path))
                return -ENOMEM;
        l->bytes += size_of(o, path);
        r = sd_bus_message_open_container(l->reply, type, contents);
        if (r >= 0)
                r = fn(l->reply, path, o);
        if (r >= 0)
                r = sd_bus_message_close_container(l->reply);
        return r < 0 ? r : 1;
}

static int begin_page(struct list *l, const char *interface, sd_bus_error *error)
{
        const char *behind;
        uint32_t most;
        int r = sd_bus_message_rewind(l->call, 1);

        if (r >= 0)
                r = sd_bus_message_read(l->call, "ou", &behind, &most);
        if (r < 0)
                return r;
        r = objects_behind(interface, behind, &l->at);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "'%s' is neither '/' nor the path of a %s.", behind,
                                         l->at.services ? "service" : "node");
        l->most = most > 0 ? most : UINT32_MAX;
        return open_array(l, "(oa{sv})");
}

static int begin_page_of_nodes(struct list *l, sd_bus_error *error)
{
        return begin_page(l, NODE, error);
}

static int begin_page_of_services(struct list *l, sd_bus_error *error)
{
        return begin_page(l, SERVICE, error);
}

/* Ends a page before it exceeds the largest message that a bus accepts. */
static int next_of_page(struct list *l)
{
        bool services = l->at.services;
        struct object o;

        if (l->n++ == l->most || l->bytes > PAGE_BYTES || !objects_next(l->agent, &l->at, &o) ||
            (o.service && !services))
                return 0;
        return append(l, 'r', "oa{sv}", objects_append_flat, &o);
}

/* The call is kept until it is its turn, so a path that no object has is refused before. */
static int ask_for_page(struct agent *a, sd_bus_message *m, const struct list_kind *kind,
                        sd_bus_error *error)
{
        const char *behind;
        int r = sd_bus_message_read(m, "o", &behind);

        if (r < 0)
                return r;
        if (strnlen(behind, OBJECT_PATH_MAX + 1) > OBJECT_PATH_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "The path of an object has at most %d bytes here.",
                                         OBJECT_PATH_MAX);
        return lists_ask(a, m, kind);
}

int method_get_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        static const struct list_kind kind = {OF_NOTHING, begin_page_of_nodes, next_of_page,
                                              close_array};

        return ask_for_page(userdata, m, &kind, error);
}

int method_get_services(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        static const struct list_kind kind = {OF_NOTHING, begin_page_of_services, next_of_page,
                                              close_array};

        return ask_for_page(userdata, m, &kind, error);
}

static int begin_objects(struct list *l, sd_bus_error *error unused_)
{
        return open_array(l, "{oa{sa{sv}}}");
}

static int next_object(struct list *l)
{
        struct object o;

        return objects_next(l->agent, &l->at, &o)
                       ? append(l, 'e', "oa{sa{sv}}", objects_append, &o)
                       : 0;
}

int answers_on_root(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        static const struct list_kind kind = {OF_OBJECTS, begin_objects, next_object,
                                              close_array};

        if (!sd_bus_message_is_method_call(m, "org.freedesktop.DBus.ObjectManager",
                                           "GetManagedObjects") ||
            !sd_bus_message_has_signature(m, ""))
                return 0;
        return lists_ask(userdata, m, &kind);
}

/* ---- JSON ---- */

/* Each piece of the text was made valid when it was written (lists.c), so hand it to sd-bus
 * without a check: sd-bus would check all of it in one go. */
static int end_text(struct list *l)
{
        char *to;
        int r = buf_error(&l->text);

        if (r >= 0)
                r = sd_bus_message_new_method_return(l->call, &l->reply);
        if (r >= 0)
                r = sd_bus_message_append_string_space(l->reply, buf_len(&l->text), &to);
        if (r >= 0)
                memcpy(to, buf_head(&l->text), buf_len(&l->text));
        return r;
}

/* Describe: everything, as JSON. Names and states need no escaping. */
static int begin_describe(struct list *l, sd_bus_error *error unused_)
{
        const struct agent *a = l->agent;
        const struct session *s = member_session(a->member);

        buf_printf(&l->text,
                   "{\"state\":\"%s\",\"node\":\"%s\",\"id\":\"%s\",\"cluster\":\"%s\","
                   "\"lease\":\"%016" PRIx64 "\",\"ttl_usec\":%" PRId64
                   ",\"deadline_usec\":%" PRId64 ",\"revision\":%" PRId64 ",\"synced\":%s"
                   ",\"core_endpoint\":\"%s\",\"nodes\":[",
                   session_state_name(a->state), a->opt.node_name, a->opt.node_id,
                   a->opt.cluster, (uint64_t) s->lease, s->ttl / NSEC_PER_USEC,
                   s->lease ? boot_usec(session_deadline(s)) : 0, member_revision(a->member),
                   member_synced(a->member) ? "true" : "false", member_endpoint(a->member));
        return 0;
}

static void describe_between(struct list *l)
{
        const struct agent *a = l->agent;
        const struct links_counts kernel =
                a->links ? links_counts(a->links) : (struct links_counts){0};

        buf_printf(&l->text,
                   "],\"netlink\":{\"dumps\":%" PRIu64 ",\"interrupted\":%" PRIu64
                   ",\"overflows\":%" PRIu64 "},\"loop\":{\"longest_turn_usec\":%" PRId64
                   "},\"services\":[",
                   kernel.dumps, kernel.interrupted, kernel.overflows,
                   loop_longest_turn(a->loop) / NSEC_PER_USEC);
        l->past_nodes = true;
        l->n = 0;
}

static int next_described(struct list *l)
{
        struct object o;
        bool more = objects_next(l->agent, &l->at, &o);

        if (!o.node && !l->past_nodes)
                describe_between(l);
        if (!more)
                return 0;
        if (l->n++ > 0)
                buf_add_u8(&l->text, ',');
        if (o.node) {
                node_record_write(&o.node->record, &l->text);
        } else {
                struct service_record r;

                service_read(o.service, &r);
                service_record_write(&r, &l->text);
        }
        return 1;
}

static int end_describe(struct list *l)
{
        buf_printf(&l->text, "]}");
        return end_text(l);
}

int method_describe(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        static const struct list_kind kind = {OF_NOTHING, begin_describe, next_described,
                                              end_describe};

        return lists_ask(userdata, m, &kind);
}

static int begin_introspect(struct list *l, sd_bus_error *error unused_)
{
        l->at.services = strcmp(sd_bus_message_get_path(l->call), SERVICES) == 0;
        buf_printf(&l->text,
                   "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection "
                   "1.0//EN\"\n\"http://www.freedesktop.org/standards/dbus/1.0/"
                   "introspect.dtd\">\n"
                   "<node>\n"
                   " <interface name=\"org.freedesktop.DBus.Peer\">\n"
                   "  <method name=\"Ping\"/>\n"
                   "  <method name=\"GetMachineId\">\n"
                   "   <arg type=\"s\" name=\"machine_uuid\" direction=\"out\"/>\n"
                   "  </method>\n"
                   " </interface>\n"
                   " <interface name=\"" INTROSPECTABLE "\">\n"
                   "  <method name=\"Introspect\">\n"
                   "   <arg name=\"xml_data\" type=\"s\" direction=\"out\"/>\n"
                   "  </method>\n"
                   " </interface>\n");
        return 0;
}

static int next_introspected(struct list *l)
{
        const char *parent = l->at.services ? SERVICES : NODES;
        bool services = l->at.services;
        cleanup_(freep) char *path = NULL;
        struct object o;

        if (!objects_next(l->agent, &l->at, &o) || (o.service && !services))
                return 0;
        if (!objects_path(&o, &path))
                return -ENOMEM;
        buf_printf(&l->text, " <node name=\"%s\"/>\n", path + strlen(parent) + 1);
        return 1;
}

static int end_introspect(struct list *l)
{
        buf_printf(&l->text, "</node>\n");
        return end_text(l);
}

int answers_on_parent(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        static const struct list_kind kind = {OF_NOTHING, begin_introspect, next_introspected,
                                              end_introspect};

        if (!sd_bus_message_is_method_call(m, INTROSPECTABLE, "Introspect") ||
            !sd_bus_message_has_signature(m, ""))
                return 0;
        return lists_ask(userdata, m, &kind);
}
