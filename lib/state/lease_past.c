#include "state/lease_past.h"

#define KEPT_MAX ((size_t) 256 << 20)
#define AHEAD 8       /* prefetched: leases are scattered over memory */
#define LEASE_STEPS 2 /* for a lease that exists */
#define KEPT_STEPS 4  /* while slots are kept: each slot is looked up among them first */
#define FREE_SLOTS 16 /* free slots that cost FREE_STEPS */
#define FREE_STEPS 2
#define DROP_MAX 4096  /* kept slots, no longer needed, freed at once */
#define DROP_ENDED 256 /* when a reader ends */
#define DROP_CHANGED 2 /* with each change */

/* What was in a slot before it changed. A reader whose number is at most `until`, but larger
 * than that of the slot's previous kept entry, sees this. */
struct lease_kept {
        RB_ENTRY(lease_kept) by_slot;
        uint64_t until;
        struct lease_then then; /* its name and owner point into `bytes` */
        bool was_free;
        uint8_t bytes[];
};

static int past_cmp(const struct lease_past *a, const struct lease_past *b)
{
        return a->number < b->number ? -1 : a->number > b->number;
}

static int kept_cmp(const struct lease_kept *a, const struct lease_kept *b)
{
        if (a->then.slot != b->then.slot)
                return a->then.slot < b->then.slot ? -1 : 1;
        return a->until < b->until ? -1 : a->until > b->until;
}

TREE_GENERATE(lease_pasts, lease_past, by_number, past_cmp)
TREE_GENERATE(lease_kepts, lease_kept, by_slot, kept_cmp)

static size_t kept_cost(const struct lease_kept *e)
{
        return sizeof(*e) + e->then.name.len + e->then.owner.len + 16;
}

static void drop(struct leases *t, struct lease_kept *e)
{
        RB_REMOVE(lease_kepts, &t->kept, e);
        t->kept_bytes -= kept_cost(e);
        free(e);
}

/* The progress of the remaining readers is computed only when one of them moves on: many may
 * end in one turn. */
static void lose(struct lease_past *p)
{
        struct leases *t = p->of;

        RB_REMOVE(lease_pasts, &t->pasts, p);
        p->of = NULL;
        if (RB_EMPTY(&t->pasts))
                t->past_slot = SIZE_MAX;
}

/* Drops kept slots that every reader has passed, at most @max of them. */
static void drop_some(struct leases *t, size_t max)
{
        struct lease_kept *e;

        while ((e = RB_MIN(lease_kepts, &t->kept)) && e->then.slot < t->past_slot && max-- > 0)
                drop(t, e);
}

/* A reader has moved on. */
static void move_on(struct leases *t)
{
        struct lease_past *p;

        t->past_slot = SIZE_MAX;
        RB_FOREACH (p, lease_pasts, &t->pasts)
                t->past_slot = min_of(t->past_slot, p->slot);
        drop_some(t, DROP_MAX);
}

static void lose_all(struct leases *t)
{
        struct lease_past *p;

        while ((p = RB_ROOT(&t->pasts)))
                lose(p);
        drop_some(t, DROP_MAX);
}

void lease_past_drop_readers(struct leases *t)
{
        lose_all(t);
}

bool lease_past_free_some(struct leases *t, struct budget *left)
{
        struct lease_kept *e;

        while ((e = RB_ROOT(&t->kept)) && !budget_is_spent(left)) {
                drop(t, e);
                budget_charge(left, (size_t) FREE_STEPS);
        }
        return !e;
}

static void fill(const struct state *s, const struct lease *l, struct lease_then *ret)
{
        *ret = (struct lease_then){
                .id = l->id,
                .ttl_ms = l->ttl_ms,
                .born = l->born,
                .renewed = l->renewed,
                .end = deadlines_get(&s->deadlines, l->slot),
                .slot = l->slot,
                .name = {l->name, l->name_len},
                .owner = {(const uint8_t *) l->owner, l->owner ? strlen(l->owner) : 0},
        };
}

/* ---- changes ---- */

