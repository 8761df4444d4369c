#include "state/slots.h"

#define BITS 64

void slots_fini(struct slots *s)
{
        for (unsigned i = 0; i < SLOTS_LEVELS; i++)
                free(s->level[i].words);
        *s = (struct slots){0};
}

int slots_take(struct slots *s, size_t slot)
{
        size_t at = slot;

        /* Reserves memory on all levels before anything changes. */
        for (unsigned i = 0; i < SLOTS_LEVELS; i++) {
                size_t n = at / BITS + 1, had = s->level[i].n;

                if (n > had) {
                        if (array_reserve(&s->level[i].words, &s->level[i].cap, n,
                                          sizeof(uint64_t)) < 0)
                                return -ENOMEM;
                        memset(s->level[i].words + had, 0, (n - had) * sizeof(uint64_t));
                        s->level[i].n = n;
                }
                at /= BITS;
        }
        assert(at == 0);
        for (unsigned i = 0; i < SLOTS_LEVELS; i++) {
                uint64_t *word = &s->level[i].words[slot / BITS];

                *word |= UINT64_C(1) << slot % BITS;
                if (*word != UINT64_MAX)
                        break;
                slot /= BITS;
        }
        return 0;
}

/* A word is added for 64 slots, and so at most one is dropped for each 64 that were taken. */
static void drop_last_free(struct slots *s)
{
        size_t *n = &s->level[0].n;

        while (*n > 0 && s->level[0].words[*n - 1] == 0)
                --*n;
        array_shrink(&s->level[0].words, &s->level[0].cap, *n, sizeof(uint64_t));
}

void slots_give(struct slots *s, size_t slot)
{
        for (unsigned i = 0; i < SLOTS_LEVELS; i++) {
                uint64_t *word = &s->level[i].words[slot / BITS], was = *word;

                *word &= ~(UINT64_C(1) << slot % BITS);
                if (was != UINT64_MAX)
                        break;
                slot /= BITS;
        }
        drop_last_free(s);
}

size_t slots_end(const struct slots *s)
{
        size_t n = s->level[0].n;

        return n == 0 ? 0 : n * BITS - (size_t) __builtin_clzll(s->level[0].words[n - 1]);
}

size_t slots_lowest_free(const struct slots *s)
{
        size_t at = 0;

        for (unsigned i = SLOTS_LEVELS; i-- > 0;) {
                uint64_t word = at < s->level[i].n ? s->level[i].words[at] : 0;

                at = at * BITS + (size_t) __builtin_ctzll(~word);
        }
        return at;
}
