/*
 * The agent of this host, over D-Bus: the page (page.h), those of its properties that we need,
 * and services that it registers for us. Nothing here waits: an agent that is not there is
 * asked when it appears, and if the bus goes, we try to connect until it is back.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "bus/bus.h"
#include "bus/signals.h"
#include "member/service_record.h"
#include "tenure/page.h"

struct tenure;

/* A service that the program has registered. */
struct registration {
        TAILQ_ENTRY(registration) entry;
        struct tenure *tie;
        struct service_record record;
        bool wanted;  /* false: it is to be unregistered */
        bool settled; /* the agent has accepted it in this form, or has refused it finally */
        sd_bus_slot *call;
};
TAILQ_HEAD(registration_list, registration);

/* Embedded in who waits for the answer, which is a descriptor for a turn (loop/host_turn.h).
 * When zeroed, it is not asked. */
struct turn_request {
        LIST_ENTRY(turn_request) entry;
        struct tenure *tie; /* NULL: it is not asked */
        sd_bus_slot *call;
        /* @fd: the caller's; -EACCES: the agent does not allow it; -ENOSYS: it is of release
         * 0.1.0, and has none; or another negative errno: ask again. */
        void (*fn)(struct turn_request *q, int fd, const char *why);
};
LIST_HEAD(turn_request_list, turn_request);

struct agent_tie {
        bool started;
        bool place; /* we need the page */
        bool core;  /* we need the endpoint that the agent is connected to */
        struct bus *bus;
        bool closed; /* the bus has ended, and is to be freed */
        struct loop_timer again;
        nsec_t pause; /* before the next try */
        struct signals from;
        sd_bus_slot *changed, *tenancy, *properties;
        struct turn_request_list turn_requests;
        struct page page;
        int inotify, watch; /* -1: hold.c reads the page from time to time instead */
        struct loop_io io;
        /* What the agent reports; "": nothing yet. */
        char cluster[NODE_NAME_MAX + 1], node[NODE_NAME_MAX + 1], endpoint[320];
        char core_cluster[NODE_NAME_MAX + 1]; /* the agent's cluster when we began */
        char endpoints[4 * 320];              /* the agent's recent ones, the last one first */
};

void agent_init(struct tenure *t);
void agent_start(struct tenure *t);
void agent_fini(struct tenure *t);

/* The endpoint that the agent uses, or has used last; "": it has not said so yet. */
const char *agent_endpoint(const struct tenure *t);

/* Sends the registrations that have changed. */
void agent_register_services(struct tenure *t);

/* Asks the agent for a descriptor; @fn gets the answer, never from in here. Returns a negative
 * errno if there is no agent to ask now. */
must_check_ int agent_ask_turn(struct tenure *t, struct turn_request *q, const char *lock,
                               void (*fn)(struct turn_request *q, int fd, const char *why));
/* The answer is not wanted any more; or it was given. */
void agent_forget_turn(struct turn_request *q);
