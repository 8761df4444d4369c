/* org.tenure.Membership1 on the bus: the Manager; its objects are in objects.h. The table is
 * the interface; answers come from memory. Changing this changes the API, which
 * org.tenure.Membership1(5) describes. */
#include "root_object.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "door.h"
#include "lists.h"
#include "objects.h"
#include "openings.h"

#define MANAGE NAME ".manage"
#define LEAVE_PERSISTENT UINT64_C(1)

/* ---- methods ---- */

static int method_get_node(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        cleanup_(freep) char *path = NULL;
        struct agent *a = userdata;
        const char *name;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        if (!node_name_is_valid(name)) /* it may be long, so do not repeat it */
                return sd_bus_error_setf(error, NAME ".NoSuchNode",
                                         "No node has such a name: it is at most %d letters, "
                                         "digits and . _ - :",
                                         NODE_NAME_MAX);
        if (!membership_find(member_nodes(a->member), name))
                return sd_bus_error_setf(error, NAME ".NoSuchNode",
                                         "No node '%s' is in the cluster.", name);
        if (!node_path(name, &path))
                return -ENOMEM;
        return sd_bus_reply_method_return(m, "o", path);
}

static int refuse(sd_bus_error *error)
{
        return sd_bus_error_setf(
                error, NAME ".Busy",
                "The agent is stopping, or the host is already leaving or joining.");
}

/* The call is answered when all fenced units are down and the place was given back. */
static int do_leave(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        const char *note = "";
        uint64_t flags = 0;
        int r = sd_bus_message_rewind(m, 1);

        if (r >= 0 && !sd_bus_message_has_signature(m, ""))
                r = sd_bus_message_read(m, "t", &flags);
        if (r >= 0 && sd_bus_message_has_signature(m, "ts"))
                r = sd_bus_message_read(m, "s", &note);
        if (r < 0)
                return r;
        if (a->leave_call ||
            !agent_leave(a,
                         flags & LEAVE_PERSISTENT ? MAINTENANCE_PERSISTENT : MAINTENANCE_BOOT,
                         note))
                return refuse(error);
        a->leave_call = sd_bus_message_ref(m);
        return 1;
}

void root_left(struct agent *a)
{
        if (a->leave_call)
                (void) sd_bus_reply_method_return(a->leave_call, NULL);
        a->leave_call = sd_bus_message_unref(a->leave_call);
}

/* Details for polkit's rules. */
#define node_details(a) ((const char *const[]){"node", (a)->opt.node_name, NULL})

static int method_leave(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct agent *a = userdata;

        return authorize(&a->callers, m, MANAGE, node_details(a), do_leave, a);
}

/* LeaveWithFlags and LeaveWithNote. */
static int method_leave_with_flags(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        const char *note = "";
        uint64_t flags;
        int r = sd_bus_message_read(m, "t", &flags);

        if (r >= 0 && sd_bus_message_has_signature(m, "ts"))
                r = sd_bus_message_read(m, "s", &note);
        if (r < 0)
                return r;
        if (!leaving_note_is_valid(note))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "The note must be one line of UTF-8, of at most %d "
                                         "bytes.",
                                         LEAVING_NOTE_MAX);
        if (flags & ~LEAVE_PERSISTENT)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "The only flag is 1: stay out after a boot, too.");
        return authorize(&a->callers, m, MANAGE, node_details(a), do_leave, a);
}

static int do_join(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        int r = agent_join(userdata);

        if (r == AGENT_E_EXITS)
                return refuse(error);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_IO_ERROR,
                                         "This host joins again, but will stay out after its "
                                         "next boot: the order to stay out cannot be removed "
                                         "(%s).",
                                         strerror(-r));
        return sd_bus_reply_method_return(m, NULL);
}

static int method_join(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct agent *a = userdata;

        return authorize(&a->callers, m, MANAGE, node_details(a), do_join, a);
}

/* ---- properties ---- */

GETTER(get_state)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "s", session_state_name(a->state));
}

GETTER(get_lease)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "x", member_session(a->member)->lease);
}

