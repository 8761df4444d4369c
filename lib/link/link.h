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
        /* The table has changed; also called once when it is first known. */
        void (*changed)(void *userdata);
        /* A carrier, an address or, if links_want_routes(), a route has appeared: what could
         * not be reached before may be reachable now. */
        void (*path_back)(void *userdata);
};

/* Returns 0 or a negative errno. */
must_check_ int links_new(struct links **ret, struct loop *l, const struct links_ops *ops,
                          void *userdata);
struct links *links_free(struct links *k);
DEFINE_CLEANUP(struct links *, links_free)

/* The table, which is empty until the first dump is complete. Valid until links_free(). */
const struct link_table *links_table(const struct links *k);
bool links_known(const struct links *k);

/* Counts since links_new(). */
struct links_counts {
        uint64_t dumps;       /* full dumps that were requested */
        uint64_t interrupted; /* of these, repeated because something had changed */
        uint64_t overflows;   /* how often the kernel had more messages than the socket holds */
};
struct links_counts links_counts(const struct links *k);

/* Sets whether route changes are followed, which is done only while somebody waits for a route:
 * a router may have a million. */
void links_want_routes(struct links *k, bool want);
