/*
 * Turns among the programs of this host that share the host's lease, for work that they do one
 * at a time. A program binds an address of the abstract namespace (unix(7)) and has the turn
 * until it closes it, or dies; programs that wait are connected to that address, and notice its
 * end. Turns are per network namespace (network_namespaces(7)).
 */
#pragma once

#include <sys/un.h>

#include "loop/loop.h"

/* Two names with the same hash wait for each other, which does no harm. Returns the length of
 * the address. */
socklen_t host_turn_address(int64_t lease, const char *name, struct sockaddr_un *ret);

/* Embedded. When zeroed, and after host_turn_end(), it neither waits nor has a turn. */
struct host_turn {
        struct loop *loop;
        struct sockaddr_un address;
        socklen_t len;
        int fd; /* bound to the address */
        bool ours;
        int waits; /* connected to the program that has the turn */
        struct loop_io io;
        struct loop_timer again;
        void (*fn)(struct host_turn *h); /* called when we have the turn */
};

/* Waits for the turn; @fn is called from the loop, never from in here. */
void host_turn_begin(struct host_turn *h, struct loop *l, int64_t lease, const char *name,
                     void (*fn)(struct host_turn *h));
/* Gives the turn up, or stops waiting; may have ended already. */
void host_turn_end(struct host_turn *h);
