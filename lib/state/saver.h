/*
 * Encodes a snapshot in slices, of the state as it was at the start, while commands go on being
 * applied.
 *
 * Members and alarms are few, and encoded at once. Users and roles come next: they seldom
 * change, and if one changes before all are encoded, their encoding starts again. Leases
 * (lease_past.h), then keys with their history (kv_iter.h), are pinned: their content at the
 * start stays readable, whatever is changed or compacted meanwhile, until another state is
 * loaded. Equal state gives equal bytes (I4).
 */
#pragma once

#include "state/kv_iter.h"
#include "state/snapshot.h"

struct state_saver {
        struct buf out;  /* the encoded bytes; the caller may consume those that it has read */
        struct buf tail; /* the parts that follow the keys */
        struct state *state;
        uint64_t auth_revision; /* the revision of users and roles when their encoding began
                                 * ... */
        size_t auth_at;         /* ... and how many of them are in `tail` */
        bool auth_done;
        struct lease_past leases;
        bool leases_done;
        struct buf owners; /* owners of the leases that were encoded */
        struct buf cached; /* what follows the owners: cached ranges, and the version */
        uint64_t n_owners;
        struct kv_iter keys;
        uint64_t n_keys;     /* still to be encoded */
        size_t size;         /* of the whole snapshot, once that is known */
        struct view part;    /* the rest of a name or value that is being copied */
        bool has_part;       /* a part is being copied; it may be empty */
        uint64_t n_versions; /* for a name: the number of versions that follow it */
};

/* Begins. @sv is zeroed or finished. */
void state_save_start(struct state_saver *sv, struct state *s);

/* Optional, before the first state_save_more(): counts about @bytes more, to compute the size
 * of the whole snapshot. Afterwards, `out` contains the leases. Returns 1 if there is more to
 * count, 0 when `size` is known, or an error as below. */
must_check_ int state_save_count(struct state_saver *sv, size_t bytes);

/* Encodes about @bytes more. Returns 1 if there is more to come; 0 when the rest is in `out`;
 * -ESTALE if more was compacted than could be kept, if users or roles changed too often, or if
 * another state was loaded; or -ENOMEM. After a negative result, start again. */
must_check_ int state_save_more(struct state_saver *sv, size_t bytes);

/* Memory used by the saver itself. */
size_t state_saver_bytes(const struct state_saver *sv);

void state_saver_fini(struct state_saver *sv);
