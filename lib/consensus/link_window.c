#include "consensus/link_window.h"

#include "base/probe.h"

#define FIRST ((size_t) 64 << 10)
#define LEAST ((size_t) 32 << 10)

void link_window_open(struct link_window *w, size_t most, nsec_t delay)
{
        *w = (struct link_window){
                .most = most, .delay = delay, .bytes = delay > 0 ? min_of(FIRST, most) : most};
}

/* At most so many bytes are not acknowledged. */
static uint64_t unsent_most(const struct link_window *w)
{
        return w->put - w->acked;
}

bool link_window_asks(const struct link_window *w)
{
        return w->timed > 0 || unsent_most(w) >= w->bytes / 4;
}

void link_window_put(struct link_window *w, size_t n, struct boot_time now)
{
        w->put += n;
        /* The first bytes say how long the link is. */
        if (w->timed > 0 || w->delay == 0 || (w->least > 0 && unsent_most(w) < w->bytes / 2))
                return;
        w->timed = w->put;
        /* See link_window_asks(). */
        w->behind = unsent_most(w) - min_of(unsent_most(w), (uint64_t) w->bytes / 4);
        w->timed_at = w->asked_at = now;
}

/* The data that was timed is acknowledged: since when is known only if somebody has asked. */
static void adapt(struct link_window *w, struct boot_time now)
{
        nsec_t at_least = boot_diff(w->asked_at, w->timed_at),
               took = max_of(boot_diff(now, w->timed_at), (nsec_t) 1);

        w->timed = 0;
        w->least = w->least > 0 ? min_of(w->least, took) : took;
        if (at_least - w->least > w->delay) {
                PROBE("a link is slow, and takes less at once");
                w->bytes = max_of(w->bytes / 2, min_of(LEAST, w->most));
        } else if (w->filled && (uint64_t) (took - w->least) * 2 * w->bytes <
                                        (uint64_t) w->delay * w->behind) {
                PROBE("a link is fast, and takes more at once");
                w->bytes = min_of(2 * w->bytes, w->most);
        }
        w->filled = false;
}

void link_window_told(struct link_window *w, size_t unsent, struct boot_time now)
{
        w->acked = w->put - min_of(w->put, (uint64_t) unsent);
        if (w->timed > 0 && w->acked >= w->timed)
                adapt(w, now);
        else
                w->asked_at = now;
}

size_t link_window_room(struct link_window *w)
{
        uint64_t unsent = unsent_most(w);

        if (unsent < w->bytes)
                return w->bytes - (size_t) unsent;
        w->filled = true;
        return 0;
}
