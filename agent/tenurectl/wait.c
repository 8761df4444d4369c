/*
 * tenurectl wait node NODE, wait service SERVICE: returns once the node holds a place, or the
 * service has a provider; with --gone once it does not.
 *
 * Signals say when to look, and the answer of an agent that follows the core counts: one that
 * has just begun knows of no node, which does not mean that none is there. Whoever runs this at
 * boot is ahead of the agent, so it waits for that, too.
 */
#include <stdio.h>

#include "bus/signals.h"
#include "loop/clock.h"
#include "member/node_record.h"
#include "member/service_record.h"
#include "text.h"
#include "verbs.h"

/* An agent gets at least this time for an answer, however short --wait is. */
#define ANSWER NSEC_PER_SEC

struct waiting {
        struct ctl *ctl;
        const char *name, *thing;
        bool service;
        struct boot_time began, until; /* BOOT_TIME_NEVER: for ever */
        bool look;                     /* something has changed since the last look */
        bool known;                    /* what that look found is what there is */
        bool met;
};

static uint64_t usec_left(const struct waiting *w, nsec_t least)
{
        if (!boot_before(w->until, BOOT_TIME_NEVER))
                return UINT64_MAX;
        return (uint64_t) (max_of(boot_diff(w->until, boot_now()), least) / NSEC_PER_USEC);
}

/* ---- look ---- */

enum { LOOK_E_NOBODY = 1, LOOK_E_NOT_THERE };

/* Returns 0 and the reply; LOOK_E_NOBODY: no agent answers; LOOK_E_NOT_THERE: it knows no such
 * node; or -1 after printing what is wrong. */
static int ask(struct waiting *w, sd_bus_message *m, sd_bus_message **ret_reply)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r = sd_bus_call(w->ctl->bus, m, usec_left(w, ANSWER), &error, ret_reply);

        if (r >= 0)
                return 0;
        if (sd_bus_error_has_name(&error, SD_BUS_ERROR_SERVICE_UNKNOWN) && w->look)
                say("no agent answers on this bus; waiting for it");
        if (r == -ETIMEDOUT || sd_bus_error_has_name(&error, SD_BUS_ERROR_SERVICE_UNKNOWN) ||
            sd_bus_error_has_name(&error, SD_BUS_ERROR_NO_REPLY))
                return LOOK_E_NOBODY;
        if (sd_bus_error_has_name(&error, NAME ".NoSuchNode"))
                return LOOK_E_NOT_THERE;
        return ctl_fail("cannot ask the agent", r, &error);
}

/* Returns 0, LOOK_E_NOBODY or -1, as ask(). */
static int ask_synced(struct waiting *w, sd_bus_message **ret_reply, bool *ret)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r, synced = 0;

        r = sd_bus_message_new_method_call(w->ctl->bus, &m, NAME, ROOT, DBUS_PROPERTIES, "Get");
        if (r >= 0)
                r = sd_bus_message_append(m, "ss", MANAGER, "Synced");
        if (r < 0)
                return ctl_fail("cannot ask the agent", r, NULL);
        r = ask(w, m, ret_reply);
        if (r == 0 && sd_bus_message_read(*ret_reply, "v", "b", &synced) < 0)
                return say("the agent's answer is not valid");
        *ret = synced;
        return r;
}

/* As ask(). */
static int ask_node(struct waiting *w, sd_bus_message **ret_reply)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = sd_bus_message_new_method_call(w->ctl->bus, &m, NAME, ROOT, MANAGER, "GetNode");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", w->name);
        return r < 0 ? ctl_fail("cannot ask the agent", r, NULL) : ask(w, m, ret_reply);
}

/* As ask(). The first service behind those of smaller names is one of this name, if there is
 * any: no list of all is needed. */
static int ask_service(struct waiting *w, sd_bus_message **ret_reply)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        cleanup_(freep) char *path = NULL;
        struct json_object *o = NULL;
        const char *at;
        bool there;
        int r;

        r = sd_bus_path_encode_many(&path, ROOT "/service/%/%/%", w->name, "", "");
        if (r >= 0)
                r = sd_bus_message_new_method_call(w->ctl->bus, &m, NAME, ROOT, MANAGER,
                                                   "GetServices");
        if (r >= 0)
                r = sd_bus_message_append(m, "ou", path, (uint32_t) 1);
        if (r < 0)
                return ctl_fail("cannot ask the agent", r, NULL);
        r = ask(w, m, ret_reply);
        if (r != 0)
                return r;
        r = sd_bus_message_enter_container(*ret_reply, 'a', "(oa{sv})");
        if (r >= 0)
                r = sd_bus_message_enter_container(*ret_reply, 'r', "oa{sv}");
        if (r == 0)
                return LOOK_E_NOT_THERE;
        if (r >= 0)
                r = sd_bus_message_read(*ret_reply, "o", &at);
        if (r >= 0)
                r = ctl_read_properties(*ret_reply, &o);
        if (r < 0)
                return say("the agent's answer is not valid");
        there = strcmp(ctl_text(o, "Name"), w->name) == 0;
        json_object_put(o);
        return there ? 0 : LOOK_E_NOT_THERE;
}

