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

struct registry_ops {
        void (*known)(void *userdata); /* ... which of an earlier run's registrations remain */
        void (*released)(void *userdata, const char *name, const char *instance);
};

struct registry {
        struct member *member;
        const struct registry_ops *ops;
        void *userdata;
        struct registration_list list;
        sd_bus *sd;         /* borrowed; NULL: no connection */
        sd_bus_slot *match; /* while programs have registered something: who leaves the bus */
        sd_bus_slot *asked;
        char bus_id[64];
        bool known;                  /* until then the list has all that an earlier run left */
        char tags[TAGS_MAX];         /* set over D-Bus; they override those of the settings */
        char file[RUNTIME_PATH_MAX]; /* "": nothing is kept */
};

void registry_init(struct registry *r, struct member *m, const struct registry_ops *ops,
                   void *userdata);
void registry_fini(struct registry *r);

/* Uses this connection from now on. NULL: the bus is gone, and all registrations with it. */
void registry_attach(struct registry *r, sd_bus *sd);

/* Registers @s for the sender of @m, and replaces what it registered under this name before.
 * Returns 0 and fills in `invocation`; -EEXIST if another program has the name, -ENOSPC or
 * -ENOMEM. */
must_check_ int registry_add(struct registry *r, sd_bus_message *m, struct service_record *s);
void registry_remove(struct registry *r, const char *name, const char *instance);

/* The bus name of the program that registered the service; NULL if none did. */
const char *registry_owner(const struct registry *r, const char *name, const char *instance);

/* Writes the file after a change of the tags. */
void registry_save(const struct registry *r);
