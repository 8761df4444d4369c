/*
 * A snapshot that is encoded bit by bit, of the state as it was at the start, while commands go
 * on being applied.
 *
 * What changes in place (leases, members, alarms, users) is encoded at once. Keys are a history
 * that only grows until it is compacted, so that what was there at the start is found later:
 * versions up to the revision it had. A compaction in between ends it; so does loading another
 * state, which the caller must not do under it. Equal state gives equal bytes (I4).
 */
#pragma once

#include "lease/state.h"

struct state_saver {
        const struct state *s; /* borrowed; NULL while none is under way */
        struct buf out;        /* what there is; whole when state_save_more() says so */
        struct buf tail;       /* what follows the keys */
        int64_t revision, compacted;
        struct kv_key *key; /* the next one; keys stay until a compaction */
        uint64_t n_keys;
        size_t n_at; /* where their number goes */
        /* Of the key before `key`, versions that are still to come: the last first. */
        const struct kv_version **chain;
        size_t n_chain, chain_cap;
};

/* Begins. @sv is zeroed or finished. */
void state_save_start(struct state_saver *sv, const struct state *s);

/* Encodes about @bytes more. Returns 1 when there is more to come, 0 when `out` is whole,
 * -ESTALE when a compaction came in between, or -ENOMEM; where it is negative, begin again. */
must_check_ int state_save_more(struct state_saver *sv, size_t bytes);

void state_saver_fini(struct state_saver *sv);
