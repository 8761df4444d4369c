/*
 * Reads a range in slices, one key after the other.
 *
 * The content of a range at one revision stays visible while commands go on, until a compaction
 * goes beyond that revision, and even then if it was pinned. So reading very many keys may be
 * interrupted at any key, and at any version of one, and only the position is remembered. Only
 * a range that is not sorted by key needs a list. The list holds no more than the caller
 * allows: the first entries of the rest of the answer; when they have been taken, the keys are
 * read again for the next ones. Pure; borrows the state and the request.
 */
#pragma once

#include "state/state.h"

struct scan_item {
        uint64_t rank; /* what it is sorted by, or the beginning of that */
        const struct kv_version *v;
};

struct state_scan {
        const struct state *state;
        const Pb__RangeRequest *q;
        struct kv_span span;
        int64_t revision; /* nothing later is seen */
        struct kept_pin pin;
        struct kv_key *key;              /* the one to look at next */
        const struct kept_version *kept; /* the same, of those that were compacted since */
        const struct kv_version *at;     /* of `key`; NULL: its newest */
        int64_t compacted;               /* when `at` was set: it may go with the next */
        struct buf resume;               /* the bytes of the key to go on with; none: of all */
        bool down;                       /* from the last key to the first */
        bool is_there;                   /* `key` and `kept` are; else they are to be found */
        bool walks;                      /* not at the end of the keys yet */
        bool counted, sorted, sort_all, more;
        size_t limit;
        size_t n_met; /* of those that are wanted, on this way through the keys */
        size_t n_out; /* given to the caller */
        int64_t count;
        /* Sorted: the first of those behind `last`. */
        size_t window;           /* how many there may be, above 0; the caller's */
        struct scan_item *items; /* owned array; a heap with the last of them on top at first */
        size_t n, cap, n_heap, n_taken;
        struct scan_item last;
        bool beyond; /* more than there was room for */
};

/* Begins to read a live state at @revision or, with INT64_MAX, everything that exists,
 * including what a txn has just written. STATE_E_COMPACTED, STATE_E_FUTURE, or STATE_OK; then
 * scan_fini() follows. */
enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision);
void scan_fini(struct state_scan *sc);

/* Protects the versions that it reads from compactions, until scan_fini(); @kv is the store
 * that it reads. */
void scan_pin(struct state_scan *sc, struct kv *kv);

/* Returns the next version of the answer, or NULL after the last one; then `count` and `more`
 * are valid. Works for about *@steps of 50 ns, and takes the used ones off. Returns 0; 1 if the
 * steps were not enough; -ESTALE if a compaction has gone beyond the revision and the scan was
 * not pinned or has lost its pin; or -ENOMEM. The caller has to know whether the state itself
 * was replaced. *@ret is borrowed while scan_is_good(). */
must_check_ int scan_next(struct state_scan *sc, int64_t *steps, const struct kv_version **ret);

/* To be called before anything else happens to the state, unless scan_next() has returned 1:
 * remembers the position. Returns 0 or -ENOMEM. */
must_check_ int scan_pause(struct state_scan *sc);

/* At the end: goes back to the first version of the answer. */
void scan_rewind(struct state_scan *sc);

/* Bytes that it takes itself. */
size_t scan_bytes(const struct state_scan *sc);

/* True while the version that it points to exists. */
bool scan_is_good(const struct state_scan *sc);
