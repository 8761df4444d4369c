/*
 * Reads a range in slices, one key after the other.
 *
 * What a range held at one revision stays visible while commands go on, until a compaction goes
 * beyond it, and then too if it was pinned: so reading very many keys may be interrupted at any
 * key, and at any version of one, and only the position is remembered. Only a range that is
 * sorted by something else than keys needs a list. That holds no more than the caller allows:
 * the first entries of what is left to answer; when they have been taken, the keys are read
 * again for those that follow. Pure; borrows the state and the request.
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

/* Of a live state at @revision, or, with INT64_MAX, of all that is there, what a txn has just
 * written too. STATE_E_COMPACTED, STATE_E_FUTURE, or STATE_OK; then scan_fini() follows. */
enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision);
void scan_fini(struct state_scan *sc);

/* Keeps what it looks at from compactions, until scan_fini(); @kv is the one it looks at. */
void scan_pin(struct state_scan *sc, struct kv *kv);

/* Gives the next that the range answers, or NULL after the last; then `count` and `more` hold.
 * Goes on for about *@steps of 50 ns, and takes off those it has used. Returns 0; 1 where they
 * did not last; -ESTALE when a compaction has gone beyond the revision, and it was not pinned
 * or has lost that; or -ENOMEM. Whether the state itself was replaced is for the caller to
 * know. *@ret is borrowed while scan_is_good(). */
must_check_ int scan_next(struct state_scan *sc, int64_t *steps, const struct kv_version **ret);

/* Before anything else happens to the state, unless scan_next() has said 1: remembers where it
 * stands. Returns 0 or -ENOMEM. */
must_check_ int scan_pause(struct state_scan *sc);

/* At the end: back to the first that it answers. */
void scan_rewind(struct state_scan *sc);

/* Bytes that it takes itself. */
size_t scan_bytes(const struct state_scan *sc);

/* True while what it looks at is there. */
bool scan_is_good(const struct state_scan *sc);
