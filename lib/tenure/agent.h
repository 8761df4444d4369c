/*
 * The agent of this host, over D-Bus: the page (page.h), its settings that we want to know, and
 * services that it tells of for us. Nothing here waits: who is not there is asked when he is,
 * and a bus that goes is looked for until it is back.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "bus/bus.h"
#include "member/service_record.h"
#include "tenure/page.h"

struct tenure;

/* A service that the program has registered. */
struct registration {
        TAILQ_ENTRY(registration) entry;
        struct tenure *tie;
        struct service_record record;
        bool wanted;  /* else it is to be taken back */
        bool settled; /* the agent knows it so; or has refused it */
        sd_bus_slot *call;
};
TAILQ_HEAD(registration_list, registration);

struct agent_tie {
        bool started;
        bool place; /* the page is wanted */
        bool core;  /* ... and which endpoint it is connected to */
        struct bus *bus;
        bool closed; /* the bus has ended, and is to be freed */
        struct loop_timer again;
        nsec_t pause; /* before the next try */
        sd_bus_slot *owner, *changed, *tenancy, *properties;
        struct page page;
        int inotify, watch; /* -1: changes of the page are looked for */
        struct loop_io io;
        /* What it says; "": not yet. */
        char cluster[NODE_NAME_MAX + 1], node[NODE_NAME_MAX + 1], endpoint[320];
        char core_cluster[NODE_NAME_MAX + 1]; /* that we began in, where nobody else said so */
        char endpoints[4 * 320];              /* those of late, the last one first */
};

void agent_init(struct tenure *t);
void agent_start(struct tenure *t);
void agent_fini(struct tenure *t);

/* A registration has changed. */
void agent_register_services(struct tenure *t);
