#include "base/blob.h"

struct blob *blob_new(struct buf *bytes)
{
        struct blob *b = bytes->failed ? NULL : malloc(sizeof(*b));

        if (!b) {
                buf_fini(bytes);
                return NULL;
        }
        *b = (struct blob){.n_holders = 1, .bytes = *bytes};
        *bytes = (struct buf){0};
        return b;
}

struct blob *blob_hold(struct blob *b)
{
        b->n_holders++;
        return b;
}

struct blob *blob_free(struct blob *b)
{
        if (b && --b->n_holders == 0) {
                buf_fini(&b->bytes);
                free(b);
        }
        return NULL;
}

size_t blob_shrink(struct blob *b, size_t n)
{
        struct buf *x = &b->bytes;
        uint8_t *data = x->cap > n ? realloc(x->data, x->cap - n) : NULL;

        assert(b->n_holders == 1);
        if (!data) {
                buf_fini(x);
                return 0;
        }
        x->data = data;
        x->cap -= n;
        x->end = min_of(x->end, x->cap);
        x->off = min_of(x->off, x->end);
        return x->cap;
}
