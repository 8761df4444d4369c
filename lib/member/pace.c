#include "member/pace.h"

#define FIRST (100 * NSEC_PER_MSEC)
#define MOST (5 * NSEC_PER_SEC)

/* After this much time without a failure, the delays begin again with the shortest. */
#define WELL (2 * MOST)

nsec_t pace_next(struct pace *p, size_t n_endpoints, struct boot_time now)
{
        size_t rounds;
        nsec_t wait = FIRST;

        if (p->n > 0 && boot_diff(now, p->failed_at) > WELL)
                p->n = 0;
        p->failed_at = now;
        rounds = p->n / max_of(n_endpoints, (size_t) 1);
        p->n++;
        while (rounds-- > 0 && wait < MOST)
                wait *= 2;
        return min_of(wait, MOST);
}

bool pace_is_round(const struct pace *p, size_t n_endpoints)
{
        return p->n >= n_endpoints;
}
