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

/* Embedded. Zeroed, or after host_turn_end(), there is none. */
struct host_turn {
        struct loop *loop;
        struct sockaddr_un address;
        socklen_t len;
        int fd; /* the address is ours */
        bool ours;
        int waits; /* for who has it */
        struct loop_io io;
        struct loop_timer again;
        void (*fn)(struct host_turn *h); /* it is ours */
};

/* Waits for the turn; @fn is called from the loop, never from in here. */
void host_turn_begin(struct host_turn *h, struct loop *l, int64_t lease, const char *name,
                     void (*fn)(struct host_turn *h));
/* Gives the turn up, or stops waiting; may have ended already. */
void host_turn_end(struct host_turn *h);
