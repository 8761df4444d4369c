/*
 * The services in the cluster and their nodes, as last reported by the core, and what changed.
 * The counterpart of membership.h for service keys; fed in the same order. Pure.
 *
 * A service's record stays JSON until somebody asks: a site may have 100,000. Of a value that
 * is larger than a record has to be, only the fields of a record are kept.
 */
#pragma once

#include "base/tree.h"
#include "member/service_record.h"

struct service {
        RB_ENTRY(service) by_name, by_node;
        const char *name, *node, *instance; /* into `text` */
        int64_t lease;
        int64_t create_revision, mod_revision;
        char *value; /* owned */
        size_t value_len;
        bool seen; /* during a resync */
        char text[];
};

/* Of a larger value, only the record is kept, written anew. */
#define SERVICE_KEPT_MAX 2048

RB_HEAD(service_names, service);
RB_PROTOTYPE(service_names, service, by_name, service_cmp_name)
RB_HEAD(service_nodes, service);
RB_PROTOTYPE(service_nodes, service, by_node, service_cmp_node)

struct services_ops {
        void (*added)(const struct service *s, int64_t revision, void *userdata);
        /* @reason: stopped, restarted, resync, or why its node left. @s is freed after this
         * call. */
        void (*removed)(const struct service *s, const char *reason, int64_t revision,
                        void *userdata);
        void (*changed)(const struct service *s, int64_t revision, void *userdata);
};

struct services {
        struct service_names by_name;
        struct service_nodes by_node;
        size_t n;
        const struct services_ops *ops;
        void *userdata;
};

void services_init(struct services *v, const struct services_ops *ops, void *userdata);
void services_fini(struct services *v);

/* @instance "" for none. O(log services). */
struct service *services_find(const struct services *v, const char *name, const char *node,
                              const char *instance);

/* The first one, in the order of names, at or after @name; and the first on @node. NULL: none.
 */
struct service *services_from(const struct services *v, const char *name);
struct service *services_on(const struct services *v, const char *node);
struct service *services_next(struct service *s);
struct service *services_next_on(struct service *s); /* on the same node */

/* Reads the whole record; if the value is not valid, everything but the names stays empty. */
void service_read(const struct service *s, struct service_record *ret);

/* A key's value, from a range or a watch. @key is <service>/<node>[/<instance>]. Returns 0 or
 * -ENOMEM. */
must_check_ int services_put(struct services *v, struct view key, struct view value,
                             int64_t lease, int64_t create_revision, int64_t mod_revision);
void services_delete(struct services *v, struct view key, int64_t revision);

/* The node has left, and its lease has ended: removes its services, for the same reason. */
void services_node_left(struct services *v, const char *node, int64_t lease, const char *reason,
                        int64_t revision);

/* See membership_forget_revisions(). */
void services_forget_revisions(struct services *v);
void services_resync_begin(struct services *v);
void services_resync_end(struct services *v, int64_t revision);
