/*
 * org.tenure.Membership1 on the bus: a Manager, and an object per node. The tables are the
 * interface; answers come from memory. Changing this is changing the API:
 * org.tenure.Membership1(5) tells it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "agent.h"
#include "base/log.h"

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define NODE NAME ".Node"
#define ROOT "/org/tenure/Membership1"
#define NODES ROOT "/node"

static const char *node_path(const char *name, char **ret)
{
        *ret = NULL;
        return sd_bus_path_encode(NODES, name, ret) >= 0 ? *ret : NULL;
}

/* ---- Node ---- */

static int find_node(sd_bus *bus, const char *path, const char *interface, void *userdata,
                     void **ret, sd_bus_error *error)
{
        cleanup_(freep) char *name = NULL;
        struct agent *a = userdata;
        struct member_node *n;
        int r;

        (void) bus;
        (void) interface;
        (void) error;
        r = sd_bus_path_decode(path, NODES, &name);
        if (r <= 0)
                return r;
        n = membership_find(client_membership(a->client), name);
        if (!n)
                return 0;
        *ret = n;
        return 1;
}

static int list_nodes(sd_bus *bus, const char *prefix, void *userdata, char ***ret,
                      sd_bus_error *error)
{
        struct agent *a = userdata;
        const struct membership *m = client_membership(a->client);
        char **paths = calloc(m->n + 1, sizeof(char *));
        struct member_node *n;
        size_t i = 0;

        (void) bus;
        (void) prefix;
        (void) error;
        if (!paths)
                return -ENOMEM;
        RB_FOREACH (n, member_tree, (struct member_tree *) (uintptr_t) &m->nodes)
                if (node_path(n->record.name, &paths[i]))
                        i++;
        *ret = paths;
        return 1;
}

static int get_string(sd_bus *bus, const char *path, const char *interface,
                      const char *property, sd_bus_message *reply, void *userdata,
                      sd_bus_error *error)
{
        (void) bus;
        (void) path;
        (void) interface;
        (void) property;
        (void) error;
        return sd_bus_message_append(reply, "s", (const char *) userdata);
}

static int get_node_ttl(sd_bus *bus, const char *path, const char *interface,
                        const char *property, sd_bus_message *reply, void *userdata,
                        sd_bus_error *error)
{
        const struct member_node *n = userdata;

        (void) bus;
        (void) path;
        (void) interface;
        (void) property;
        (void) error;
        return sd_bus_message_append(reply, "t",
                                     (uint64_t) max_of(n->record.ttl_ms, (int64_t) 0) * 1000);
}

#define NODE_STRING(name, field)                                                           \
        SD_BUS_PROPERTY(name, "s", get_string, offsetof(struct member_node, record.field), \
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE)

static const sd_bus_vtable node_vtable[] = {
        SD_BUS_VTABLE_START(0),
        NODE_STRING("Name", name),
        NODE_STRING("Id", id),
        NODE_STRING("Incarnation", incarnation),
        NODE_STRING("BootId", boot_id),
        NODE_STRING("Since", since),
        NODE_STRING("AgentVersion", version),
        SD_BUS_PROPERTY("TTLUSec", "t", get_node_ttl, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("LeaseId", "x", NULL, offsetof(struct member_node, lease),
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("JoinRevision", "x", NULL,
                        offsetof(struct member_node, create_revision),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Revision", "x", NULL, offsetof(struct member_node, mod_revision),
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_VTABLE_END,
};

/* ---- Manager ---- */

static int method_list_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const struct membership *mb = client_membership(a->client);
        struct member_node *n;
        int r;

        (void) error;
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssxo)");
        RB_FOREACH (n, member_tree, (struct member_tree *) (uintptr_t) &mb->nodes) {
                cleanup_(freep) char *path = NULL;

                if (r < 0)
                        break;
                if (!node_path(n->record.name, &path))
                        return -ENOMEM;
                r = sd_bus_message_append(reply, "(ssxo)", n->record.name, n->record.id,
                                          n->mod_revision, path);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int method_get_node(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        cleanup_(freep) char *path = NULL;
        struct agent *a = userdata;
        const char *name;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        if (!membership_find(client_membership(a->client), name))
                return sd_bus_error_setf(error, NAME ".NoSuchNode",
                                         "No node '%s' is in the cluster.", name);
        if (!node_path(name, &path))
                return -ENOMEM;
        return sd_bus_reply_method_return(m, "o", path);
}

static int refuse(sd_bus_error *error)
{
        return sd_bus_error_setf(error, NAME ".Busy", "The agent is stopping, or on its way.");
}

/* Answered when what is fenced is down and the place is given back. */
static int method_leave(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;

        if (a->leave_call || !agent_rest(a))
                return refuse(error);
        a->leave_call = sd_bus_message_ref(m);
        return 1;
}

void manager_left(struct agent *a)
{
        if (a->leave_call)
                (void) sd_bus_reply_method_return(a->leave_call, NULL);
        a->leave_call = sd_bus_message_unref(a->leave_call);
}

static int method_join(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        if (!agent_join(userdata))
                return refuse(error);
        return sd_bus_reply_method_return(m, NULL);
}

#define GETTER(fn)                                                                 \
        static int fn(sd_bus *bus unused_, const char *path unused_,               \
                      const char *interface unused_, const char *property unused_, \
                      sd_bus_message *reply, void *userdata, sd_bus_error *error unused_)

GETTER(get_state)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "s", session_state_name(a->state));
}

GETTER(get_option)
{
        return sd_bus_message_append(reply, "s", *(char *const *) userdata);
}

GETTER(get_lease)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "x", client_session(a->client)->lease);
}

