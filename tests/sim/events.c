/* The queue of events: a heap, ordered by time and then by order of posting. */
#include "world.h"

static struct event **heap;
static size_t n_events, cap;
static uint64_t numbers;

static bool before(const struct event *a, const struct event *b)
{
        return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(struct event *e)
{
        size_t i = n_events;

        if (array_reserve(&heap, &cap, n_events + 1, sizeof(*heap)) < 0)
                abort();
        n_events++;
        for (; i > 0 && before(e, heap[(i - 1) / 2]); i = (i - 1) / 2)
                heap[i] = heap[(i - 1) / 2];
        heap[i] = e;
}

struct event *post_bytes(struct world *w, nsec_t in, enum event_kind kind, size_t len)
{
        struct event *e = malloc(sizeof(*e) + len);

        if (!e)
                abort();
        *e = (struct event){.at = w->now + in, .number = numbers++, .kind = kind, .len = len};
        push(e);
        return e;
}

struct event *post(struct world *w, nsec_t in, enum event_kind kind)
{
        return post_bytes(w, in, kind, 0);
}

void post_again(struct world *w, struct event *e)
{
        e->at = w->now;
        e->number = numbers++;
        push(e);
}

struct event *events_first(void)
{
        return n_events > 0 ? heap[0] : NULL;
}

struct event *events_take(void)
{
        struct event *first = heap[0], *e = heap[--n_events];
        size_t i = 0;

        for (;;) {
                size_t k = 2 * i + 1;

                if (k + 1 < n_events && before(heap[k + 1], heap[k]))
                        k++;
                if (k >= n_events || before(e, heap[k]))
                        break;
                heap[i] = heap[k];
                i = k;
        }
        heap[i] = e;
        return first;
}
