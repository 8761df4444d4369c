/* The objects on the bus: one for each node, and one for each service on a node. */
#pragma once

#include "agent.h"

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define NODE NAME ".Node"
#define SERVICE NAME ".Service"
#define ROOT "/org/tenure/Membership1"

/* Returns *@ret, owned by the caller, or NULL when out of memory. */
const char *node_path(const char *name, char **ret);
const char *service_path(const struct service *s, char **ret);

/* Returns 0 or a negative errno. */
must_check_ int objects_attach(struct agent *a);

/* InterfacesAdded, InterfacesRemoved, PropertiesChanged. */
void objects_added(struct agent *a, const char *path);
void objects_removed(struct agent *a, const char *path, const char *interface);
void objects_node_changed(struct agent *a, const char *path);
void objects_service_changed(struct agent *a, const char *path);

/* A getter of a property, as sd-bus wants it. */
#define GETTER(fn)                                                                 \
        static int fn(sd_bus *bus unused_, const char *path unused_,               \
                      const char *interface unused_, const char *property unused_, \
                      sd_bus_message *reply, void *userdata, sd_bus_error *error unused_)