GETTER(get_ttl)
{
        struct agent *a = userdata;
        const struct session *s = client_session(a->client);

        return sd_bus_message_append(reply, "t",
                                     (uint64_t) (s->lease ? s->ttl : s->cfg.ttl) /
                                             (uint64_t) NSEC_PER_USEC);
}

/* 0 while nothing is held: a deadline that is not there must not look like one that is far away
 * (A26). */
GETTER(get_deadline)
{
        struct agent *a = userdata;
        const struct session *s = client_session(a->client);

        return sd_bus_message_append(
                reply, "t",
                s->lease ? (uint64_t) (session_deadline(s).ns / NSEC_PER_USEC) : UINT64_C(0));
}

GETTER(get_renewal)
{
        struct agent *a = userdata;
        const struct session *s = client_session(a->client);

        return sd_bus_message_append(reply, "t",
                                     s->lease ? (uint64_t) (s->renewed_at.ns / NSEC_PER_USEC)
                                              : UINT64_C(0));
}

GETTER(get_revision)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "x", client_membership(a->client)->revision);
}

GETTER(get_synced)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "b", (int) client_synced(a->client));
}

GETTER(get_heard)
{
        struct agent *a = userdata;

        return sd_bus_message_append(
                reply, "t", (uint64_t) (client_heard_at(a->client).ns / NSEC_PER_USEC));
}

GETTER(get_endpoint)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "s", client_endpoint(a->client));
}

GETTER(get_n_nodes)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "t", (uint64_t) client_membership(a->client)->n);
}

GETTER(get_version)
{
        (void) userdata;
        return sd_bus_message_append(reply, "s", TENURE_VERSION);
}

#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
/* These move with every heartbeat or event; a signal for each would wake up every subscriber
 * for nothing. */
#define MOVES 0

