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

/* Of the path of an object, in bytes: the longest names, encoded, have some 1,200. */
#define OBJECT_PATH_MAX 2048

extern const sd_bus_vtable node_vtable[], service_vtable[];

/* @r: what came of sending @what, a signal. A failure is logged. */
void objects_sent(int r, const char *what);

/* Both return *@ret, owned by the caller, or NULL when out of memory. */
const char *node_path(const char *name, char **ret);
const char *service_path(const struct service *s, char **ret);

/* Returns 0 or a negative errno. */
must_check_ int objects_attach(struct agent *a);

/* Emit InterfacesAdded, InterfacesRemoved and PropertiesChanged. */
void objects_added(struct agent *a, const char *path);
void objects_removed(struct agent *a, const char *path, const char *interface);
void objects_node_changed(struct agent *a, const char *path);
void objects_service_changed(struct agent *a, const char *path);

/* ---- reading objects, for answers that are not sd-bus's ---- */

/* One object; the other pointer is NULL. Valid until the end of the turn. */
struct object {
        struct member_node *node;
        struct service *service;
};

/* A position in the list of all objects, which has an order of its own, nodes first. Objects
 * may come and go meanwhile. All zeroes is the beginning; objects_behind() begins with the
 * nodes or the services alone, after the object at a path, or at their beginning with "/". */
struct objects_at {
        bool services;  /* past the nodes */
        char name[256]; /* of the last object */
        char node[256], instance[128];
};

/* Returns whether there was another object, which is in *@ret. */
must_check_ bool objects_next(const struct agent *a, struct objects_at *at, struct object *ret);

/* Returns 0, or -EINVAL if @path is not one of @interface's objects. */
must_check_ int objects_behind(const char *interface, const char *path, struct objects_at *ret);

/* Returns *@ret, owned by the caller, or NULL when out of memory. */
const char *objects_path(const struct object *o, char **ret);

/* objects_interface(): NODE or SERVICE. objects_find(): whether the object exists. */
const char *objects_interface(const char *path);
must_check_ bool objects_find(struct agent *a, const char *path, struct object *ret);

/* objects_append() adds the path and a{sa{sv}}, objects_append_flat() the path and a{sv}. They
 * return 0 or a negative errno. */
must_check_ int objects_append(sd_bus_message *m, const char *path, const struct object *o);
must_check_ int objects_append_flat(sd_bus_message *m, const char *path,
                                    const struct object *o);

/* The signature of a property's getter, as in sd-bus. */
#define GETTER(fn)                                                                 \
        static int fn(sd_bus *bus unused_, const char *path unused_,               \
                      const char *interface unused_, const char *property unused_, \
                      sd_bus_message *reply, void *userdata unused_,               \
                      sd_bus_error *error unused_)
