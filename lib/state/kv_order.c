/* Sorts the history of a snapshot, which is stored key by key, into the order of changes. Works
 * in slices, since it may be long. */
#include "state/kv.h"

#define RUN ((size_t) 2048) /* sorted at once: takes half a millisecond */
#define RUN_STEPS 2048
#define AT_ONCE 4 /* changes merged per unit of cost */

static int history_cmp(const void *a, const void *b)
{
        const struct kv_version *x = *(struct kv_version *const *) a,
                                *y = *(struct kv_version *const *) b;

        if (x->mod_revision != y->mod_revision)
                return x->mod_revision < y->mod_revision ? -1 : 1;
        return x->sub < y->sub ? -1 : x->sub > y->sub;
}

_Static_assert(KV_HISTORY_BLOCK % RUN == 0, "a run is within one block");

/* Nothing of the history is compacted yet: the first block has position 0. */
static struct kv_version **at(struct kv_version ***blocks, size_t i)
{
        return &blocks[i / KV_HISTORY_BLOCK][i % KV_HISTORY_BLOCK];
}

static bool make_runs(struct kv *kv, struct kv_order *o, struct budget *left)
{
        for (; o->done < kv->history_to; o->done += RUN) {
                if (budget_is_spent(left))
                        return false;
                budget_charge(left, RUN_STEPS);
                qsort(at(kv->history, o->done), min_of(RUN, kv->history_to - o->done),
                      sizeof(struct kv_version *), history_cmp);
        }
        o->done = 0;
        o->width = RUN;
        return true;
}

/* Merges two adjacent runs, then the next two, and so on. */
static bool merge_runs(const struct kv *kv, struct kv_order *o, struct budget *left)
{
        struct kv_version ***from = kv->history;

        while (o->done < kv->history_to) {
                size_t begin = o->done & ~(2 * o->width - 1),
                       middle = min_of(begin + o->width, kv->history_to),
                       end = min_of(middle + o->width, kv->history_to);

                if (budget_is_spent(left))
                        return false;
                budget_charge(left, 1);
                if (o->done == begin) {
                        o->a = begin;
                        o->b = middle;
                }
                for (size_t stop = min_of(o->done + AT_ONCE, end); o->done < stop; o->done++)
                        *at(o->to, o->done) = o->b >= end || (o->a < middle &&
                                                              history_cmp(at(from, o->a),
                                                                          at(from, o->b)) <= 0)
                                                      ? *at(from, o->a++)
                                                      : *at(from, o->b++);
        }
        return true;
}

static int make_room(const struct kv *kv, struct kv_order *o)
{
        o->to = calloc(kv->history_cap, sizeof(*o->to));
        for (; o->to && o->n_blocks < kv->n_history_blocks; o->n_blocks++) {
                o->to[o->n_blocks] = malloc(KV_HISTORY_BLOCK * sizeof(**o->to));
                if (!o->to[o->n_blocks])
                        return -ENOMEM;
        }
        return o->to ? 0 : -ENOMEM;
}

int kv_restore_end(struct kv *kv, struct budget *left)
{
        struct kv_order *o = &kv->order;
        struct kv_version ***sorted;

        if (o->width == 0 && !make_runs(kv, o, left))
                return 1;
        for (; o->width < kv->history_to; o->width *= 2, o->done = 0) {
                if (!o->to && make_room(kv, o) < 0)
                        return -ENOMEM;
                if (!merge_runs(kv, o, left))
                        return 1;
                sorted = o->to;
                o->to = kv->history;
                kv->history = sorted;
        }
        return !kv_order_free_some(kv, left);
}

bool kv_order_free_some(struct kv *kv, struct budget *left)
{
        struct kv_order *o = &kv->order;

        for (; o->n_blocks > 0; o->n_blocks--) {
                if (budget_is_spent(left))
                        return false;
                budget_charge_free(left, KV_BLOCK_BYTES);
                free(o->to[o->n_blocks - 1]);
        }
        free(o->to);
        *o = (struct kv_order){0};
        return true;
}