GETTER(get_ttl)
{
        struct agent *a = userdata;
        nsec_t ttl = session_ttl(member_session(a->member));

        return sd_bus_message_append(reply, "t", (uint64_t) (ttl / NSEC_PER_USEC));
}

/* An instant that is read twice must read the same, although CLOCK_BOOTTIME has moved against
 * our clock meanwhile. So the reported value stays unless the correct one is earlier by more
 * than SAME_USEC: a deadline that is reported too late would be unsafe. */
#define SAME_USEC 1000

static uint64_t usec_of(struct reported_instant *reported, struct boot_time t)
{
        int64_t usec = boot_usec(t);

        if (t.ns != reported->t.ns || usec < reported->usec - SAME_USEC)
                *reported = (struct reported_instant){t, usec};
        return (uint64_t) reported->usec;
}

/* 0 while no place is held: a missing deadline must not look like one far in the future
 * (A26). */
GETTER(get_deadline)
{
        struct agent *a = userdata;
        const struct session *s = member_session(a->member);

        return sd_bus_message_append(
                reply, "t",
                s->lease ? usec_of(&a->reported_deadline, session_deadline(s)) : UINT64_C(0));
}

GETTER(get_renewal)
{
        struct agent *a = userdata;
        const struct session *s = member_session(a->member);

        return sd_bus_message_append(reply, "t",
                                     s->lease ? usec_of(&a->reported_renewal, s->renewed_at)
                                              : UINT64_C(0));
}

GETTER(get_revision)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "x", member_revision(a->member));
}

GETTER(get_synced)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "b", (int) member_synced(a->member));
}

GETTER(get_heard)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "t",
                                     usec_of(&a->reported_heard, member_heard_at(a->member)));
}

GETTER(get_endpoint)
{
        struct agent *a = userdata;

        return bus_append_text(reply, member_endpoint(a->member));
}

GETTER(get_trouble)
{
        struct agent *a = userdata;

        return bus_append_text(reply, agent_trouble(a));
}

GETTER(get_n_nodes)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "t", (uint64_t) member_nodes(a->member)->n);
}

GETTER(get_maintenance)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "s", maintenance_name(a->maintenance));
}

GETTER(get_brake)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "b", (int) a->stability.brake.on);
}

GETTER(get_rest)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "t",
                                     (uint64_t) boot_usec(a->stability.damping.until));
}

