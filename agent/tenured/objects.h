/* The objects on the bus: one for each node, and one for each service on a node. */
#pragma once

#include "agent.h"

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define NODE NAME ".Node"
#define SERVICE NAME ".Service"
#define ROOT "/org/tenure/Membership1"
#define NODES ROOT "/node"
#define SERVICES ROOT "/service"

extern const sd_bus_vtable node_vtable[], service_vtable[];

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

/* ---- what they are, for answers of our own ---- */

/* One of them, lent until the loop goes round; the other one is NULL. */
struct object {
        struct member_node *node;
        struct service *service;
};

/* Goes through all objects in an order of its own, nodes first; what comes or goes meanwhile
 * does no harm. Begins with all zeroes, or, of nodes or services alone, behind the object at a
 * path: "/" for the beginning. */
struct objects_at {
        bool services;  /* past the nodes */
        char name[256]; /* of the last one */
        char node[256], instance[128];
};

/* Returns whether there is one more. */
must_check_ bool objects_next(const struct agent *a, struct objects_at *at, struct object *ret);

/* Returns 0, or -EINVAL where @path is none of @interface's. */
must_check_ int objects_behind(const char *interface, const char *path, struct objects_at *ret);

/* Returns *@ret, owned by the caller, or NULL when out of memory. */
const char *objects_path(const struct object *o, char **ret);

/* NODE or SERVICE; whether there is one. */
const char *objects_interface(const char *path);
must_check_ bool objects_find(struct agent *a, const char *path, struct object *ret);

/* Appends the path and a{sa{sv}}, or the path and a{sv}. Returns 0 or a negative errno. */
must_check_ int objects_append(sd_bus_message *m, const char *path, const struct object *o);
must_check_ int objects_append_flat(sd_bus_message *m, const char *path,
                                    const struct object *o);

/* A getter of a property, as sd-bus wants it. */
#define GETTER(fn)                                                                 \
        static int fn(sd_bus *bus unused_, const char *path unused_,               \
                      const char *interface unused_, const char *property unused_, \
                      sd_bus_message *reply, void *userdata, sd_bus_error *error unused_)
