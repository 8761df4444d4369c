/* The queue of events that the program has not taken yet. */
#include "tenure/internal.h"

struct queued *queue_try(enum tenure_event_type type, size_t text)
{
        struct queued *q = calloc(1, sizeof(*q) + text);

        if (!q)
                return NULL;
        q->size = text;
        q->event.type = type;
        q->event.reason = "";
        return q;
}

struct queued *queue_new(struct tenure *t, enum tenure_event_type type, size_t text)
{
        struct queued *q = queue_try(type, text);

        if (!q) /* a program that misses a change would act on wrong information */
                t->broken = -ENOMEM;
        return q;
}

const void *queue_bytes(struct queued *q, const void *p, size_t n)
{
        char *at = q->text + q->used;

        assert(q->size - q->used > n);
        if (n > 0)
                memcpy(at, p, n);
        at[n] = '\0';
        q->used += n + 1;
        return at;
}

const char *queue_text(struct queued *q, const char *s)
{
        return queue_bytes(q, s, strlen(s));
}

static void forget(struct queued *q)
{
        if (q)
                free(q->handle);
        free(q);
}

void queue_event(struct tenure *t, struct queued *q)
{
        TAILQ_INSERT_TAIL(&t->events, q, entry);
}

void queue_last(struct tenure *t, struct queued *q, void *handle)
{
        if (!q) {
                free(handle);
                return;
        }
        q->handle = handle;
        queue_event(t, q);
}

void queue_take_back(struct tenure *t, struct queued *q)
{
        TAILQ_REMOVE(&t->events, q, entry);
        forget(q);
}

void queue_fini(struct tenure *t)
{
        struct queued *q;

        while ((q = TAILQ_FIRST(&t->events))) {
                TAILQ_REMOVE(&t->events, q, entry);
                forget(q);
        }
        forget(t->popped);
        t->popped = NULL;
}

const struct tenure_event *tenure_pop_event(struct tenure *t)
{
        hold_came_back(t);
        forget(t->popped);
        t->popped = TAILQ_FIRST(&t->events);
        if (!t->popped)
                return NULL;
        TAILQ_REMOVE(&t->events, t->popped, entry);
        if (t->popped->left)
                t->popped->left(t->popped);
        return &t->popped->event;
}
