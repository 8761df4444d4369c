/*
 * Calls to the service manager, on a connection of its own (bus_new_manager()). Each call ends
 * exactly once: with its reply, or with the connection. A connection that closes, or on which
 * no reply arrives for too long, is made anew until that succeeds. Nothing here waits: replies
 * come from the loop.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "bus/bus.h"
#include "bus/signals.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"
#define SYSTEMD_UNITS SYSTEMD_PATH "/unit" /* where the units' objects are */
#define SYSTEMD_MANAGER SYSTEMD ".Manager"
#define SYSTEMD_UNIT SYSTEMD ".Unit"

/* Rules for manager_watch(). */
#define MANAGER_SIGNAL(member) \
        "path='" SYSTEMD_PATH "',interface='" SYSTEMD_MANAGER "',member='" member "'"
#define PROPERTIES_CHANGED "interface='" DBUS_PROPERTIES "',member='PropertiesChanged'"

/* Embedded. @up, or NULL: connected, so watch and query anew; from the loop, or from the first
 * call. */
struct manager {
        struct loop *loop;
        void (*up)(struct manager *m);
        struct bus *bus; /* NULL: not connected */
        bool lost;       /* freed by the timer, not from the bus's own callback */
        struct loop_timer retry, limit;
        nsec_t patience; /* how long we wait for a reply */
        LIST_HEAD(, manager_call) open;
};

/* Embedded. When zeroed, it is not open. */
struct manager_call {
        LIST_ENTRY(manager_call) entry;
        struct manager *manager; /* NULL: not open */
        sd_bus_slot *slot;
        void (*done)(struct manager_call *c, sd_bus_message *reply, int r);
};

/* @r: 0, or the negative errno of a reply that is an error; @reply is NULL if the connection
 * has ended. The call is not open any more, and may be freed or used again; the manager must
 * not be ended from here. */
typedef void (*manager_done_fn)(struct manager_call *c, sd_bus_message *reply, int r);

/* Connects with the first call. */
void manager_init(struct manager *m, struct loop *l, void (*up)(struct manager *m));
void manager_fini(struct manager *m); /* cancels all calls */
void manager_connect(struct manager *m);

/* Calls @fn with each signal that fits @rule, while the connection lasts; for @up. */
void manager_watch(struct manager *m, const char *rule, sd_bus_message_handler_t fn,
                   void *userdata);

/* Calls a method of the manager, with arguments as in sd_bus_message_append(3). Cancels @c if
 * it is open. */
void manager_call(struct manager *m, struct manager_call *c, manager_done_fn done,
                  const char *method, const char *types, ...);

/* Like manager_call(), for all properties of the object @path in @interface, "" for all
 * interfaces. */
void manager_get_all(struct manager *m, struct manager_call *c, manager_done_fn done,
                     const char *path, const char *interface);

/* Like manager_call(), for ListUnitsByNames, whose reply is for manager_next_unit(). @names
 * ends with NULL. */
void manager_list(struct manager *m, struct manager_call *c, manager_done_fn done,
                  char *names[]);

/* The next unit in the reply to manager_list(), valid as long as the reply is. Returns 1, 0 at
 * the end, or a negative errno. */
struct manager_unit {
        const char *name, *active_state;
        uint32_t job; /* 0: none */
};
must_check_ int manager_next_unit(sd_bus_message *reply, struct manager_unit *ret);

/* Reads an "a{sv}": calls @read with each key, and @m before the value. @read returns 0 if it
 * has not read the value, a positive number if it has, or a negative errno. Returns 0 or a
 * negative errno. */
must_check_ int manager_read_properties(sd_bus_message *m,
                                        int (*read)(void *userdata, const char *key,
                                                    sd_bus_message *m),
                                        void *userdata);

/* Why a call failed, for people: what the service manager says, if it does. */
const char *manager_why(sd_bus_message *reply, int r);

/* Its @done is not called. */
void manager_cancel(struct manager_call *c);

static inline bool manager_is_open(const struct manager_call *c)
{
        return c->manager;
}
