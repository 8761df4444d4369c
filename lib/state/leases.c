#include "state/leases.h"

#include "state/charge.h"

static int lease_id_cmp(const struct lease *a, const struct lease *b)
{
        return a->id < b->id ? -1 : a->id > b->id;
}

static int lease_name_cmp(const struct lease *a, const struct lease *b)
{
        return bytes_cmp(a->name, a->name_len, b->name, b->name_len);
}

static int lease_key_cmp(const struct kv_key *a, const struct kv_key *b)
{
        return bytes_cmp(a->bytes, a->len, b->bytes, b->len);
}

TREE_GENERATE(lease_keys, kv_key, of_lease, lease_key_cmp)
TREE_GENERATE(lease_ids, lease, by_id, lease_id_cmp)
TREE_GENERATE(lease_names, lease, by_name, lease_name_cmp)

CHARGES(struct lease, CHARGE_LEASE);

static size_t lease_cost(const struct lease *l)
{
        return CHARGE_LEASE + l->name_len + (l->owner ? CHARGE_OWNER + strlen(l->owner) : 0);
}

static void lease_free(struct lease *l)
{
        if (l)
                free(l->owner);
        free(l);
}

void leases_init(struct leases *t)
{
        *t = (struct leases){0};
        RB_INIT(&t->by_id);
        RB_INIT(&t->by_name);
        RB_INIT(&t->pasts);
        RB_INIT(&t->kept);
}

bool leases_free_some(struct leases *t, struct budget *left)
{
        for (; t->n_slots > 0; t->n_slots--) {
                if (budget_is_spent(left))
                        return false;
                budget_charge(left, 1);
                lease_free(t->slots[t->n_slots - 1]);
        }
        free(t->slots);
        slots_fini(&t->taken);
        leases_init(t);
        return true;
}

struct lease *leases_find(const struct leases *t, int64_t id)
{
        struct lease *l = RB_ROOT(&t->by_id);

        while (l && l->id != id)
                l = id < l->id ? RB_LEFT(l, by_id) : RB_RIGHT(l, by_id);
        return l;
}

struct lease *leases_find_name(const struct leases *t, const void *name, size_t name_len)
{
        struct lease *l = RB_ROOT(&t->by_name);

        while (l) {
                int c = bytes_cmp(name, name_len, l->name, l->name_len);

                if (c == 0)
                        return l;
                l = c < 0 ? RB_LEFT(l, by_name) : RB_RIGHT(l, by_name);
        }
        return NULL;
}

uint32_t leases_free_slot(const struct leases *t)
{
        return (uint32_t) slots_lowest_free(&t->taken);
}

int leases_add(struct leases *t, int64_t id, int64_t ttl_ms, uint64_t index, const void *name,
               size_t name_len, const uint32_t *at_slot, struct lease **ret)
{
        struct lease *l;
        size_t slot = at_slot ? *at_slot : leases_free_slot(t), had = t->n_slots;

        if (slot >= had) {
                if (array_reserve(&t->slots, &t->slots_cap, slot + 1, sizeof(struct lease *)) <
                    0)
                        return -ENOMEM;
                memset(t->slots + had, 0, (slot + 1 - had) * sizeof(struct lease *));
        }
        l = calloc(1, sizeof(*l) + name_len);
        if (!l || slots_take(&t->taken, slot) < 0) {
                free(l);
                return -ENOMEM;
        }
        RB_INIT(&l->keys);
        l->id = id;
        l->ttl_ms = ttl_ms;
        l->born = l->renewed = index;
        l->slot = (uint32_t) slot;
        l->name_len = (uint32_t) name_len;
        if (name_len > 0)
                memcpy(l->name, name, name_len);

        assert(slot >= had || !t->slots[slot]);
        t->n_slots = max_of(had, slot + 1);
        t->slots[slot] = l;
        t->n++;
        t->bytes += lease_cost(l);
        RB_INSERT(lease_ids, &t->by_id, l);
        if (name_len > 0)
                RB_INSERT(lease_names, &t->by_name, l);
        *ret = l;
        return 0;
}

int leases_set_owner(struct leases *t, struct lease *l, struct view owner)
{
        assert(!l->owner);
        l->owner = strndup((const char *) owner.p, owner.len);
        if (!l->owner)
                return -ENOMEM;
        t->bytes += strlen(l->owner) + 16;
        return 0;
}

void leases_remove(struct leases *t, struct lease *l)
{
        assert(RB_EMPTY(&l->keys));
        RB_REMOVE(lease_ids, &t->by_id, l);
        if (l->name_len > 0)
                RB_REMOVE(lease_names, &t->by_name, l);
        t->slots[l->slot] = NULL;
        slots_give(&t->taken, l->slot);
        t->n_slots = slots_end(&t->taken);
        array_shrink(&t->slots, &t->slots_cap, t->n_slots, sizeof(struct lease *));
        t->n--;
        t->bytes -= lease_cost(l);
        lease_free(l);
}

struct kv_key *lease_key_from(const struct lease *l, struct view key)
{
        struct kv_key *k = RB_ROOT(&l->keys), *best = NULL;

        while (k)
                if (bytes_cmp(k->bytes, k->len, key.p, key.len) >= 0) {
                        best = k;
                        k = RB_LEFT(k, of_lease);
                } else {
                        k = RB_RIGHT(k, of_lease);
                }
        return best;
}

void leases_attach(struct kv_key *k, struct lease *l)
{
        if (k->lease == l)
                return;
        if (k->lease) {
                RB_REMOVE(lease_keys, &k->lease->keys, k);
                k->lease->n_keys--;
        }
        k->lease = l;
        if (l) {
                RB_INSERT(lease_keys, &l->keys, k);
                l->n_keys++;
        }
}
