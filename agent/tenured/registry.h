/*
 * Services that programs register over D-Bus, each for as long as the program is on the bus;
 * and the node's tags that were set there. Both are kept in $RUNTIME_DIRECTORY over a restart
 * of the agent, with the bus they belong to: names on it are not given twice.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <systemd/sd-bus.h>

#include "client/client.h"
#include "runtime.h"

struct registration;
TAILQ_HEAD(registration_list, registration);

struct registry {
        struct client *client;
        void (*now_known)(void *userdata); /* what an earlier life had is here, or gone */
        void *userdata;
        struct registration_list list;
        sd_bus *sd; /* borrowed; NULL: no bus */
        sd_bus_slot *asked;
        char bus_id[64];
        bool known;
        char tags[TAGS_MAX];         /* set over D-Bus, over those of the settings */
        char file[RUNTIME_PATH_MAX]; /* "": nothing is kept */
};

void registry_init(struct registry *r, struct client *c, void (*now_known)(void *userdata),
                   void *userdata);
void registry_fini(struct registry *r);

/* On this connection from now on; NULL: it is gone, and with it whoever had registered. */
void registry_attach(struct registry *r, sd_bus *sd);

/* For the sender of @m; what it registered before under this name says this now. Returns 0,
 * and fills in `invocation`; -EEXIST when somebody else has that name, -ENOSPC or -ENOMEM. */
must_check_ int registry_add(struct registry *r, sd_bus_message *m, struct service_record *s);
void registry_remove(struct registry *r, const char *name, const char *instance);

/* The bus name of who has registered it; NULL: nobody. */
const char *registry_owner(const struct registry *r, const char *name, const char *instance);

/* The tags have changed. */
void registry_save(const struct registry *r);
