/* The index of watches: whatever is added and removed, a lookup by key finds what a full walk
 * finds. */
#include "state/span_index.h"
#include "test.h"

#define RANGES 400

struct item {
        struct span_entry range;
        uint8_t from[4], end[4];
        bool in;
        unsigned found;
};

static struct view text(const char *bytes, size_t n)
{
        return (struct view){(const uint8_t *) bytes, n};
}

static struct view random_bytes(uint8_t *out)
{
        size_t n = rnd(1, 3);

        for (size_t i = 0; i < n; i++)
                out[i] = (uint8_t) rnd(0, 5);
        return (struct view){out, n};
}

static void random_span(struct item *it)
{
        struct kv_span *s = &it->range.span;

        *s = (struct kv_span){.from = random_bytes(it->from)};
        switch (rnd(0, 3)) {
        case 0:
                s->single = true;
                break;
        case 1:
                s->to_end = true;
                s->end = text("\0", 1);
                break;
        default:
                s->end = random_bytes(it->end);
                if (bytes_cmp(s->from.p, s->from.len, s->end.p, s->end.len) >= 0)
                        *s = (struct kv_span){.from = s->from, .single = true};
                break;
        }
}

static void on_found(struct span_entry *r, void *arg)
{
        struct item *it = container_of(r, struct item, range);

        (void) arg;
        CHECK(it->in);
        it->found++;
}

static void check_key(const struct span_index *ix, struct item *items)
{
        uint8_t bytes[4];
        struct view key = random_bytes(bytes);

        for (size_t i = 0; i < RANGES; i++)
                items[i].found = 0;
        span_index_each(ix, key, on_found, NULL);
        for (size_t i = 0; i < RANGES; i++)
                CHECK_EQ(items[i].found,
                         items[i].in && kv_span_has(&items[i].range.span, key.p, key.len));
}

TEST(an_index_finds_every_range_that_holds_a_key)
{
        static struct item items[RANGES];
        struct span_index ix;

        memset(items, 0, sizeof(items));
        span_index_init(&ix);
        for (unsigned n = 0; n < 5000; n++) {
                struct item *it = &items[rnd(0, RANGES - 1)];

                if (it->in) {
                        CHECK(span_index_find(&ix, &it->range.span) == &it->range);
                        span_index_remove(&ix, &it->range);
                        it->in = false;
                } else {
                        random_span(it);
                        if (span_index_find(&ix, &it->range.span))
                                continue;
                        span_index_add(&ix, &it->range);
                        it->in = true;
                }
                check_key(&ix, items);
        }
        for (size_t i = 0; i < RANGES; i++)
                if (items[i].in)
                        span_index_remove(&ix, &items[i].range);
        CHECK(!span_index_any(&ix));
}

struct seen {
        unsigned looked_at;
};

static void on_seen(struct span_entry *r, void *arg)
{
        (void) r;
        ((struct seen *) arg)->looked_at++;
}

/* Two ranges from the same key on, one key and all keys: neither hides the other. */
TEST(ranges_that_begin_alike_are_distinguished)
{
        struct span_entry one = {.span = {.from = text("k", 1), .single = true}},
                          all = {.span = {.from = text("k", 1),
                                          .end = text("\0", 1),
                                          .to_end = true}},
                          some = {.span = {.from = text("k", 1), .end = text("l", 1)}};
        struct seen seen = {0};
        struct span_index ix;

        span_index_init(&ix);
        span_index_add(&ix, &one);
        span_index_add(&ix, &all);
        span_index_add(&ix, &some);
        span_index_each(&ix, text("k", 1), on_seen, &seen);
        CHECK_EQ(seen.looked_at, 3);
        span_index_each(&ix, text("k\0", 2), on_seen, &seen);
        CHECK_EQ(seen.looked_at, 5);
        span_index_each(&ix, text("l", 1), on_seen, &seen);
        CHECK_EQ(seen.looked_at, 6);
        span_index_each(&ix, text("j", 1), on_seen, &seen);
        CHECK_EQ(seen.looked_at, 6);
}
