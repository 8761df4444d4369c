/*
 * Identifies the core that answers us: its cluster, and its revision. Pure.
 *
 * The cluster id distinguishes one core from another. While our lease is in our core, answers
 * of another one mean nothing. A core that was emptied, or restored from a snapshot, may still
 * have its id, but is behind a revision that it has reported. A single replica that is behind
 * proves nothing, since it may only lag: a linearizable answer does, compared with what was
 * known when it was requested.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* Of a cluster that has said nothing for so long, with no lease left in it, nothing is expected
 * any more. */
#define WORLD_PATIENCE (10 * NSEC_PER_SEC)

struct world {
        uint64_t cluster;          /* whose answers count; 0: that of the next one */
        int64_t revision;          /* the highest that it has said */
        int64_t last, before;      /* ... at the last renewal, and at the one before */
        struct boot_time heard_at; /* its last word */
};

enum world_word {
        WORLD_OURS,
        WORLD_FOREIGN, /* not to be listened to */
        WORLD_NEW,     /* instead of ours from now on: what was known, and held, is void */
};

/* What an answer of @cluster is. @held: there is a lease. @replaced: everyone who has spoken
 * for our cluster speaks, at the same address, for another one by now. */
enum world_word world_judge(const struct world *w, uint64_t cluster, bool held, bool replaced,
                            struct boot_time now);

/* Our cluster has said that it is at @revision. Returns true if that is behind what it said
 * two renewals ago: then it should be asked. */
bool world_hear(struct world *w, uint64_t cluster, int64_t revision, struct boot_time now);

/* A renewal goes out. */
void world_renewal(struct world *w);

/* Begins anew. */
void world_begin(struct world *w, uint64_t cluster, int64_t revision, struct boot_time now);
