/*
 * This host's links, addresses and routes as the kernel reports them, on our loop: dumped once,
 * then followed (rtnetlink(7), netlink(7)). A dump that a change has interrupted is restarted
 * (NLM_F_DUMP_INTR); when the socket's buffer has overflowed (ENOBUFS), everything is dumped
 * anew. Nothing here waits, and a storm of messages takes only a small part of a turn of the
 * loop.
 */
#pragma once

#include "link/table.h"

struct links;
struct loop;

struct links_ops {
        /* The table is not what it was; also called once when it is first known. */
        void (*changed)(void *userdata);
        /* A carrier, an address or, while they are listened to, a route has come: what did not
         * get through may do so now. */
        void (*path_back)(void *userdata);
};

/* Returns 0 or a negative errno. */
must_check_ int links_new(struct links **ret, struct loop *l, const struct links_ops *ops,
                          void *userdata);
struct links *links_free(struct links *k);
DEFINE_CLEANUP(struct links *, links_free)

/* Empty until the first dump has come. */
const struct link_table *links_table(const struct links *k);
bool links_known(const struct links *k);

/* How often, since links_new(). */
struct links_counts {
        uint64_t dumps;       /* all was asked for */
        uint64_t interrupted; /* of which, asked again since something had changed meanwhile */
        uint64_t overflows;   /* the kernel had more news than the socket holds */
};
struct links_counts links_counts(const struct links *k);

/* Routes are listened to only while somebody waits for one: a router may have a million. */
void links_want_routes(struct links *k, bool want);