static const sd_bus_vtable manager_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Version", "s", get_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("State", "s", get_state, 0, CHANGES),
        SD_BUS_PROPERTY("NodeName", "s", get_option, offsetof(struct agent, opt.node_name),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("NodeId", "s", get_option, offsetof(struct agent, opt.node_id),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Cluster", "s", get_option, offsetof(struct agent, opt.cluster),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("LeaseId", "x", get_lease, 0, CHANGES),
        SD_BUS_PROPERTY("TTLUSec", "t", get_ttl, 0, CHANGES),
        SD_BUS_PROPERTY("DeadlineUSec", "t", get_deadline, 0, MOVES),
        SD_BUS_PROPERTY("LastRenewalUSec", "t", get_renewal, 0, MOVES),
        SD_BUS_PROPERTY("Revision", "x", get_revision, 0, MOVES),
        SD_BUS_PROPERTY("Synced", "b", get_synced, 0, CHANGES),
        SD_BUS_PROPERTY("HeardUSec", "t", get_heard, 0, MOVES),
        SD_BUS_PROPERTY("CoreEndpoint", "s", get_endpoint, 0, MOVES),
        SD_BUS_PROPERTY("NNodes", "t", get_n_nodes, 0, MOVES),
        SD_BUS_METHOD_WITH_ARGS("ListNodes", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssxo)", nodes),
                                method_list_nodes, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetNode", SD_BUS_ARGS("s", name), SD_BUS_RESULT("o", node),
                                method_get_node, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Leave", NULL, NULL, method_leave, 0),
        SD_BUS_METHOD("Join", NULL, NULL, method_join, 0),
        SD_BUS_SIGNAL_WITH_ARGS("NodeJoined",
                                SD_BUS_ARGS("s", name, "s", id, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS(
                "NodeLeft",
                SD_BUS_ARGS("s", name, "s", id, "s", reason, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS("NodeChanged",
                                SD_BUS_ARGS("s", name, "s", id, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseHeld", SD_BUS_ARGS("x", lease, "t", deadline_usec), 0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseJeopardy", SD_BUS_ARGS("x", lease, "t", deadline_usec),
                                0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseLost", SD_BUS_ARGS("s", reason), 0),
        SD_BUS_VTABLE_END,
};

/* ---- signals ---- */

static void check(int r, const char *what)
{
        if (r < 0)
                log_debug("D-Bus: cannot send %s: %s.", what, strerror(-r));
}

void manager_node_joined(struct agent *a, const struct member_node *n, int64_t revision)
{
        cleanup_(freep) char *path = NULL;

        if (!a->bus || !node_path(n->record.name, &path))
                return;
        check(sd_bus_emit_object_added(bus_sd(a->bus), path), "InterfacesAdded");
        check(sd_bus_emit_signal(bus_sd(a->bus), ROOT, MANAGER, "NodeJoined", "ssxo",
                                 n->record.name, n->record.id, revision, path),
              "NodeJoined");
}

void manager_node_left(struct agent *a, const struct member_node *n, const char *reason,
                       int64_t revision)
{
        cleanup_(freep) char *path = NULL;

        if (!a->bus || !node_path(n->record.name, &path))
                return;
        check(sd_bus_emit_signal(bus_sd(a->bus), ROOT, MANAGER, "NodeLeft", "sssxo",
                                 n->record.name, n->record.id, reason, revision, path),
              "NodeLeft");
        check(sd_bus_emit_interfaces_removed(bus_sd(a->bus), path, NODE, NULL),
              "InterfacesRemoved");
}

void manager_node_changed(struct agent *a, const struct member_node *n, int64_t revision)
{
        cleanup_(freep) char *path = NULL;

        if (!a->bus || !node_path(n->record.name, &path))
                return;
        check(sd_bus_emit_signal(bus_sd(a->bus), ROOT, MANAGER, "NodeChanged", "ssxo",
                                 n->record.name, n->record.id, revision, path),
              "NodeChanged");
        check(sd_bus_emit_properties_changed(bus_sd(a->bus), path, NODE, "Incarnation",
                                             "BootId", "Since", "AgentVersion", "TTLUSec",
                                             "LeaseId", "Revision", NULL),
              "PropertiesChanged");
}

void manager_session_changed(struct agent *a, enum session_state state, const char *why)
{
        const struct session *s = a->client ? client_session(a->client) : NULL;
        sd_bus *bus = a->bus ? bus_sd(a->bus) : NULL;

        if (!bus || !s)
                return;
        switch (state) {
        case SESSION_HELD:
                check(sd_bus_emit_signal(bus, ROOT, MANAGER, "LeaseHeld", "xt", s->lease,
                                         (uint64_t) (session_deadline(s).ns / NSEC_PER_USEC)),
                      "LeaseHeld");
                break;
        case SESSION_JEOPARDY:
                check(sd_bus_emit_signal(bus, ROOT, MANAGER, "LeaseJeopardy", "xt", s->lease,
                                         (uint64_t) (session_deadline(s).ns / NSEC_PER_USEC)),
                      "LeaseJeopardy");
                break;
        case SESSION_LOST:
                check(sd_bus_emit_signal(bus, ROOT, MANAGER, "LeaseLost", "s", why),
                      "LeaseLost");
                break;
        default:
                break;
        }
        check(sd_bus_emit_properties_changed(bus, ROOT, MANAGER, "State", "LeaseId", "TTLUSec",
                                             "Synced", NULL),
              "PropertiesChanged");
}

static int on_name(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        uint32_t result = 0;

        (void) error;
        if (sd_bus_message_is_method_error(m, NULL))
                agent_bus_refused(a, sd_bus_message_get_error(m)->message);
        else if (sd_bus_message_read(m, "u", &result) < 0 || (result != 1 && result != 4))
                agent_bus_refused(a, "the name is taken: another agent runs here");
        else
                agent_bus_ready(a);
        return 0;
}

int manager_attach(struct agent *a)
{
        sd_bus *bus = bus_sd(a->bus);
        int r;

        r = sd_bus_add_object_vtable(bus, NULL, ROOT, MANAGER, manager_vtable, a);
        if (r >= 0)
                r = sd_bus_add_fallback_vtable(bus, NULL, NODES, NODE, node_vtable, find_node,
                                               a);
        if (r >= 0)
                r = sd_bus_add_node_enumerator(bus, NULL, NODES, list_nodes, a);
        if (r >= 0)
                r = sd_bus_add_object_manager(bus, NULL, ROOT);
        if (r >= 0)
                /* Never waited for: a bus that does not answer must not delay a heartbeat. */
                r = sd_bus_request_name_async(bus, NULL, NAME, 0, on_name, a);
        return r < 0 ? r : 0;
}
