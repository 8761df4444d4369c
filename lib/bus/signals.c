#include "bus/signals.h"

#include <stdio.h>

#define OWNER_CHANGED                                                                       \
        "type='signal',sender='" DBUS "',path='" DBUS_PATH "',interface='" DBUS "',member=" \
        "'NameOwnerChanged',"

static bool is_from(sd_bus_message *m, const char *connection)
{
        const char *sender = sd_bus_message_get_sender(m);

        return sender && *connection && strcmp(sender, connection) == 0;
}

/* Reads NameOwnerChanged. False: it does not come from the bus. */
static bool read_change(sd_bus_message *m, const char **ret_name, const char **ret_owner)
{
        const char *was;

        return is_from(m, DBUS) &&
               sd_bus_message_read(m, "sss", ret_name, &was, ret_owner) >= 0;
}

/* ---- the owner of a name ---- */

static int on_moved(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct signals *s = userdata;
        const char *name, *owner;

        if (!read_change(m, &name, &owner) || strcmp(name, s->name) != 0)
                return 0;
        snprintf(s->owner, sizeof(s->owner), "%s", owner);
        if (s->moved)
                s->moved(s->userdata, s->owner);
        return 0;
}

/* An error says that nobody owns the name. */
static int on_owner(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct signals *s = userdata;
        const char *owner = "";

        s->asked = sd_bus_slot_unref(s->asked);
        if (!sd_bus_message_is_method_error(m, NULL))
                (void) !sd_bus_message_read(m, "s", &owner);
        snprintf(s->owner, sizeof(s->owner), "%s", owner);
        return 0;
}

int signals_follow(struct signals *s, sd_bus *sd, const char *name,
                   void (*moved)(void *userdata, const char *owner), void *userdata)
{
        char rule[512];
        int r;

        *s = (struct signals){.name = name, .moved = moved, .userdata = userdata, .sd = sd};
        snprintf(rule, sizeof(rule), OWNER_CHANGED "arg0='%s'", name);
        r = sd_bus_add_match_async(sd, &s->match, rule, on_moved, NULL, s);
        if (r >= 0)
                r = sd_bus_call_method_async(sd, &s->asked, DBUS, DBUS_PATH, DBUS,
                                             "GetNameOwner", on_owner, s, "s", name);
        return r < 0 ? r : 0;
}

void signals_end(struct signals *s)
{
        sd_bus_slot_unref(s->match);
        sd_bus_slot_unref(s->asked);
        *s = (struct signals){0};
}

/* ---- signals ---- */

/* What a match is for; its slot owns it. */
struct handler {
        const struct signals *from; /* NULL: the manager, or the bus itself */
        sd_bus_message_handler_t fn;
        void (*left)(void *userdata, const char *connection);
        void *userdata;
};

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const struct handler *h = userdata;

        if (h->from && !is_from(m, h->from->owner))
                return 0;
        return h->fn(m, h->userdata, error);
}

static int on_departure(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        const struct handler *h = userdata;
        const char *name, *owner;

        if (read_change(m, &name, &owner) && !*owner)
                h->left(h->userdata, name);
        return 0;
}

static void forget(void *userdata)
{
        free(userdata);
}

static int add(sd_bus *sd, sd_bus_slot **ret, const char *rule, sd_bus_message_handler_t fn,
               const struct handler *like)
{
        struct handler *h = malloc(sizeof(*h));
        sd_bus_slot *slot;
        int r;

        if (!h)
                return -ENOMEM;
        *h = *like;
        r = sd_bus_add_match_async(sd, &slot, rule, fn, NULL, h);
        if (r < 0) {
                free(h);
                return r;
        }
        (void) sd_bus_slot_set_destroy_callback(slot, forget);
        if (ret) {
                *ret = slot;
                return 0;
        }
        r = sd_bus_slot_set_floating(slot, true);
        sd_bus_slot_unref(slot);
        return r < 0 ? r : 0;
}

int signals_add(struct signals *s, sd_bus_slot **ret, const char *rule,
                sd_bus_message_handler_t fn, void *userdata)
{
        char whole[512];

        snprintf(whole, sizeof(whole), "type='signal',sender='%s',%s", s->name, rule);
        return add(s->sd, ret, whole, on_signal,
                   &(struct handler){.from = s, .fn = fn, .userdata = userdata});
}

int signals_add_departures(sd_bus *sd, sd_bus_slot **ret,
                           void (*fn)(void *userdata, const char *connection), void *userdata)
{
        return add(sd, ret, OWNER_CHANGED "arg2=''", on_departure,
                   &(struct handler){.left = fn, .userdata = userdata});
}

int signals_add_manager(sd_bus *sd, const char *rule, sd_bus_message_handler_t fn,
                        void *userdata)
{
        char whole[512];

        assert(sd_bus_is_bus_client(sd) == 0);
        snprintf(whole, sizeof(whole), "type='signal',%s", rule);
        return add(sd, NULL, whole, on_signal,
                   &(struct handler){.fn = fn, .userdata = userdata});
}
