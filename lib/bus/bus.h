/* sd-bus on our loop: a connection that is dispatched when its descriptor or its deadline asks
 * for it (sd_bus_get_fd(3), sd_bus_process(3)). Elsewhere only the vtables in agent/tenured,
 * and tenurectl, use libsystemd's bus. */
#pragma once

#include <systemd/sd-bus.h>

#include "loop/loop.h"

struct bus;

/* @closed: the connection ended; only bus_free() may be called. */
typedef void (*bus_closed_fn)(void *userdata, int r);

/* Opens the system bus, or the one in DBUS_SYSTEM_BUS_ADDRESS. */
must_check_ int bus_new(struct bus **ret, struct loop *l, bus_closed_fn closed, void *userdata);

/* Whether systemd runs here. */
bool bus_manager_is_there(void);

/* Straight to the service manager, without a bus daemon in between: its private socket, as
 * systemctl uses it. For root. -ENOENT where systemd does not run. */
must_check_ int bus_new_manager(struct bus **ret, struct loop *l, bus_closed_fn closed,
                                void *userdata);

/* Closes at once, without waiting for a bus that does not read. Accepts NULL; returns NULL. */
struct bus *bus_free(struct bus *b);
DEFINE_CLEANUP(struct bus *, bus_free)

/* Appends a string that comes from elsewhere: what D-Bus does not accept becomes '?' (the bus
 * disconnects a sender of invalid UTF-8). Returns 0 or a negative errno. */
must_check_ int bus_append_text(sd_bus_message *m, const char *text);

/* Borrowed; messages sent on it go out at the end of the loop's iteration. */
sd_bus *bus_sd(const struct bus *b);
