/* Calls that look at the whole state: a slice at a time, and other work in between. */
#include "service/slow.h"

#define PAUSE (2 * NSEC_PER_MSEC)
#define AT_ONCE 2

static void drop(struct request *q)
{
        struct slow *s = q->data;

        LIST_REMOVE(s, next);
        s->ops->fini(s);
}

static void begin(struct slow *s)
{
        s->installs = core_installs(s->q->api->core);
        s->ops->begin(s);
}

void slow_start(struct slow *s, struct request *q, const struct slow_ops *ops)
{
        s->q = q;
        s->ops = ops;
        q->data = s;
        q->drop = drop;
        q->gone = request_end;
        LIST_INSERT_HEAD(&q->api->slows, s, next);
        begin(s);
}

bool slow_is_stale(const struct slow *s)
{
        return s->installs != core_installs(s->q->api->core);
}

static void run(struct slow *s, struct boot_time now)
{
        int r;

        s->at = boot_add(now, PAUSE);
        r = s->ops->run(s);
        if (r == -ESTALE)
                begin(s);
        else if (r < 0)
                request_fail(s->q, status_nomem);
}

/* Whoever has waited longest. */
static struct slow *first(const struct api *a)
{
        struct slow *s, *first = NULL;

        LIST_FOREACH (s, &a->slows, next)
                if (!first || boot_before(s->at, first->at))
                        first = s;
        return first;
}

/* However many there are, few have a turn in one of the loop. */
void slow_flush(struct api *a, struct boot_time now)
{
        for (unsigned i = 0; i < AT_ONCE; i++) {
                struct slow *s = first(a);

                if (!s || boot_before(now, s->at))
                        return;
                run(s, now);
        }
}

struct boot_time slow_next(const struct api *a)
{
        const struct slow *s = first(a);

        return s ? s->at : BOOT_TIME_NEVER;
}
