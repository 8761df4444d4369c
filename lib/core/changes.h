/*
 * Membership changes, requested repeatedly until they are answered.
 *
 * A change that is lost with its leader is requested again; if it then turns out to have been
 * made already, that counts as success, unless every earlier request was refused. Part of the
 * core.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/rnd.h"
#include "base/url.h"
#include "consensus/replica.h"
#include "core/shares.h"
#include "core/status.h"

struct core_change {
        /* 0 or one of replica.h's outcomes; NO_LEADER: no final answer by the deadline. */
        void (*done)(struct core_change *ch, int outcome);
        enum replica_change what;
        uint64_t id;
        char address[URLS_MAX];
        struct requester by; /* zeroes: the core itself */
        /* Private to the core. */
        LIST_ENTRY(core_change) next;
        uint64_t request;
        unsigned asked, refused;
        struct boot_time ask_at, deadline;
};

struct changes {
        LIST_HEAD(, core_change) list;
        struct shares *shares;   /* borrowed, like ... */
        struct replica *replica; /* ... this */
        uint64_t requests;
};

/* Returns 0; or -ENOBUFS: too many wait (shares.h), and `done` will not be called. */
must_check_ int changes_ask(struct changes *c, struct core_change *ch, struct boot_time now,
                            nsec_t timeout);
/* Takes the replica's answer. */
void changes_answered(struct changes *c, uint64_t request, int outcome);
/* Member @id, this replica, was removed: completes the requests for its removal, since no other
 * replica will answer them. */
void changes_removed(struct changes *c, uint64_t id);
void changes_run(struct changes *c, struct boot_time now);
struct boot_time changes_next(const struct changes *c);
/* Ends all requests. */
void changes_end(struct changes *c);
