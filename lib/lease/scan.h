/*
 * A range, looked at in slices.
 *
 * What a range held at one revision stays to be seen while commands go on, until a compaction
 * goes beyond it, and then too if it was pinned: so a look at very many keys may be interrupted
 * at any key, and at any version of one. Sorted ones are sorted in runs as the keys are found,
 * and the runs are merged as they are taken out; with a limit only what may be among the first
 * is kept. Pure; borrows the state and the request.
 */
#pragma once

#include "lease/state.h"

struct scan_run {
        size_t at, end; /* in `found` */
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
        bool is_there;                   /* `key` and `kept` are; else they are to be found */
        bool walks;                      /* not at the end of the keys yet */
        bool counted, sorted, sort_all, more;
        size_t keep, limit, n_out;
        int64_t count;
        const struct kv_version **found; /* owned array */
        size_t n, cap;
        struct scan_run *runs; /* owned array; a heap by their first, once all are there */
        size_t n_runs, runs_cap, run_from;
        struct scan_run *first; /* owned array; the heap as it was before anything was taken */
        size_t n_first;
};

/* Of a live state at @revision, or, with INT64_MAX, of all that is there, what a txn has just
 * written too. STATE_E_COMPACTED, STATE_E_FUTURE, or STATE_OK; then scan_fini() follows. */
enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision);
void scan_fini(struct state_scan *sc);

/* Keeps what it looks at from compactions, until scan_fini(); @kv is the one it looks at. */
void scan_pin(struct state_scan *sc, struct kv *kv);

/* Goes on for about *@steps of 50 ns, and takes off those it has used. Returns 1 when there is
 * more; 0 at the end; -ESTALE when a compaction has gone beyond the revision, and it was not
 * pinned or has lost that; or -ENOMEM. Whether the state itself was replaced is for the caller
 * to know. */
must_check_ int scan_more(struct state_scan *sc, int64_t *steps);

/* At the end: what the range answers, one by one; NULL after the last. Borrowed while
 * scan_is_good(). Then `count` and `more` hold. */
const struct kv_version *scan_next(struct state_scan *sc);

/* Back to the first that it answers. */
void scan_rewind(struct state_scan *sc);

/* Bytes that it takes itself. */
size_t scan_bytes(const struct state_scan *sc);

/* True while what was found is there. */
bool scan_is_good(const struct state_scan *sc);
