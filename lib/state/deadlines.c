#include "state/deadlines.h"

#define NOWHERE UINT32_MAX

struct deadline {
        WIDER;
        nsec_t end;
        nsec_t key;  /* the heap's sort key: an end that may be out of date, or a later instant
                      * while deadlines_pop() hides the slot */
        uint32_t at; /* position in the heap, or NOWHERE if absent */
};

void deadlines_init(struct deadlines *d)
{
        *d = (struct deadlines){0};
}

void deadlines_fini(struct deadlines *d)
{
        free(d->of_slot);
        free(d->heap);
        *d = (struct deadlines){0};
}

static nsec_t key_at(const struct deadlines *d, size_t i)
{
        return d->of_slot[d->heap[i]].key;
}

static void place(struct deadlines *d, size_t i, uint32_t slot)
{
        d->heap[i] = slot;
        d->of_slot[slot].at = (uint32_t) i;
}

static void sift_up(struct deadlines *d, size_t i)
{
        uint32_t slot = d->heap[i];
        nsec_t key = d->of_slot[slot].key;

        for (; i > 0 && key < key_at(d, (i - 1) / 2); i = (i - 1) / 2)
                place(d, i, d->heap[(i - 1) / 2]);
        place(d, i, slot);
}

static void sift_down(struct deadlines *d, size_t i)
{
        uint32_t slot = d->heap[i];
        nsec_t key = d->of_slot[slot].key;

        for (;;) {
                size_t child = 2 * i + 1;

                if (child >= d->n)
                        break;
                if (child + 1 < d->n && key_at(d, child + 1) < key_at(d, child))
                        child++;
                if (key <= key_at(d, child))
                        break;
                place(d, i, d->heap[child]);
                i = child;
        }
        place(d, i, slot);
}

int deadlines_set(struct deadlines *d, uint32_t slot, struct lease_time end)
{
        struct deadline *l;
        nsec_t at = end.ns;

        if (slot >= d->n_slots) {
                if (array_reserve(&d->of_slot, &d->slots_cap, (size_t) slot + 1,
                                  sizeof(*d->of_slot)) < 0)
                        return -ENOMEM;
                for (size_t i = d->n_slots; i <= slot; i++)
                        d->of_slot[i] = (struct deadline){.at = NOWHERE};
                d->n_slots = (size_t) slot + 1;
        }
        l = &d->of_slot[slot];
        if (l->at == NOWHERE) {
                if (array_reserve(&d->heap, &d->heap_cap, d->n + 1, sizeof(*d->heap)) < 0)
                        return -ENOMEM;
                l->end = l->key = at;
                d->heap[d->n] = slot;
                sift_up(d, d->n++);
                return 0;
        }
        l->end = at;
        if (at < l->key) {
                l->key = at;
                sift_up(d, l->at);
        }
        return 0;
}

void deadlines_clear(struct deadlines *d, uint32_t slot)
{
        struct deadline *l;
        uint32_t moved;
        size_t i;

        if (slot >= d->n_slots || d->of_slot[slot].at == NOWHERE)
                return;
        l = &d->of_slot[slot];
        i = l->at;
        l->at = NOWHERE;
        moved = d->heap[--d->n];
        array_shrink(&d->heap, &d->heap_cap, d->n, sizeof(*d->heap));
        if (moved == slot)
                return;
        place(d, i, moved);
        sift_up(d, i);
        sift_down(d, d->of_slot[moved].at);
}

void deadlines_end_at(struct deadlines *d, size_t n_slots)
{
        d->n_slots = min_of(d->n_slots, n_slots);
        array_shrink(&d->of_slot, &d->slots_cap, d->n_slots, sizeof(*d->of_slot));
}

struct lease_time deadlines_get(const struct deadlines *d, uint32_t slot)
{
        if (slot >= d->n_slots || d->of_slot[slot].at == NOWHERE)
                return LEASE_TIME_NEVER;
        return (struct lease_time){d->of_slot[slot].end};
}

/* Corrects the root: a lease that was renewed since it was placed moves down to where its end
 * belongs. There may be a million of them in a row, so each costs one of *@looks. Returns false
 * if these ran out. */
static bool settle(struct deadlines *d, size_t *looks)
{
        while (d->n > 0) {
                struct deadline *l = &d->of_slot[d->heap[0]];

                if (l->key >= l->end)
                        return true;
                if (*looks == 0)
                        return false;
                --*looks;
                l->key = l->end;
                sift_down(d, 0);
        }
        return true;
}

struct lease_time deadlines_next(struct deadlines *d)
{
        size_t looks = DEADLINES_LOOKS;

        /* A root that is not corrected yet sorts before its end, so the answer is early, never
         * late. */
        (void) settle(d, &looks);
        return d->n > 0 ? (struct lease_time){key_at(d, 0)} : LEASE_TIME_NEVER;
}

bool deadlines_pop(struct deadlines *d, struct lease_time now, struct lease_time again,
                   size_t *looks, uint32_t *ret_slot)
{
        uint32_t slot;

        assert(lease_time_before(now, again));
        if (!settle(d, looks) || d->n == 0 || now.ns < key_at(d, 0))
                return false;
        slot = d->heap[0];
        d->of_slot[slot].key = again.ns;
        sift_down(d, 0);
        *ret_slot = slot;
        return true;
}
