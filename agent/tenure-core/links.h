/*
 * The links that this replica has: to and from the members that its configuration names, and no
 * others. A lone replica opens no port; one that became lone keeps it open for a minute, since
 * the member that was removed last calls once more, and is told.
 *
 * A replica that lags may not know a member that the others have added, which may be the very
 * leader from which it needs entries. So when a stranger calls, it asks the members that it
 * knows about the stranger (join.h), and accepts the members that they name until its own
 * configuration catches up.
 */
#pragma once

#include "consensus/join.h"
#include "consensus/peers.h"
#include "core/core.h"

struct links {
        struct loop *loop;
        struct resolver *resolver;
        struct core *core;
        struct replica *replica;
        struct peers_config cfg;
        struct peers *peers;
        const struct joined *joined; /* the members that the others named before we had a
                                      * configuration */
        struct joined introduced;    /* the members that they named lately */
        struct boot_time introduced_until;
        struct join *asking;
        struct core_change replacement; /* that a member has asked for, whose disk was lost;
                                         * `done` NULL: none is under way */
        uint64_t replaced;              /* whom it is about, or was about last */
        int replacement_outcome;        /* of the last one */
        unsigned refused;               /* how often we asked in vain */
        struct boot_time ask_at;
        struct loop_timer listen_again, link_again;
        bool had_others;             /* there was another member to listen to; if there is none
                                      * now ... */
        struct boot_time open_until; /* ... the port stays open until then */
};

/* Makes the links, once the replica has started; @cfg's strings and the rest are borrowed.
 * Returns 0, or a negative errno that was logged. */
must_check_ int links_start(struct links *l, struct loop *loop, struct resolver *rv,
                            struct core *core, struct replica *r, const struct joined *joined,
                            const struct peers_config *cfg);
void links_fini(struct links *l);

/* The configuration has changed. */
void links_configured(struct links *l);

void links_send(struct links *l, uint64_t peer, struct view frame);

/* As peers_room(). */
size_t links_room(const struct links *l, uint64_t peer);

/* For metrics: the state of the link to @peer. */
struct core_link links_look(const struct links *l, uint64_t peer);

/* As peers_linked(). */
bool links_are_up(const struct links *l, uint64_t peer);

/* Sends nothing more. */
void links_stop(struct links *l);
