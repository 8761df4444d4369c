/*
 * Services that programs register over D-Bus, each for as long as the program is on the bus,
 * and the node's tags that were set there. Both are kept in $RUNTIME_DIRECTORY over a restart
 * of the agent, together with the id of the bus they belong to: a bus never gives the same name
 * twice.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <systemd/sd-bus.h>

#include "member/member.h"
#include "runtime.h"

struct registration;
TAILQ_HEAD(registration_list, registration);

struct registry {
        struct member *member;
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

void registry_init(struct registry *r, struct member *m, void (*now_known)(void *userdata),
                   void *userdata);
void registry_fini(struct registry *r);

/* Uses this connection from now on; NULL: the bus is gone, and with it everything that was
 * registered. */
void registry_attach(struct registry *r, sd_bus *sd);

/* For the sender of @m; what it registered before under this name says this now. Returns 0,
 * and fills in `invocation`; -EEXIST when somebody else has that name, -ENOSPC or -ENOMEM. */
must_check_ int registry_add(struct registry *r, sd_bus_message *m, struct service_record *s);
void registry_remove(struct registry *r, const char *name, const char *instance);

/* The bus name of the program that has registered it; NULL: none. */
const char *registry_owner(const struct registry *r, const char *name, const char *instance);

/* The tags have changed. */
void registry_save(const struct registry *r);
