/*
 * Whose turn it is on this host: what programs that share one lease, which is the host's, do
 * one at a time. An address of the abstract namespace (unix(7)) is one program's until it lets
 * it go, or dies; those who wait are connected to it, and hear the end. It is one for all who
 * are in one network namespace (network_namespaces(7)), and for no others.
 */
#pragma once

#include <sys/un.h>

#include "loop/loop.h"

/* Two names of one hash wait for each other, which does no harm. Returns its length. */
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

/* Waits for it; @fn comes from the loop, never from in here. */
void host_turn_begin(struct host_turn *h, struct loop *l, int64_t lease, const char *name,
                     void (*fn)(struct host_turn *h));
/* Lets it go, or waits no more; may have ended already. */
void host_turn_end(struct host_turn *h);
