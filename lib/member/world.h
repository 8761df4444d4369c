/*
 * Identifies the core that answers us: its cluster, and its revision. Pure.
 *
 * The cluster id distinguishes one core from another. While our lease is in our core, answers
 * of another one mean nothing. A core that was emptied, or restored from a snapshot, may still
 * have its id, but is behind a revision that it has reported. A single replica that is behind
 * proves nothing, since it may only lag: a linearizable answer does, compared with what was
 * known when it was requested.
 *
 * A core whose majority was lost may be forced to continue as another cluster, which descends
 * from ours. Our lease may live there, so we follow it, but only when our core does not answer
 * any more. While we have a lease, no other core of the same family replaces ours.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* After this long without an answer, and with no lease left in it, the cluster is not expected
 * back. */
#define WORLD_PATIENCE (10 * NSEC_PER_SEC)

struct world {
        uint64_t cluster;          /* the cluster whose answers count; 0: the next one that
                                    * answers */
        uint64_t ancestor;         /* the one from which it was forced to descend; 0: none */
        int64_t revision;          /* the highest that it has reported */
        int64_t last, before;      /* ... when the last renewal was sent, and the one before */
        struct boot_time heard_at; /* the time of its last answer */
};

enum world_word {
        WORLD_OURS,
        WORLD_FOREIGN, /* an answer to be ignored */
        WORLD_NEW,     /* the new cluster replaces ours: everything that was known or held is
                        * void */
        WORLD_HEIR,    /* it replaces ours and descends from it: what was known is void, but
                        * what is held may be held there */
};

/* What decides about an answer: where it comes from, and what we hold. */
struct world_case {
        uint64_t cluster, ancestor; /* of the core that answers */
        bool held;                  /* we have a lease... */
        bool overdue;               /* ...and our core has not acknowledged a renewal in time */
        bool replaced; /* all endpoints that ever answered for our cluster now answer for
                        * another one, at the same address */
};

enum world_word world_judge(const struct world *w, const struct world_case *c,
                            struct boot_time now);

/* Whether we are in the cluster now: we have a lease in it (@held), or it has just answered. */
bool world_is_present(const struct world *w, bool held, struct boot_time now);

/* Our cluster, which descends from @ancestor, reports @revision. Returns true if that is behind
 * what it had reported two renewals ago: then the core must be asked. */
bool world_hear(struct world *w, uint64_t cluster, uint64_t ancestor, int64_t revision,
                struct boot_time now);

/* A renewal is being sent. */
void world_renewal(struct world *w);

/* Starts with a new cluster. */
void world_begin(struct world *w, uint64_t cluster, uint64_t ancestor, int64_t revision,
                 struct boot_time now);
