#include "member/brake.h"

void brake_expired(struct brake *b, struct boot_time now)
{
        b->expired[(b->from + b->n) % BRAKE_KEEP] = now;
        if (b->n < BRAKE_KEEP)
                b->n++;
        else
                b->from = (b->from + 1) % BRAKE_KEEP;
}

static void forget_old(struct brake *b, nsec_t window, struct boot_time now)
{
        while (b->n > 0 && boot_diff(now, b->expired[b->from]) >= window) {
                b->from = (b->from + 1) % BRAKE_KEEP;
                b->n--;
        }
}

bool brake_update(struct brake *b, const struct brake_config *cfg, size_t n_nodes,
                  struct boot_time now)
{
        size_t of;
        bool on;

        forget_old(b, cfg->window, now);
        of = n_nodes + b->n;
        on = cfg->percent > 0 && of >= BRAKE_NODES_MIN && b->n * 100 >= of * cfg->percent;
        if (on == b->on)
                return false;
        b->on = on;
        return true;
}

struct boot_time brake_wakeup(const struct brake *b, const struct brake_config *cfg)
{
        return b->n > 0 ? boot_add(b->expired[b->from], cfg->window) : BOOT_TIME_NEVER;
}
