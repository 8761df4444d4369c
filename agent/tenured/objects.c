#include "objects.h"

#include <stdio.h>

#include "base/log.h"
#include "lists.h"

#define SERVICE_TEMPLATE SERVICES "/%/%/%" /* name, node, instance */

#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
#define CONST SD_BUS_VTABLE_PROPERTY_CONST

void objects_sent(int r, const char *what)
{
        if (r < 0)
                log_debug("D-Bus: cannot send %s: %s.", what, strerror(-r));
}

const char *node_path(const char *name, char **ret)
{
        *ret = NULL;
        return sd_bus_path_encode(NODES, name, ret) >= 0 ? *ret : NULL;
}

const char *service_path(const struct service *s, char **ret)
{
        *ret = NULL;
        return sd_bus_path_encode_many(ret, SERVICE_TEMPLATE, s->name, s->node, s->instance) >=
                               0
                       ? *ret
                       : NULL;
}

static int append_list(sd_bus_message *reply, const char *list)
{
        char item[TAGS_MAX];
        int r = sd_bus_message_open_container(reply, 'a', "s");

        while (r >= 0 && list_next(&list, item, sizeof(item)))
                r = bus_append_text(reply, item);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int append_tags(sd_bus_message *reply, const char *tags)
{
        char name[TAGS_MAX], value[TAGS_MAX];
        int r = sd_bus_message_open_container(reply, 'a', "{ss}");

        while (r >= 0 && tags_next(&tags, name, value)) {
                r = sd_bus_message_open_container(reply, 'e', "ss");
                if (r >= 0)
                        r = bus_append_text(reply, name);
                if (r >= 0)
                        r = bus_append_text(reply, value);
                if (r >= 0)
                        r = sd_bus_message_close_container(reply);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

/* ---- Node ---- */

static int find_node(sd_bus *bus unused_, const char *path, const char *interface unused_,
                     void *userdata, void **ret, sd_bus_error *error unused_)
{
        cleanup_(freep) char *name = NULL;
        struct agent *a = userdata;
        struct member_node *n;
        int r;

        r = sd_bus_path_decode(path, NODES, &name);
        if (r <= 0)
                return r;
        n = membership_find(member_nodes(a->member), name);
        if (!n)
                return 0;
        *ret = n;
        return 1;
}

GETTER(get_string)
{
        return bus_append_text(reply, userdata);
}

GETTER(get_list)
{
        return append_list(reply, userdata);
}

GETTER(get_tags)
{
        return append_tags(reply, userdata);
}

GETTER(get_node_ttl)
{
        const struct member_node *n = userdata;

        return sd_bus_message_append(reply, "t",
                                     (uint64_t) max_of(n->record.ttl_ms, (int64_t) 0) * 1000);
}

/* Ends the text that @b has, and answers with it. */
static int reply_text(sd_bus_message *m, struct buf *b)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        int r = sd_bus_message_new_method_return(m, &reply);

        buf_add_u8(b, 0);
        if (r >= 0)
                r = buf_error(b);
        if (r >= 0)
                r = bus_append_text(reply, (const char *) buf_head(b));
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int describe_node(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        const struct member_node *n = userdata;
        cleanup_(buf_fini) struct buf b = {0};

        node_record_write(&n->record, &b);
        return reply_text(m, &b);
}

#define NODE_FIELD(name, type, fn, field) \
        SD_BUS_PROPERTY(name, type, fn, offsetof(struct member_node, record.field), CHANGES)

const sd_bus_vtable node_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Name", "s", get_string, offsetof(struct member_node, record.name),
                        CONST),
        NODE_FIELD("Id", "s", get_string, id),
        NODE_FIELD("Incarnation", "s", get_string, incarnation),
        NODE_FIELD("BootId", "s", get_string, boot_id),
        NODE_FIELD("Since", "s", get_string, since),
        NODE_FIELD("AgentVersion", "s", get_string, version),
        NODE_FIELD("OSRelease", "s", get_string, os_release),
        NODE_FIELD("Addresses", "as", get_list, addresses),
        NODE_FIELD("Tags", "a{ss}", get_tags, tags),
        NODE_FIELD("Degraded", "s", get_string, degraded),
        SD_BUS_PROPERTY("Leaving", "s", get_string,
                        offsetof(struct member_node, record.leaving), 0),
        SD_BUS_PROPERTY("TTLUSec", "t", get_node_ttl, 0, CHANGES),
        SD_BUS_PROPERTY("LeaseId", "x", NULL, offsetof(struct member_node, lease), CHANGES),
        SD_BUS_PROPERTY("JoinRevision", "x", NULL,
                        offsetof(struct member_node, create_revision), CONST),
        SD_BUS_PROPERTY("Revision", "x", NULL, offsetof(struct member_node, mod_revision),
                        CHANGES),
        SD_BUS_METHOD_WITH_ARGS("Describe", SD_BUS_NO_ARGS, SD_BUS_RESULT("s", json),
                                describe_node, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

/* ---- Service ---- */

static int find_service(sd_bus *bus unused_, const char *path, const char *interface unused_,
                        void *userdata, void **ret, sd_bus_error *error unused_)
{
        cleanup_(freep) char *name = NULL, *node = NULL, *instance = NULL;
        struct agent *a = userdata;
        struct service *s;
        int r;

        r = sd_bus_path_decode_many(path, SERVICE_TEMPLATE, &name, &node, &instance);
        if (r <= 0)
                return r;
        s = services_find(member_services(a->member), name, node, instance);
        if (!s)
                return 0;
        *ret = s;
        return 1;
}

/* A property that is in the record but not in the key. */
static int get_service_field(sd_bus *bus unused_, const char *path unused_,
                             const char *interface unused_, const char *property,
                             sd_bus_message *reply, void *userdata, sd_bus_error *error unused_)
{
        struct service_record r;

        service_read(userdata, &r);
        if (strcmp(property, "Address") == 0)
                return bus_append_text(reply, r.address);
        if (strcmp(property, "Port") == 0)
                return sd_bus_message_append(reply, "q", r.port);
        if (strcmp(property, "Tags") == 0)
                return append_tags(reply, r.tags);
        if (strcmp(property, "Unit") == 0)
                return bus_append_text(reply, r.unit);
        if (strcmp(property, "State") == 0)
                return bus_append_text(reply, r.state);
        return bus_append_text(reply, r.since);
}

static int describe_service(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct service_record r;

        service_read(userdata, &r);
        service_record_write(&r, &b);
        return reply_text(m, &b);
}

const sd_bus_vtable service_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Name", "s", NULL, offsetof(struct service, name), CONST),
        SD_BUS_PROPERTY("Node", "s", NULL, offsetof(struct service, node), CONST),
        SD_BUS_PROPERTY("Instance", "s", NULL, offsetof(struct service, instance), CONST),
        SD_BUS_PROPERTY("Address", "s", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("Port", "q", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("Tags", "a{ss}", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("Unit", "s", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("State", "s", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("Since", "s", get_service_field, 0, CHANGES),
        SD_BUS_PROPERTY("LeaseId", "x", NULL, offsetof(struct service, lease), CHANGES),
        SD_BUS_PROPERTY("JoinRevision", "x", NULL, offsetof(struct service, create_revision),
                        CONST),
        SD_BUS_PROPERTY("Revision", "x", NULL, offsetof(struct service, mod_revision), CHANGES),
        SD_BUS_METHOD_WITH_ARGS("Describe", SD_BUS_NO_ARGS, SD_BUS_RESULT("s", json),
                                describe_service, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

/* ---- in order ---- */

static bool is_node(const char *path)
{
        return strncmp(path, NODES "/", strlen(NODES "/")) == 0;
}

const char *objects_interface(const char *path)
{
        return is_node(path) ? NODE : SERVICE;
}

static struct member_node *next_node(const struct agent *a, struct objects_at *at)
{
        struct member_tree *nodes =
                (struct member_tree *) (uintptr_t) &member_nodes(a->member)->nodes;
        struct member_node key = {0}, *n;

        snprintf(key.record.name, sizeof(key.record.name), "%s", at->name);
        n = RB_NFIND(member_tree, nodes, &key);
        if (n && strcmp(n->record.name, at->name) == 0)
                n = RB_NEXT(member_tree, nodes, n);
        if (n)
                snprintf(at->name, sizeof(at->name), "%s", n->record.name);
        return n;
}

static struct service *next_service(const struct agent *a, struct objects_at *at)
{
        struct service_names *names =
                (struct service_names *) (uintptr_t) &member_services(a->member)->by_name;
        struct service key = {.name = at->name, .node = at->node, .instance = at->instance}, *s;

        s = RB_NFIND(service_names, names, &key);
        if (s && strcmp(s->name, at->name) == 0 && strcmp(s->node, at->node) == 0 &&
            strcmp(s->instance, at->instance) == 0)
                s = RB_NEXT(service_names, names, s);
        if (!s)
                return NULL;
        snprintf(at->name, sizeof(at->name), "%s", s->name);
        snprintf(at->node, sizeof(at->node), "%s", s->node);
        snprintf(at->instance, sizeof(at->instance), "%s", s->instance);
        return s;
}

bool objects_next(const struct agent *a, struct objects_at *at, struct object *ret)
{
        *ret = (struct object){0};
        if (!at->services) {
                ret->node = next_node(a, at);
                if (ret->node)
                        return true;
                *at = (struct objects_at){.services = true};
        }
        ret->service = next_service(a, at);
        return ret->service;
}

const char *objects_path(const struct object *o, char **ret)
{
        return o->node ? node_path(o->node->record.name, ret) : service_path(o->service, ret);
}

int objects_behind(const char *interface, const char *path, struct objects_at *ret)
{
        cleanup_(freep) char *name = NULL, *node = NULL, *instance = NULL;
        int r;

        *ret = (struct objects_at){.services = strcmp(interface, SERVICE) == 0};
        if (strcmp(path, "/") == 0)
                return 0;
        r = ret->services
                    ? sd_bus_path_decode_many(path, SERVICE_TEMPLATE, &name, &node, &instance)
                    : sd_bus_path_decode(path, NODES, &name);
        if (r <= 0)
                return r < 0 ? r : -EINVAL;
        snprintf(ret->name, sizeof(ret->name), "%s", name);
        snprintf(ret->node, sizeof(ret->node), "%s", node ? node : "");
        snprintf(ret->instance, sizeof(ret->instance), "%s", instance ? instance : "");
        return 0;
}

/* ---- whole objects ---- */

bool objects_find(struct agent *a, const char *path, struct object *ret)
{
        bool node = is_node(path);
        void *found = NULL;
        int r = node ? find_node(NULL, path, NODE, a, &found, NULL)
                     : find_service(NULL, path, SERVICE, a, &found, NULL);

        *ret = (struct object){.node = node ? found : NULL, .service = node ? NULL : found};
        return r > 0;
}

/* Without a getter, the field is the value, or points to the text, as sd-bus has it. */
static int append_value(sd_bus_message *m, const struct sd_bus_vtable *v, const char *path,
                        const char *interface, void *object)
{
        void *field = (uint8_t *) object + v->x.property.offset;
        const char *type = v->x.property.signature;
        int r = sd_bus_message_open_container(m, 'v', type);

        if (r >= 0 && v->x.property.get)
                r = v->x.property.get(NULL, path, interface, v->x.property.member, m, field,
                                      NULL);
        else if (r >= 0)
                r = sd_bus_message_append_basic(m, *type,
                                                *type == 's' ? *(char **) field : field);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_properties(sd_bus_message *m, const char *path, const struct object *o)
{
        const sd_bus_vtable *v = o->node ? node_vtable : service_vtable;
        void *object = o->node ? (void *) o->node : o->service;
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        for (; r >= 0 && v->type != _SD_BUS_VTABLE_END; v++) {
                if (v->type != _SD_BUS_VTABLE_PROPERTY)
                        continue;
                r = sd_bus_message_open_container(m, 'e', "sv");
                if (r >= 0)
                        r = sd_bus_message_append_basic(m, 's', v->x.property.member);
                if (r >= 0)
                        r = append_value(m, v, path, o->node ? NODE : SERVICE, object);
                if (r >= 0)
                        r = sd_bus_message_close_container(m);
        }
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int objects_append_flat(sd_bus_message *m, const char *path, const struct object *o)
{
        int r = sd_bus_message_append_basic(m, 'o', path);

        return r < 0 ? r : append_properties(m, path, o);
}

int objects_append(sd_bus_message *m, const char *path, const struct object *o)
{
        int r = sd_bus_message_append_basic(m, 'o', path);

        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sa{sv}}");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'e', "sa{sv}");
        if (r >= 0)
                r = sd_bus_message_append_basic(m, 's', o->node ? NODE : SERVICE);
        if (r >= 0)
                r = append_properties(m, path, o);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* ---- ---- */

int objects_attach(struct agent *a)
{
        sd_bus *bus = bus_sd(a->bus);
        int r;

        r = sd_bus_add_fallback_vtable(bus, NULL, NODES, NODE, node_vtable, find_node, a);
        if (r >= 0)
                r = sd_bus_add_object(bus, NULL, NODES, answers_on_parent, a);
        if (r >= 0)
                r = sd_bus_add_fallback_vtable(bus, NULL, SERVICES, SERVICE, service_vtable,
                                               find_service, a);
        if (r >= 0)
                r = sd_bus_add_object(bus, NULL, SERVICES, answers_on_parent, a);
        if (r >= 0)
                r = sd_bus_add_object(bus, NULL, ROOT, answers_on_root, a);
        if (r >= 0)
                r = sd_bus_add_object_manager(bus, NULL, ROOT);
        return r < 0 ? r : 0;
}

void objects_added(struct agent *a, const char *path)
{
        lists_changed(a, path);
        objects_sent(sd_bus_emit_object_added(bus_sd(a->bus), path), "InterfacesAdded");
}

void objects_removed(struct agent *a, const char *path, const char *interface)
{
        lists_changed(a, path);
        objects_sent(sd_bus_emit_interfaces_removed(bus_sd(a->bus), path, interface, NULL),
                     "InterfacesRemoved");
}

void objects_node_changed(struct agent *a, const char *path)
{
        lists_changed(a, path);
        objects_sent(sd_bus_emit_properties_changed_strv(bus_sd(a->bus), path, NODE, NULL),
                     "PropertiesChanged");
}

void objects_service_changed(struct agent *a, const char *path)
{
        lists_changed(a, path);
        objects_sent(sd_bus_emit_properties_changed_strv(bus_sd(a->bus), path, SERVICE, NULL),
                     "PropertiesChanged");
}
