/*
 * Encodes a snapshot in slices, of the state as it was at the start, while commands go on being
 * applied.
 *
 * Members and alarms are few, and encoded at once. Users and roles come next: they seldom
 * change, and if one does before they all are encoded, their encoding begins again. Leases
 * (lease_past.h), then keys with their history (past.h), are pinned: what was there at the
 * start is found later, whatever is changed or compacted meanwhile; loading another state ends
 * it. Equal state gives equal bytes (I4).
 */
#pragma once

#include "state/lease_past.h"
#include "state/past.h"
#include "state/state.h"

struct state_saver {
        struct buf out;  /* what was encoded; the caller may consume what it has read */
        struct buf tail; /* what follows the keys */
        struct state *state;
        uint64_t auth_revision; /* as users and roles were when it began... */
        size_t auth_at;         /* ...of which so many are in `tail` */
        bool auth_done;
        struct lease_past leases;
        bool leases_done;
        struct buf owners; /* of those that were encoded */
        struct buf cached; /* what follows them */
        uint64_t n_owners;
        struct past past;
        uint64_t n_keys;     /* that are still to be encoded */
        size_t size;         /* of all of it, once that is counted */
        struct view part;    /* what is left of a name or a value that is under way */
        bool has_part;       /* it may be empty */
        uint64_t n_versions; /* of a name under way: how many follow it */
};

/* Begins. @sv is zeroed or finished. */
void state_save_start(struct state_saver *sv, struct state *s);

/* Optional, before the first state_save_more(): counts about @bytes more, to find out the size
 * of the whole. The leases are in `out` after that. Returns 1 when there is more to count, 0
 * when `size` is known, or an error as below. */
must_check_ int state_save_count(struct state_saver *sv, size_t bytes);

/* Encodes about @bytes more. Returns 1 when there is more to come; 0 when the last of it is in
 * `out`; -ESTALE when more was compacted in between than could be kept, a user or a role
 * changed too soon, or another state was loaded; or -ENOMEM. After a negative result, begin
 * again.
 */
must_check_ int state_save_more(struct state_saver *sv, size_t bytes);

/* Bytes that it takes itself. */
size_t state_saver_bytes(const struct state_saver *sv);

void state_saver_fini(struct state_saver *sv);