/* Both answers have to come from one agent: between them, it may have been restarted. Returns
 * 0, or -1 after printing what is wrong. */
static int look(struct waiting *w)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *first = NULL, *second = NULL;
        bool synced = false;
        int r = ask_synced(w, &first, &synced);

        w->look = w->known = false;
        if (r == 0 && synced)
                r = w->service ? ask_service(w, &second) : ask_node(w, &second);
        else if (r == 0)
                r = LOOK_E_NOBODY;
        if (r < 0 || r == LOOK_E_NOBODY)
                return min_of(r, 0);
        if (second &&
            strcmp(sd_bus_message_get_sender(first), sd_bus_message_get_sender(second)) != 0)
                return 0; /* on_moved() follows */
        w->known = true;
        w->met |= (r == LOOK_E_NOT_THERE) == w->ctl->o.gone;
        return 0;
}

/* ---- signals ---- */

/* A node that has left has lost its place, even if it has a new one already. */
static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct waiting *w = userdata;

        w->look = true;
        if (w->ctl->o.gone)
                w->met |= !w->service && sd_bus_message_is_signal(m, MANAGER, "NodeLeft");
        else
                w->met |= sd_bus_message_is_signal(m, MANAGER,
                                                   w->service ? "ServiceAdded" : "NodeJoined");
        return 0;
}

static void on_moved(void *userdata, const char *owner)
{
        struct waiting *w = userdata;

        if (*owner)
                w->look = true;
        else
                say("the agent is gone; waiting for it");
}

static int subscribe(struct waiting *w, struct signals *agent)
{
        char rule[2 * NODE_NAME_MAX];
        int r = signals_follow(agent, w->ctl->bus, NAME, on_moved, w);

        for (size_t i = 0; r >= 0 && i < 2; i++) {
                snprintf(rule, sizeof(rule),
                         "path='" ROOT "',interface='" MANAGER "',member='%s',arg0='%s'",
                         w->service ? i == 0 ? "ServiceAdded" : "ServiceRemoved"
                         : i == 0   ? "NodeJoined"
                                    : "NodeLeft",
                         w->name);
                r = signals_add(agent, NULL, rule, on_signal, w);
        }
        if (r >= 0)
                r = signals_add(agent, NULL,
                                "path='" ROOT "',interface='" DBUS_PROPERTIES
                                "',member='PropertiesChanged',arg0='" MANAGER "'",
                                on_signal, w);
        return r < 0 ? ctl_fail("cannot subscribe", r, NULL) : 0;
}

/* ---- the end ---- */

static const char *state_of(const struct waiting *w, bool there)
{
        if (w->service)
                return there ? "has a provider" : "has no provider";
        return there ? "holds a place" : "holds no place";
}

static int give_up(const struct waiting *w)
{
        double after = (double) w->ctl->o.wait / 1e9;

        if (w->known)
                say("the %s %s still %s after %g s", w->thing, w->name,
                    state_of(w, w->ctl->o.gone), after);
        else
                say("after %g s it is not known whether the %s %s %s, as no agent that follows "
                    "the core has answered",
                    after, w->thing, w->name, state_of(w, true));
        return EXIT_NOT_SO;
}

static int tell(struct waiting *w)
{
        nsec_t waited = boot_diff(boot_now(), w->began);
        struct json_object *o = json_object_new_object();

        json_put_text(o, w->thing, w->name);
        json_object_object_add(o, "gone", json_object_new_boolean(w->ctl->o.gone));
        json_put_number(o, "waited_usec", waited / NSEC_PER_USEC);
        ctl_did(w->ctl, o, "The %s %s %s; waited %.3f s.", w->thing, w->name,
                state_of(w, !w->ctl->o.gone), (double) waited / 1e9);
        return 0;
}

static int wait_for(struct waiting *w)
{
        cleanup_(signals_end) struct signals agent = {0};
        int r;

        w->began = boot_now();
        w->until = w->ctl->o.wait < 0 ? BOOT_TIME_NEVER : boot_add(w->began, w->ctl->o.wait);
        w->look = true;
        r = subscribe(w, &agent);
        while (r == 0 && !w->met) {
                if (w->look)
                        r = look(w);
                if (r == 0 && !w->met && !boot_before(boot_now(), w->until))
                        return give_up(w);
                if (r == 0 && !w->met)
                        r = ctl_hear_for(w->ctl, usec_left(w, 0));
        }
        return r < 0 ? r : tell(w);
}

int verb_wait_node(struct ctl *c, int argc unused_, char **argv)
{
        struct waiting w = {.ctl = c, .name = argv[0], .thing = "node"};

        if (!node_name_is_valid(w.name))
                return say("a node's name has 1 to %d letters, digits and . _ - :; '%s' is not "
                           "one",
                           NODE_NAME_MAX, w.name);
        return wait_for(&w);
}

int verb_wait_service(struct ctl *c, int argc unused_, char **argv)
{
        struct waiting w = {.ctl = c, .name = argv[0], .thing = "service", .service = true};

        if (!service_name_is_valid(w.name))
                return say("a service's name has 1 to %d letters, digits and . _ - :; '%s' is "
                           "not one",
                           SERVICE_NAME_MAX, w.name);
        return wait_for(&w);
}
