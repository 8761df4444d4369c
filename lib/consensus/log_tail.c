#include "consensus/log_tail.h"

#define OVERHEAD (2 * sizeof(struct log_entry)) /* in the ring, and for its allocation */

static size_t size_of(const struct log_entry *e)
{
        return e->len + OVERHEAD;
}

void log_init(struct log *l, uint64_t first)
{
        *l = (struct log){.first = first};
}

/* @i counts from the first entry; those that are gone have negative ones. */
static struct log_entry *at(const struct log *l, size_t i)
{
        return &l->entries[(l->head + i) & (l->cap - 1)];
}

void log_fini(struct log *l)
{
        log_trim(l, log_last(l));
        log_free_gone(l, SIZE_MAX);
        free(l->entries);
        *l = (struct log){0};
}

const struct log_entry *log_get(const struct log *l, uint64_t index)
{
        return index >= l->first && index - l->first < l->n ? at(l, index - l->first) : NULL;
}

uint64_t log_find(const struct log *l, uint8_t type, uint64_t from, uint64_t upto)
{
        for (uint64_t i = min_of(upto, log_last(l)); i >= max_of(from, l->first); i--)
                if (log_get(l, i)->type == type)
                        return i;
        return 0;
}

size_t log_bytes(const struct log *l, uint64_t from, uint64_t upto)
{
        const struct log_entry *a, *b;

        from = max_of(from, l->first);
        upto = min_of(upto, log_last(l));
        if (from > upto)
                return 0;
        a = log_get(l, from);
        b = log_get(l, upto);
        return (size_t) (b->end - a->end) + size_of(a);
}

static int grow(struct log *l)
{
        size_t cap = l->cap > 0 ? 2 * l->cap : 1024; /* always a power of two, see at() */
        struct log_entry *e = calloc(cap, sizeof(*e));

        if (!e)
                return -ENOMEM;
        for (size_t i = 0; i < l->gone + l->n; i++)
                e[i] = *at(l, i - l->gone);
        free(l->entries);
        l->entries = e;
        l->cap = cap;
        l->head = l->gone;
        return 0;
}

int log_push(struct log *l, uint64_t term, uint8_t type, const void *data, size_t len)
{
        cleanup_(freep) uint8_t *copy = malloc(len > 0 ? len : 1);
        int r;

        if (!copy)
                return -ENOMEM;
        if (len > 0)
                memcpy(copy, data, len);
        r = log_take(l, term, type, copy, len);
        if (r == 0)
                (void) take_ptr(copy);
        return r;
}

int log_take(struct log *l, uint64_t term, uint8_t type, void *data, size_t len)
{
        uint64_t end;

        if (l->gone + l->n == l->cap && grow(l) < 0)
                return -ENOMEM;
        end = l->n > 0 ? at(l, l->n - 1)->end : 0;
        *at(l, l->n++) = (struct log_entry){.term = term,
                                            .len = (uint32_t) len,
                                            .type = type,
                                            .end = end + len + OVERHEAD,
                                            .data = data};
        l->bytes += len + OVERHEAD;
        return 0;
}

void log_cut(struct log *l, uint64_t from)
{
        while (l->n > 0 && log_last(l) >= from) {
                struct log_entry *e = at(l, --l->n);

                l->bytes -= size_of(e);
                free(e->data);
        }
}

void log_trim(struct log *l, uint64_t upto)
{
        size_t n = upto < l->first ? 0 : min_of((size_t) (upto - l->first) + 1, l->n);

        if (n == 0)
                return;
        l->bytes -= log_bytes(l, l->first, l->first + n - 1);
        l->head += n;
        l->gone += n;
        l->n -= n;
        l->first += n;
}

void log_free_gone(struct log *l, size_t max)
{
        for (; l->gone > 0 && max > 0; l->gone--, max--)
                free(at(l, -l->gone)->data);
}
