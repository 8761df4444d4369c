#include "consensus/log.h"

void log_init(struct log *l, uint64_t first)
{
        *l = (struct log){.first = first};
}

static struct log_entry *at(const struct log *l, size_t i)
{
        return &l->entries[(l->head + i) & (l->cap - 1)];
}

void log_fini(struct log *l)
{
        for (size_t i = 0; i < l->n; i++)
                free(at(l, i)->data);
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
        return (size_t) (b->end - a->end) + a->len;
}

static int grow(struct log *l)
{
        size_t cap = l->cap > 0 ? 2 * l->cap : 1024; /* always a power of two, see at() */
        struct log_entry *e = calloc(cap, sizeof(*e));

        if (!e)
                return -ENOMEM;
        for (size_t i = 0; i < l->n; i++)
                e[i] = *at(l, i);
        free(l->entries);
        l->entries = e;
        l->cap = cap;
        l->head = 0;
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

        if (l->n == l->cap && grow(l) < 0)
                return -ENOMEM;
        end = l->n > 0 ? at(l, l->n - 1)->end : 0;
        *at(l, l->n++) = (struct log_entry){.term = term,
                                            .len = (uint32_t) len,
                                            .type = type,
                                            .end = end + len,
                                            .data = data};
        l->bytes += len;
        return 0;
}

void log_cut(struct log *l, uint64_t from)
{
        while (l->n > 0 && log_last(l) >= from) {
                struct log_entry *e = at(l, --l->n);

                l->bytes -= e->len;
                free(e->data);
        }
}

void log_trim(struct log *l, uint64_t upto)
{
        while (l->n > 0 && l->first <= upto) {
                l->bytes -= at(l, 0)->len;
                free(at(l, 0)->data);
                l->head = (l->head + 1) & (l->cap - 1);
                l->n--;
                l->first++;
        }
}