/* The first kept entry of @slot that a reader with this number sees; NULL: the reader sees the
 * slot's present content. */
static struct lease_kept *kept_from(const struct leases *t, size_t slot, uint64_t number)
{
        struct lease_kept *e = RB_ROOT(&t->kept), *best = NULL;

        while (e)
                if (e->then.slot > slot || (e->then.slot == slot && e->until >= number)) {
                        best = e;
                        e = RB_LEFT(e, by_slot);
                } else {
                        e = RB_RIGHT(e, by_slot);
                }
        return best && best->then.slot == slot ? best : NULL;
}

static bool keep(struct state *s, uint32_t slot)
{
        struct leases *t = &s->leases;
        const struct lease *l = leases_at(t, slot);
        struct lease_then then = {.slot = slot};
        struct lease_kept *e;

        if (l)
                fill(s, l, &then);
        e = malloc(sizeof(*e) + then.name.len + then.owner.len);
        if (!e)
                return false;
        *e = (struct lease_kept){.until = t->n_begun, .then = then, .was_free = !l};
        if (then.name.len > 0)
                memcpy(e->bytes, then.name.p, then.name.len);
        if (then.owner.len > 0)
                memcpy(e->bytes + then.name.len, then.owner.p, then.owner.len);
        e->then.name.p = e->bytes;
        e->then.owner.p = e->bytes + then.name.len;
        RB_INSERT(lease_kepts, &t->kept, e);
        t->kept_bytes += kept_cost(e);
        return true;
}

/* If the slot cannot be kept, all readers are lost, and so nothing needs to be kept any
 * more. */
void lease_past_keep_slot(struct state *s, uint32_t slot)
{
        struct leases *t = &s->leases;

        drop_some(t, DROP_CHANGED);
        if (slot < t->past_slot || RB_EMPTY(&t->pasts) || kept_from(t, slot, t->n_begun))
                return;
        if (t->kept_bytes >= KEPT_MAX || !keep(s, slot))
                lose_all(t);
}

/* ---- readers ---- */

void lease_past_begin(struct lease_past *p, struct state *s)
{
        lease_past_fini(p);
        p->state = s;
        p->n_slots = s->leases.n_slots;
        p->number = ++s->leases.n_begun; /* every kept slot is older than this reader */
        s->leases.past_slot = 0;
        p->of = &s->leases;
        RB_INSERT(lease_pasts, &s->leases.pasts, p);
}

void lease_past_fini(struct lease_past *p)
{
        struct leases *t = p->of;

        if (t) {
                lose(p);
                drop_some(t, DROP_ENDED);
        }
        *p = (struct lease_past){0};
}

/* Reads what was in the reader's current slot. Returns whether there was a lease. */
static bool look(const struct lease_past *p, struct lease_then *ret)
{
        const struct state *s = p->state;
        const struct lease_kept *e = kept_from(&s->leases, p->slot, p->number);
        const struct lease *l = leases_at(&s->leases, p->slot);

        if (e)
                *ret = e->then;
        else if (l)
                fill(s, l, ret);
        return e ? !e->was_free : l != NULL;
}

int lease_past_next(struct lease_past *p, int64_t *steps, struct lease_then *ret)
{
        const struct leases *t = &p->state->leases;
        unsigned n_free = 0;

        if (p->state && !p->of)
                return -ESTALE;
        while (p->slot < p->n_slots) {
                const struct lease *ahead = leases_at(t, p->slot + AHEAD);
                bool there;

                if (*steps <= 0) {
                        if (p->of)
                                move_on(p->of);
                        return -EAGAIN;
                }
                if (ahead)
                        __builtin_prefetch(ahead);
                there = look(p, ret);
                p->slot++;
                *steps -= RB_EMPTY(&t->kept) ? 0 : KEPT_STEPS;
                if (there) {
                        *steps -= LEASE_STEPS;
                        return 1;
                }
                *steps -= ++n_free % FREE_SLOTS == 0;
        }
        lease_past_fini(p);
        return 0;
}
