/*
 * The table of leases: their owners, their TTLs, and the log index at which each was last
 * renewed.
 *
 * Replicated state: everything here follows from the log alone. It holds TTLs, never instants;
 * the granter's deadlines are deadlines.h. A lease has an id, which clients use, and a dense
 * slot, which the log and the deadlines use. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/tree.h"
#include "state/kv.h"
#include "state/slots.h"

RB_HEAD(lease_keys, kv_key);
RB_PROTOTYPE(lease_keys, kv_key, of_lease, lease_key_cmp)

struct lease {
        WIDER;
        RB_ENTRY(lease) by_id;
        RB_ENTRY(lease) by_name; /* only if name_len > 0 */
        struct lease_keys keys;  /* in the order of keys */
        int64_t id;
        int64_t ttl_ms;
        uint64_t born;    /* the log index that granted it */
        uint64_t renewed; /* the log index that renewed it last, or `born` */
        uint32_t slot;
        uint32_t n_keys;
        char *owner; /* the user who granted it; NULL: no user was logged in. Owned */
        uint32_t name_len;
        uint8_t name[];
};

RB_HEAD(lease_ids, lease);
RB_HEAD(lease_names, lease);
RB_HEAD(lease_pasts, lease_past);
RB_HEAD(lease_kepts, lease_kept);
RB_PROTOTYPE(lease_ids, lease, by_id, lease_id_cmp)
RB_PROTOTYPE(lease_names, lease, by_name, lease_name_cmp)

struct leases {
        WIDER;
        struct lease_ids by_id;
        struct lease_names by_name;
        struct lease **slots; /* NULL: free; owned */
        size_t n_slots;       /* one more than the highest slot in use */
        size_t slots_cap;
        struct slots taken; /* the slots in use */
        size_t n;
        size_t bytes; /* with their deadlines, as the quota counts them (charge.h) */
        /* lease_past.h: readers in slices, and the slots that have changed since they began.
         * Not part of the state. */
        struct lease_pasts pasts;
        struct lease_kepts kept;
        uint64_t n_begun;
        size_t past_slot; /* the lowest slot that a reader still has to read */
        size_t kept_bytes;
};

void leases_init(struct leases *t);

/* Frees all in slices, when there are no readers any more (lease_past.h). Returns false if
 * @left was not enough; then only the same call may follow. */
must_check_ bool leases_free_some(struct leases *t, struct budget *left);

struct lease *leases_find(const struct leases *t, int64_t id);
struct lease *leases_find_name(const struct leases *t, const void *name, size_t name_len);

/* The lease in @slot, or NULL. */
static inline struct lease *leases_at(const struct leases *t, size_t slot)
{
        return slot < t->n_slots ? t->slots[slot] : NULL;
}

/* The lowest free slot. */
uint32_t leases_free_slot(const struct leases *t);

/* Adds a lease, in slot *@at_slot, or in the lowest free one if that is NULL. The id and the
 * name must be free. Returns 0 or -ENOMEM. */
must_check_ int leases_add(struct leases *t, int64_t id, int64_t ttl_ms, uint64_t index,
                           const void *name, size_t name_len, const uint32_t *at_slot,
                           struct lease **ret);

/* To be called once, soon after the lease was added. Returns 0 or -ENOMEM. */
must_check_ int leases_set_owner(struct leases *t, struct lease *l, struct view owner);

/* Removes and frees a lease without keys. */
void leases_remove(struct leases *t, struct lease *l);

/* The first key of @l at @key or after it; NULL: none. */
struct kv_key *lease_key_from(const struct lease *l, struct view key);

/* Attaches @k to @l instead of its present lease; NULL: to none. */
void leases_attach(struct kv_key *k, struct lease *l);
