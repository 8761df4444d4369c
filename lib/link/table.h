/* The kernel's links and addresses, from its messages (rtnetlink(7)): a dump fills the table,
 * notifications update it. Pure: messages come in as bytes. */
#pragma once

#include <bsd/sys/queue.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/tree.h"

struct link {
        RB_ENTRY(link) by_index;
        int index;
        char name[16];
        bool carrier; /* up, and something is at the other end */
        bool loopback;
        bool seen; /* during a dump */
};

struct address {
        TAILQ_ENTRY(address) entry; /* in the kernel's order */
        RB_ENTRY(address) by_id;
        int index;      /* of its link */
        uint8_t family; /* AF_INET, AF_INET6 */
        uint8_t prefix_len;
        uint8_t scope;     /* RT_SCOPE_UNIVERSE, ... */
        bool usable;       /* neither tentative, nor deprecated, nor a duplicate */
        uint8_t bytes[16]; /* network order; 4 of them for AF_INET */
        bool seen;
};

struct link_table {
        RB_HEAD(link_tree, link) links;
        TAILQ_HEAD(, address) addresses;
        RB_HEAD(address_tree, address)
        ids;         /* of the same: a host of containers has thousands */
        bool failed; /* the table is incomplete, since memory ran out here or in the kernel:
                        dump again */
};

/* What a message meant. */
enum {
        LINK_CHANGED = 1, /* a link or an address has changed */
        LINK_PATH = 2,    /* a carrier, an address or a route has appeared */
};

void link_table_init(struct link_table *t);
void link_table_fini(struct link_table *t);

/* Takes one message: a whole nlmsghdr with its payload, aligned as received. Returns flags as
 * above, 0 if nothing of interest has changed, or -EBADMSG. */
must_check_ int link_table_feed(struct link_table *t, const void *message, size_t len);

/* Around a dump of all links and all addresses: entries that the dump does not contain are
 * removed. Returns whether any was. */
void link_table_dump_begin(struct link_table *t);
bool link_table_dump_end(struct link_table *t);

const struct link *link_table_find(const struct link_table *t, int index);

/* Chooses what to publish, joined by commas, best first. @wanted is a list: `core` stands for
 * @source, the address that we reach the core from ("" while unknown, and nothing if it is a
 * loopback one), or while that is not known, for the first global address of a link with a
 * carrier; `interface:NAME` for all global addresses of a link; `10.0.0.0/8` for all that are
 * in a subnet; anything else is published as it is. */
void link_table_choose(const struct link_table *t, const char *wanted, const char *source,
                       char *out, size_t size);

/* Whether an address, as text, is on this host, usable, on a link with a carrier. */
bool link_table_has(const struct link_table *t, const char *text);

/* Whether @item is one of the forms that link_table_choose() accepts. */
bool link_choice_is_valid(const char *item);
