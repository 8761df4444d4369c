/* What a world does, as numbers: every frame, every write to a disk, every byte of a connection
 * and every answer, with its time. Two runs of a seed must do the same, whatever was in memory
 * before and whichever seed ran before; else a failure cannot be run again. */
#include <stdio.h>

#include "base/hash.h"
#include "world.h"

static struct trace *trace;

void trace_into(struct trace *t)
{
        trace = t;
        if (t)
                *t = (struct trace){0};
}

void trace_add(const struct world *w, enum traced what, unsigned who, const void *p, size_t n)
{
        uint64_t head[] = {(uint64_t) w->now, who, n}, *h;
        size_t step = min_of((size_t) (w->now / TRACE_STEP), (size_t) TRACE_STEPS - 1);

        if (!trace)
                return;
        h = &trace->steps[step][what];
        *h = hash_add_words(*h ? *h : HASH_START, head, sizeof(head));
        *h = hash_add_words(*h, p, n);
}

bool trace_differs(const struct trace *a, const struct trace *b, char *out, size_t size)
{
        static const char *const names[] = {
                [TRACED_FRAME] = "a frame between replicas",
                [TRACED_DISK] = "a write to a disk",
                [TRACED_WIRE] = "what is sent on a connection",
                [TRACED_ANSWER] = "an answer",
        };

        for (size_t i = 0; i < TRACE_STEPS; i++)
                for (size_t k = 0; k < TRACED_KINDS; k++)
                        if (a->steps[i][k] != b->steps[i][k]) {
                                snprintf(out, size,
                                         "two runs of this seed are not the same: from about "
                                         "%.1f s on, %s is another",
                                         (double) ((nsec_t) i * TRACE_STEP) / 1e9, names[k]);
                                return true;
                        }
        return false;
}
