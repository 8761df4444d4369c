/*
 * Signals, each believed only from whom it has to come. A message bus lets every user send a
 * signal straight to our connection, and sd-bus, which does not know who owns a name, lets such
 * a signal pass a match by that name. So the owner is followed here, and the sender of each
 * signal compared; .ci/layers keeps matches out of all other files. Nothing here waits: a bus
 * that refuses a match ends the connection.
 */
#pragma once

#include <systemd/sd-bus.h>

#include "base/base.h"

/* The bus itself, and what all objects may have. */
#define DBUS "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"
#define DBUS_PROPERTIES DBUS ".Properties"

/* Who owns a name on the bus. Embedded; when zeroed, no name is followed. */
struct signals {
        const char *name;
        char owner[256]; /* the owner's connection; "": none, or not known yet */
        void (*moved)(void *userdata, const char *owner);
        void *userdata;
        sd_bus *sd; /* borrowed */
        sd_bus_slot *match, *asked;
};

/* Follows the owner of @name, which is borrowed. @moved, or NULL: has another owner from now
 * on; "": none. Not called for the first one. Returns 0 or a negative errno; signals_end() in
 * either case. */
must_check_ int signals_follow(struct signals *s, sd_bus *sd, const char *name,
                               void (*moved)(void *userdata, const char *owner),
                               void *userdata);
void signals_end(struct signals *s);

/* Calls @fn with each signal of the owner that fits @rule, which says all but the sender, as in
 * sd_bus_add_match(3). *@ret ends it, and must go before @s; with NULL the connection's end
 * does. Returns 0 or a negative errno. */
must_check_ int signals_add(struct signals *s, sd_bus_slot **ret, const char *rule,
                            sd_bus_message_handler_t fn, void *userdata);

/* Calls @fn with each connection that leaves the bus. Returns 0 or a negative errno. */
must_check_ int signals_add_departures(sd_bus *sd, sd_bus_slot **ret,
                                       void (*fn)(void *userdata, const char *connection),
                                       void *userdata);

/* Like signals_add(), for the connection of bus_new_manager(), which has no other peer; until
 * that ends. */
must_check_ int signals_add_manager(sd_bus *sd, const char *rule, sd_bus_message_handler_t fn,
                                    void *userdata);
