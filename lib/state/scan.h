/*
 * Answers a range in slices: what an iterator finds (kv_iter.h), filtered, limited and sorted.
 *
 * Only a range that is not sorted by key needs a list. The list holds no more items than the
 * caller allows: the next ones of the answer; when they have been taken, the keys are read
 * again for those after them. Pure; borrows the state and the request.
 */
#pragma once

#include "state/kv_iter.h"
#include "state/state.h"

struct scan_item {
        uint64_t rank; /* the sort key, or its first bytes */
        const struct kv_version *v;
};

struct state_scan {
        const Pb__RangeRequest *q;
        struct kv_iter it;
        bool walks; /* the scan has not reached the end of the keys */
        bool counted, sorted, sort_all, more;
        size_t limit;
        size_t n_met; /* matching keys so far, in this walk over the keys */
        size_t n_out; /* returned to the caller */
        int64_t count;
        /* If sorted: the first items after `last`. */
        size_t window;           /* the largest number of items, at least 1; set by the
                                  * caller */
        struct scan_item *items; /* owned array; at first a heap with the last item on top */
        size_t n, cap, n_heap, n_taken;
        struct scan_item last;
        bool beyond; /* there are more items than there was room for */
};

/* Begins to read a live state at @revision, or with INT64_MAX everything that exists, including
 * what a txn has just written. Returns STATE_E_COMPACTED, STATE_E_FUTURE, or STATE_OK; then
 * scan_fini() follows. */
enum state_outcome scan_begin(struct state_scan *sc, const struct state *s,
                              const Pb__RangeRequest *q, int64_t revision);
void scan_fini(struct state_scan *sc);

/* Protects the versions that the scan reads from compactions, until scan_fini(). @kv is the
 * store that it reads. */
void scan_pin(struct state_scan *sc, struct kv *kv);

/* Returns the next version of the answer, or NULL after the last one; then `count` and `more`
 * are valid. Works for about *@steps units of 50 ns, and subtracts those used. Returns 0; 1 if
 * *@steps was not enough; -ESTALE if a compaction has gone beyond the revision and the scan was
 * not pinned or has lost its pin; or -ENOMEM. The caller must notice itself if the state was
 * replaced. *@ret is borrowed while scan_is_good(). */
must_check_ int scan_next(struct state_scan *sc, int64_t *steps, const struct kv_version **ret);

/* At the end: returns to the first version of the answer. */
void scan_rewind(struct state_scan *sc);

/* Memory used by the scan itself. */
size_t scan_bytes(const struct state_scan *sc);

/* True while the version that was returned last exists. */
bool scan_is_good(const struct state_scan *sc);