/* One sentence a line. */
GETTER(get_fence_warnings)
{
        struct agent *a = userdata;
        const char *at = a->fence.warnings ? a->fence.warnings : "";
        char line[512];
        int r = sd_bus_message_open_container(reply, 'a', "s");

        for (; r >= 0 && *at; at = strchr(at, '\n') + 1) {
                snprintf(line, sizeof(line), "%.*s", (int) strcspn(at, "\n"), at);
                r = bus_append_text(reply, line);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

GETTER(get_degraded)
{
        struct agent *a = userdata;

        return bus_append_text(reply, member_self(a->member)->degraded);
}

GETTER(get_n_services)
{
        struct agent *a = userdata;

        return sd_bus_message_append(reply, "t", (uint64_t) member_services(a->member)->n);
}

GETTER(get_version)
{
        return sd_bus_message_append(reply, "s", TENURE_VERSION);
}

#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
/* These move with every heartbeat or event; a signal for each would wake up every subscriber
 * for nothing. */
#define MOVES 0

const sd_bus_vtable root_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Version", "s", get_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("State", "s", get_state, 0, CHANGES),
        SD_BUS_PROPERTY("NodeName", "s", NULL, offsetof(struct agent, opt.node_name),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("NodeId", "s", NULL, offsetof(struct agent, opt.node_id),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Cluster", "s", NULL, offsetof(struct agent, opt.cluster),
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("LeaseId", "x", get_lease, 0, CHANGES),
        SD_BUS_PROPERTY("TTLUSec", "t", get_ttl, 0, CHANGES),
        SD_BUS_PROPERTY("DeadlineUSec", "t", get_deadline, 0, MOVES),
        SD_BUS_PROPERTY("LastRenewalUSec", "t", get_renewal, 0, MOVES),
        SD_BUS_PROPERTY("Revision", "x", get_revision, 0, MOVES),
        SD_BUS_PROPERTY("Synced", "b", get_synced, 0, CHANGES),
        SD_BUS_PROPERTY("HeardUSec", "t", get_heard, 0, MOVES),
        SD_BUS_PROPERTY("CoreEndpoint", "s", get_endpoint, 0, CHANGES),
        SD_BUS_PROPERTY("Trouble", "s", get_trouble, 0, MOVES),
        SD_BUS_PROPERTY("Degraded", "s", get_degraded, 0, MOVES),
        SD_BUS_PROPERTY("Maintenance", "s", get_maintenance, 0, CHANGES),
        SD_BUS_PROPERTY("MassFailure", "b", get_brake, 0, CHANGES),
        SD_BUS_PROPERTY("FenceWarnings", "as", get_fence_warnings, 0, CHANGES),
        SD_BUS_PROPERTY("RestUntilUSec", "t", get_rest, 0, MOVES),
        SD_BUS_PROPERTY("NNodes", "t", get_n_nodes, 0, MOVES),
        SD_BUS_PROPERTY("NServices", "t", get_n_services, 0, MOVES),
        SD_BUS_METHOD_WITH_ARGS("ListNodes", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssxo)", nodes),
                                method_list_nodes, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetNode", SD_BUS_ARGS("s", name), SD_BUS_RESULT("o", node),
                                method_get_node, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetNodes", SD_BUS_ARGS("o", after, "u", limit),
                                SD_BUS_RESULT("a(oa{sv})", nodes), method_get_nodes,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetServices", SD_BUS_ARGS("o", after, "u", limit),
                                SD_BUS_RESULT("a(oa{sv})", services), method_get_services,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListServices", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("a(sssxo)", services), method_list_services,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetService", SD_BUS_ARGS("s", name, "s", node, "s", instance),
                                SD_BUS_RESULT("o", service), method_get_service,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetServiceEntries", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("aa{sv}", entries), method_get_service_entries,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS(
                "RegisterService", SD_BUS_ARGS("s", name, "s", instance, "a{sv}", properties),
                SD_BUS_NO_RESULT, method_register_service, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("UnregisterService", SD_BUS_ARGS("s", name, "s", instance),
                                SD_BUS_NO_RESULT, method_unregister_service,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("SetTags", SD_BUS_ARGS("a{ss}", tags), SD_BUS_NO_RESULT,
                                method_set_tags, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Leave", NULL, NULL, method_leave, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("LeaveWithFlags", SD_BUS_ARGS("t", flags), SD_BUS_NO_RESULT,
                                method_leave_with_flags, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("LeaveWithNote", SD_BUS_ARGS("t", flags, "s", note),
                                SD_BUS_NO_RESULT, method_leave_with_flags,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Join", NULL, NULL, method_join, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("OpenTenancy", SD_BUS_NO_ARGS, SD_BUS_RESULT("h", tenancy),
                                method_open_tenancy, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("OpenTurn", SD_BUS_ARGS("ay", lock), SD_BUS_RESULT("h", turn),
                                method_open_turn, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("AdviseTTL", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("a{sv}", figures, "a(txu)", ttls),
                                method_advise_ttl, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetMetrics", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("a{sd}", values, "a{s(a(dt)d)}", histograms),
                                method_get_metrics, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Describe", SD_BUS_NO_ARGS, SD_BUS_RESULT("s", json),
                                method_describe, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("WaitForRevision",
                                SD_BUS_ARGS("x", revision, "t", timeout_usec),
                                SD_BUS_RESULT("x", revision), method_wait_for_revision,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_SIGNAL_WITH_ARGS("NodeJoined",
                                SD_BUS_ARGS("s", name, "s", id, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS(
                "NodeLeft",
                SD_BUS_ARGS("s", name, "s", id, "s", reason, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS("NodeChanged",
                                SD_BUS_ARGS("s", name, "s", id, "x", revision, "o", node), 0),
        SD_BUS_SIGNAL_WITH_ARGS(
                "ServiceAdded",
                SD_BUS_ARGS("s", name, "s", node, "s", instance, "x", revision, "o", service),
                0),
        SD_BUS_SIGNAL_WITH_ARGS("ServiceRemoved",
                                SD_BUS_ARGS("s", name, "s", node, "s", instance, "s", reason,
                                            "x", revision, "o", service),
                                0),
        SD_BUS_SIGNAL_WITH_ARGS(
                "ServiceChanged",
                SD_BUS_ARGS("s", name, "s", node, "s", instance, "x", revision, "o", service),
                0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseHeld", SD_BUS_ARGS("x", lease, "t", deadline_usec), 0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseJeopardy", SD_BUS_ARGS("x", lease, "t", deadline_usec),
                                0),
        SD_BUS_SIGNAL_WITH_ARGS("LeaseLost", SD_BUS_ARGS("s", reason), 0),
        SD_BUS_VTABLE_END,
};

/* ---- signals ---- */

void root_changed(struct agent *a, const char *property)
{
        if (a->bus)
                objects_sent(sd_bus_emit_properties_changed(bus_sd(a->bus), ROOT, MANAGER,
                                                            property, NULL),
                             "PropertiesChanged");
}

/* @why may be the text of a core's refusal. */
static int tell_lost(sd_bus *bus, const char *why)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_message_new_signal(bus, &m, ROOT, MANAGER, "LeaseLost");

        if (r >= 0)
                r = bus_append_text(m, why);
        return r < 0 ? r : sd_bus_send(bus, m, NULL);
}

void root_place_changed(struct agent *a)
{
        if (!a->bus)
                return;
        a->reported_ttl = session_ttl(member_session(a->member));
        objects_sent(sd_bus_emit_properties_changed(bus_sd(a->bus), ROOT, MANAGER, "State",
                                                    "LeaseId", "TTLUSec", "Synced", NULL),
                     "PropertiesChanged");
}

/* Emits LeaseHeld or LeaseJeopardy. */
static void tell_held(sd_bus *bus, const struct session *s, const char *signal)
{
        objects_sent(sd_bus_emit_signal(bus, ROOT, MANAGER, signal, "xt", s->lease,
                                        (uint64_t) boot_usec(session_deadline(s))),
                     signal);
}

void root_session_changed(struct agent *a, enum session_state state, const char *why)
{
        const struct session *s = member_session(a->member);

        if (!a->bus)
                return;
        if (state == SESSION_HELD)
                tell_held(bus_sd(a->bus), s, "LeaseHeld");
        else if (state == SESSION_JEOPARDY)
                tell_held(bus_sd(a->bus), s, "LeaseJeopardy");
        else if (state == SESSION_LOST)
                objects_sent(tell_lost(bus_sd(a->bus), why), "LeaseLost");
        root_place_changed(a);
}

static int on_name(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct agent *a = userdata;
        uint32_t result = 0;

        if (sd_bus_message_is_method_error(m, NULL))
                agent_bus_refused(a, sd_bus_message_get_error(m)->message);
        else if (sd_bus_message_read(m, "u", &result) < 0 || (result != 1 && result != 4))
                agent_bus_refused(a, "the name is taken: another agent runs here");
        else
                agent_bus_ready(a);
        return 0;
}

int root_attach(struct agent *a)
{
        sd_bus *bus = bus_sd(a->bus);
        int r;

        r = door_attach(a);
        if (r >= 0)
                r = sd_bus_add_object_vtable(bus, NULL, ROOT, MANAGER, root_vtable, a);
        if (r >= 0)
                r = objects_attach(a);
        if (r >= 0)
                /* Asynchronous: a bus that does not answer must not delay a heartbeat. */
                r = sd_bus_request_name_async(bus, NULL, NAME, 0, on_name, a);
        return r < 0 ? r : 0;
}
